# What R users expect of a fit, for a release: print, summary, confint, predict, plot, and draws as a data frame or for
# 'posterior'.

levels_of <- function(release, tau) {
  index <- release$model$index
  if (is.null(index)) return(NULL)
  if (!is.null(tau)) return(tau)
  if (!is.null(index$values)) index$values else seq(index$low, index$high, length.out = 5)
}

# Runs `code` with a seed of its own, and leaves the stream of random numbers as it was.
seeded <- function(seed, code) {
  if (is.null(seed)) return(code)
  old <- if (exists(".Random.seed", globalenv())) get(".Random.seed", globalenv())
  on.exit(if (is.null(old)) rm(".Random.seed", envir = globalenv()) else assign(".Random.seed", old, globalenv()))
  set.seed(seed)
  code
}

# Mean, sd and ends of the interval of each column of draws.
described <- function(draws, level) {
  if (!is.numeric(level) || length(level) != 1 || is.na(level) || level <= 0 || level >= 1)
    stop("level must be one number between 0 and 1, such as .95")
  ends <- t(apply(draws, 2, quantile, c((1 - level) / 2, (1 + level) / 2), names = FALSE))
  data.frame(mean = colMeans(draws), sd = apply(draws, 2, sd), lower = ends[, 1], upper = ends[, 2], row.names = NULL)
}

# Variances of each coefficient of a local posterior: of the sampling error and of the privacy noise, with weights w of the
# knots; along the directions that are known alone, or along all.
parts_of <- function(x, w, tau, to, known = FALSE) {
  d <- nrow(x$frame); at <- function(name, j) matrix(x[[name]][j, , ], d)
  mixed <- function(f) Reduce(`+`, lapply(seq_along(w), function(j) w[j] * f(j)))
  slope <- (diag(d) - known * mixed(function(j) at("free", j))) %*% solve(mixed(function(j) at("curvature", j)))
  inverse <- lapply(seq_along(w), function(j) (diag(d) - known * at("free", j)) %*% solve(at("curvature", j)))
  bent <- if (is.null(x$bend)) rep(1, d) else pmax(1 - x$bend * solve(at("curvature", 1), x$gradient[1, ]), .05)
  line <- to %*% sweep(x$frame, 2, bent^2, "/"); moved <- line %*% slope
  noise <- lapply(seq_len(ncol(x$privacy)), function(k) rowSums((line %*% mixed(function(j) x$privacy[j, k] * inverse[[j]]))^2))
  list(sampling = (if (is.null(tau)) 1 else tau * (1 - tau)) * rowSums((moved %*% x$sampling) * moved), privacy = Reduce(`+`, noise))
}

# What a table says beside the draws of a local posterior: the parts of sd, and what the noise does not hide.
beside <- function(release, tau) {
  x <- release$tensors; to <- release$model$transform; line <- to %*% x$frame; d <- nrow(x$frame)
  believed <- if (is.null(x$prior)) Inf else rowSums(sweep(line, 2, x$prior, "*")^2)
  rows <- Map(function(w, v) {
    free <- Reduce(`+`, lapply(seq_along(w), function(j) w[j] * matrix(x$free[j, , ], d)))
    loose <- rowSums((x$frame %*% free) * x$frame) / rowSums(x$frame^2)
    found <- parts_of(x, w, v, to); total <- found$sampling + found$privacy
    rest <- Reduce(`+`, parts_of(x, w, v, to, known = TRUE)); spread <- rowSums((line %*% free) * line) * vague_of(x)^2
    seen <- c((to != 0) %*% (loose > .01)) == 0 & spread <= rest & total <= .16 * believed
    data.frame(sampling_sd = ifelse(seen, sqrt(found$sampling), NA), privacy_sd = ifelse(seen, sqrt(found$privacy), NA), identified = seen)
  }, mix_of(x, tau), if (is.null(tau)) list(NULL) else tau)
  unname(rows)
}

method_of <- function(release) if (is.null(release$method)) "not named in the file" else release$method

summary.pgbb_release <- function(object, tau = NULL, level = .95, draws = 2000, seed = 0, ...) {
  at <- levels_of(object, tau)
  found <- seeded(seed, pgbb_sample(object, draws, at))
  extra <- if (object$kind == "local") beside(object, at)
  rows <- lapply(seq_along(found), function(i) {
    row <- data.frame(coefficient = colnames(found[[i]]), described(found[[i]], level),
                      prob_positive = colMeans(found[[i]] > 0), row.names = NULL)
    if (!is.null(extra)) row <- cbind(row, extra[[i]])
    if (is.null(at)) row else cbind(tau = at[i], row)
  })
  structure(do.call(rbind, rows), class = c("pgbb_summary", "data.frame"), level = level, method = method_of(object))
}

