# What R users expect of a fit, for a release: print, summary, confint, plot, and draws as a data frame or for 'posterior'.

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

summary.pgbb_release <- function(object, tau = NULL, level = .95, draws = 2000, seed = 0, ...) {
  if (!is.numeric(level) || length(level) != 1 || is.na(level) || level <= 0 || level >= 1)
    stop("level must be one number between 0 and 1, such as .95")
  at <- levels_of(object, tau)
  found <- seeded(seed, pgbb_sample(object, draws, at))
  ends <- c((1 - level) / 2, (1 + level) / 2)
  rows <- lapply(seq_along(found), function(i) {
    ends <- t(apply(found[[i]], 2, quantile, ends, names = FALSE))
    row <- data.frame(coefficient = colnames(found[[i]]), mean = colMeans(found[[i]]), sd = apply(found[[i]], 2, sd),
                      lower = ends[, 1], upper = ends[, 2], row.names = NULL)
    if (is.null(at)) row else cbind(tau = at[i], row)
  })
  structure(do.call(rbind, rows), class = c("pgbb_summary", "data.frame"), level = level)
}

print.pgbb_summary <- function(x, digits = 4, ...) {
  print.data.frame(format(as.data.frame(unclass(x)), digits = digits), row.names = FALSE)
  cat(sprintf("%g %% intervals; they include privacy noise where the method says so\n", 100 * attr(x, "level")))
  invisible(x)
}

print.pgbb_release <- function(x, ...) {
  claim <- x$certificate
  cat(if (is.null(x$model$formula)) paste(x$model$kind, "model") else x$model$formula, "\n", sep = "")
  cat("method: ", if (is.null(x$method)) "not named in the file" else x$method, "\n", sep = "")
  if (isTRUE(claim$non_private) || claim$randomness != "operating system") cat("NOT PRIVATE\n") else
    cat(sprintf("epsilon = %g, delta = %g (%s)\n", claim$epsilon, claim$delta, claim$adjacency))
  print(summary(x, ...))
  cat("hashes, epsilon and what is not identified: pgbb verify, pgbb show\n")
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
  place <- rev(seq_along(labels)); old <- par(mar = c(4, 9, 2, 1)); on.exit(par(old))
  plot(range(table$lower, table$upper, 0), range(place) + c(-.5, .5), type = "n", yaxt = "n", ylab = "",
       xlab = sprintf("mean and %g %% interval", 100 * level), ...)
  abline(v = 0, lty = 3)
  segments(table$lower, place, table$upper, place, lwd = 2)
  points(table$mean, place, pch = 19)
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