print.pgbb_summary <- function(x, digits = 4, ...) {
  table <- as.data.frame(unclass(x)); hidden <- if (is.null(x$identified)) FALSE else !x$identified
  table$coefficient <- paste0(table$coefficient, ifelse(hidden, " *", "")); table$identified <- NULL
  short <- function(v) ifelse(abs(v) >= 10^digits & abs(v) < 1e7, formatC(v, digits = 0, format = "f"), formatC(v, digits = digits, format = "g"))
  cell <- function(v) if (is.numeric(v)) ifelse(is.na(v), "-", short(v)) else v
  print.data.frame(as.data.frame(lapply(table, cell)), row.names = FALSE, width = max(getOption("width"), 120))
  cat(sprintf("%g %% intervals by method %s; they include privacy noise where the method says so\n", 100 * attr(x, "level"), attr(x, "method")))
  if (any(hidden)) cat("* not identified at this epsilon: the interval says little more than was known before\n")
  invisible(x)
}

# The factors of a term, such as x, I(x**2), bs(x, knots=[1, 2])[3] and region[T.south] of "x:region[T.south]".
factors_of <- function(name) {
  signs <- strsplit(name, "")[[1]]; depth <- cumsum((signs %in% c("(", "[")) - (signs %in% c(")", "]")))
  cut <- which(signs == ":" & depth == 0)
  substring(name, c(1, cut + 1), c(cut - 1, nchar(name)))
}

# A factor at the rows of newdata. A call is read in an environment that has the known functions and nothing else.
factor_at <- function(text, column, ends) {
  if (text == "Intercept") return(1)
  known <- names(ends$schema); place <- function(name) if (name %in% known) column(name) else stop("unknown term ", text)
  if (text %in% known) return(place(text))
  inside <- regmatches(text, regexec("^(.*?)\\[(T\\.)?(.*)\\]$", text, perl = TRUE))[[1]]
  if (length(inside) && inside[2] %in% known) return(as.numeric(place(inside[2]) == inside[4]))
  bracket <- regmatches(text, regexec("^(.*\\))\\[([0-9]+)\\]$", text))[[1]]
  call <- if (length(bracket)) bracket[2] else text
  call <- gsub("]", ")", gsub("[", "c(", gsub("**", "^", call, fixed = TRUE), fixed = TRUE), fixed = TRUE)
  parsed <- tryCatch(str2lang(call), error = function(e) stop("unknown term ", text))
  columns <- intersect(all.vars(parsed), known); values <- lapply(columns, place); names(values) <- columns
  range <- function() ends$range(columns)
  spline <- function(x, knots = NULL, degree = 3) suppressWarnings(splines::bs(x, knots = knots, degree = degree, Boundary.knots = range()))
  powers <- function(x, degree, centre = mean(range())) outer(x - centre, seq_len(degree), "^")
  allowed <- list(I = identity, log = log, bs = spline, poly = powers, c = c, `^` = `^`, `*` = `*`, `-` = `-`)
  found <- tryCatch(eval(parsed, c(allowed, values), emptyenv()), error = function(e) stop("unknown term ", text))
  if (length(bracket)) unclass(found)[, as.integer(bracket[3])] else found
}

# A column of newdata in the units of its declaration: numbers, days as years, words of a flag as 0 and 1, text of levels.
column_at <- function(name, declared, newdata) {
  if (is.null(newdata[[name]])) stop("newdata has no column ", name)
  given <- newdata[[name]]
  if (is.factor(given) || inherits(given, "Date")) given <- as.character(given)
  if (!is.list(declared)) declared <- list()  # "flag"
  if (!is.null(declared$levels)) {
    given <- as.character(given); if (!is.null(declared$missing)) given[is.na(given)] <- as.character(declared$missing)
    known <- unique(as.character(c(declared$levels, declared$missing)))
    if (!all(given %in% known)) stop(name, " must be among ", paste(known, collapse = ", "))
    return(given)
  }
  if (is.character(given) && !is.null(declared$date)) given <- 1970 + as.numeric(as.Date(given)) / 365.2425
  if (is.character(given) && length(declared$flag)) given <- match(given, declared$flag) - 1
  if (is.logical(given)) given <- as.numeric(given)
  if (!is.numeric(given) || !all(is.finite(given))) stop(name, " must be a column of finite numbers, or of the words or days that the schema declares")
  given
}

predict.pgbb_release <- function(object, newdata, tau = NULL, level = .95, draws = 2000, seed = 0, ...) {
  model <- object$model; schema <- object$schema
  if (is.null(model$formula)) stop("a ", model$kind, " model has no formula to predict from: use summary()")
  if (!is.data.frame(newdata) || !nrow(newdata)) stop("newdata must be a data frame of at least one row")
  column <- function(name) column_at(name, schema[[name]], newdata)
  range <- function(name) if (is.null(schema[[name]]$date)) schema[[name]]$range else 1970 + as.numeric(as.Date(schema[[name]]$date)) / 365.2425
  value <- function(name) {
    if (model$kind == "huber" && name == "scale") return(rep(0, nrow(newdata)))  # a coefficient that is no term
    Reduce(`*`, lapply(factors_of(name), factor_at, column, list(schema = schema, range = range)), rep(1, nrow(newdata)))
  }
  design <- matrix(sapply(model$names, value), nrow(newdata))
  exposure <- model$settings$exposure
  size <- if (is.null(exposure) || is.null(newdata[[exposure]])) rep(1, nrow(newdata)) else column(exposure)
  link <- switch(model$kind, logistic = function(v) 1 / (1 + exp(-v)), poisson = function(v) sweep(exp(v), 2, size, "*"), identity)
  at <- levels_of(object, tau)
  found <- seeded(seed, pgbb_sample(object, draws, at))
  rows <- lapply(seq_along(found), function(i) {
    row <- data.frame(row = seq_len(nrow(newdata)), described(link(found[[i]] %*% t(design)), level))
    if (is.null(at)) row else cbind(tau = at[i], row)
  })
  do.call(rbind, rows)
}

# "; n = 10,000", or nothing for a pooled release, whose custodians have their own
records_of <- function(claim) {
  found <- unlist(claim$mechanism); n <- found[grepl("(^|\\.)n[0-9]*$", names(found))]
  if (length(claim$members) || !length(n)) "" else paste0("; n = ", format(as.numeric(n[[1]]), big.mark = ",", scientific = FALSE))
}

print.pgbb_release <- function(x, ...) {
  claim <- x$certificate
  cat(if (is.null(x$model$formula)) paste(x$model$kind, "model") else x$model$formula, "\n", sep = "")
  cat("method: ", method_of(x), "\n", sep = "")
  if (isTRUE(claim$non_private) || claim$randomness != "operating system") cat("NOT PRIVATE\n") else
    cat(sprintf("epsilon = %g, delta = %g (%s%s)\n", claim$epsilon, claim$delta, claim$adjacency, records_of(claim)))
  print(summary(x, ...))
  cat("hashes and epsilon: pgbb verify; notes: pgbb show\n")
  invisible(x)
}

confint.pgbb_release <- function(object, parm = NULL, level = .95, tau = NULL, ...) {
  table <- summary(object, tau = tau, level = level, ...)
  if (!is.null(parm) && !all(parm %in% table$coefficient))
    stop("parm must be among ", paste(unique(table$coefficient), collapse = ", "))
  if (!is.null(parm)) table <- table[table$coefficient %in% parm, ]
  labels <- if (is.null(table$tau)) table$coefficient else paste0(table$coefficient, "[", table$tau, "]")
  ends <- paste(format(100 * c((1 - level) / 2, (1 + level) / 2), trim = TRUE), "%")
  matrix(c(table$lower, table$upper), ncol = 2, dimnames = list(labels, ends))
}

plot.pgbb_release <- function(x, tau = NULL, level = .95, draws = 2000, ...) {
  table <- summary(x, tau = tau, level = level, draws = draws)
  labels <- if (is.null(table$tau)) table$coefficient else paste0(table$coefficient, " [", table$tau, "]")
  place <- rev(seq_along(labels)); old <- par("mar"); on.exit(par(mar = old))
  needed <- max(strwidth(labels, "inches")) / par("csi") + 1.5  # lines of margin that the longest name takes
  par(mar = c(4, max(4, min(needed, .6 * par("din")[1] / par("csi"))), 2, 1))
  hidden <- if (is.null(table$identified)) rep(FALSE, nrow(table)) else !table$identified
  shown <- if (all(hidden)) table else table[!hidden, ]  # what is not identified would set the scale for the others
  plot(range(shown$lower, shown$upper, 0), range(place) + c(-.5, .5), type = "n", yaxt = "n", ylab = "",
       xlab = sprintf("mean and %g %% interval%s", 100 * level, if (any(hidden)) " (grey, hollow: not identified)" else ""),
       main = paste("method", method_of(x)), font.main = 1, cex.main = 1, ...)
  abline(v = 0, lty = 3)
  segments(table$lower, place, table$upper, place, lwd = 2, lty = ifelse(hidden, 3, 1), col = ifelse(hidden, "grey55", "black"))
  points(table$mean, place, pch = ifelse(hidden, 1, 19), col = ifelse(hidden, "grey55", "black"))
  axis(2, at = place, labels = labels, las = 1)
  invisible(table)
}

as.data.frame.pgbb_release <- function(x, row.names = NULL, optional = FALSE, draws = 2000, tau = NULL, seed = NULL, ...) {
  at <- levels_of(x, tau)
  found <- seeded(seed, pgbb_sample(x, draws, at))
  if (!is.null(at)) for (i in seq_along(found)) colnames(found[[i]]) <- paste0(colnames(found[[i]]), "[", at[i], "]")
  as.data.frame(do.call(cbind, found), optional = TRUE)
}

as_draws.pgbb_release <- function(x, ...) {
  if (!requireNamespace("posterior", quietly = TRUE)) stop("as_draws needs the package posterior: install it first")
  posterior::as_draws_df(as.data.frame(x, ...))
}
