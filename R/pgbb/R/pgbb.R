# Draws from a pgbb release file in R; needs jsonlite and nothing else. Draws cost no privacy.
#   source("pgbb.R")   # or library(pgbb), which also has print, summary, confint, plot and as_draws
#   release <- pgbb_load("schooling.pgbb")
#   draws <- pgbb_sample(release, 2000, tau = c(.1, .9))   # a list, one matrix (draws x coefficients) a level, joint
#   t(apply(draws[[1]], 2, quantile, c(.025, .975)))
# It reads payloads "local", "generator" and "draws". It does not check hashes or ε: run `pgbb verify` for that.

pgbb_load <- function(path) {
  if (!is.character(path) || length(path) != 1 || !file.exists(path)) stop("there is no release file at ", format(path))
  folder <- tempfile("pgbb"); on.exit(unlink(folder, recursive = TRUE))
  if (!"manifest.json" %in% basename(as.character(suppressWarnings(unzip(path, exdir = folder))))) stop(path, " is not a release file")
  json <- function(name) jsonlite::fromJSON(file.path(folder, name))
  manifest <- json("manifest.json"); payload <- json("payload.json")
  if (!identical(manifest$format, "pgbb-release") || manifest$format_version > 1)
    stop("not a release, or of a newer format than this reader knows: use a newer pgbb.R")
  if (!payload$kind %in% c("local", "generator", "draws")) stop("this reader knows no payload of kind ", payload$kind)
  tensors <- read_safetensors(file.path(folder, "payload.safetensors"))
  made <- if (file.exists(file.path(folder, "diagnostics.json"))) json("diagnostics.json")$method
  structure(c(payload, list(model = json("model.json"), certificate = json("certificate.json"), tensors = tensors,
                            schema = json("schema.json")$columns, method = if (is.null(made) && payload$kind == "generator") "pgbb" else made)), class = "pgbb_release")
}

read_safetensors <- function(path) {
  file <- file(path, "rb"); on.exit(close(file))
  size <- readBin(file, "integer", 2, endian = "little")[1]  # 64 bits, of which a header needs 32
  header <- jsonlite::fromJSON(rawToChar(readBin(file, "raw", size)))
  bytes <- readBin(file, "raw", file.size(path))
  lapply(header[names(header) != "__metadata__"], function(part) {
    width <- c(F64 = 8, F32 = 4)[[part$dtype]]
    here <- bytes[seq_len(diff(part$data_offsets)) + part$data_offsets[1]]
    values <- readBin(here, "double", length(here) / width, size = width, endian = "little")
    aperm(array(values, rev(part$shape)))  # rows vary slowest in the file
  })
}

pgbb_sample <- function(release, m, tau = release$model$index$values) {
  model <- release$model
  if (!is.numeric(m) || length(m) != 1 || is.na(m) || m < 1) stop("m, the number of draws, must be at least 1")
  if (is.null(model$index)) tau <- NULL else if (is.null(tau)) stop("tau must be given: the release covers an interval")
  range <- c(model$index$values, model$index$low, model$index$high)
  known <- function(v) if (is.null(model$index$values)) v >= range[1] && v <= range[2] else min(abs(range - v)) < 1e-9
  if (!all(unlist(lapply(tau, known)))) stop("tau is not among, or not between, ", paste(range, collapse = ", "))
  draw <- list(local = draw_local, generator = draw_generator, draws = draw_stored)[[release$kind]]
  units <- function(theta) sweep(theta %*% t(model$transform), 2, model$offset, "+")
  lapply(draw(release, m, tau), function(theta) matrix(units(theta), m, dimnames = list(NULL, model$names)))
}

# base + noise in isometric coordinates, with eigenvalues of at least `least`
perturbed <- function(base, sd, least) {
  if (!any(sd > 0)) return(base)
  noise <- 0 * base; noise[lower.tri(noise, TRUE)] <- sd * rnorm(length(sd))  # its columns are rows of the upper
  noise <- (noise + t(noise)) / ifelse(row(base) == col(base), 2, sqrt(2))
  e <- eigen(base + noise, TRUE)
  if (min(e$values) >= least) base + noise else e$vectors %*% (pmax(e$values, least) * t(e$vectors))
}

# weights of the knots at each level
mix_of <- function(x, tau) {
  knots <- seq_len(nrow(x$center)); logit <- function(p) log(p / (1 - p))
  weights <- function(v) if (min(abs(x$knots - v)) < 1e-9) as.numeric(knots == which.min(abs(x$knots - v))) else
    sapply(knots, function(j) approx(logit(x$knots), knots == j, logit(v))$y)
  if (is.null(tau)) list(1) else lapply(tau, weights)
}

# sd of draws along directions that are not identified; 0 where there are none
vague_of <- function(x) {
  push <- function(k) max(sqrt(diag(x$frame %*% x$free[k, , ] %*% t(x$frame))) / (x$high - x$low)); open <- which(apply(x$free != 0, 1, any))
  if (length(open)) 3 / min(sapply(open, push)) else 0
}

draw_local <- function(release, m, tau) {
  x <- release$tensors; d <- nrow(x$frame); knots <- seq_len(nrow(x$center)); floor <- release$settings$floor
  at <- function(name, j) matrix(x[[name]][j, , ], d); mix <- mix_of(x, tau); vague <- vague_of(x)
  least <- function(a) { v <- eigen(a, TRUE)$values; floor * min(v[v > 1e-12 * max(v, 0)], max(v)) }
  lowest <- sapply(knots, function(j) least(at("curvature", j))); spread <- least(x$sampling)
  grid <- sort(tau); ends <- length(grid) + 1; out <- lapply(mix, function(w) matrix(0, m, d))
  for (r in seq_len(m)) {
    noise <- matrix(rnorm(ncol(x$privacy) * d), ncol = d); loose <- vague * rnorm(d)
    bent <- lapply(knots, function(j) perturbed(at("curvature", j), x$curvature_sd[j, ], lowest[j]))
    e <- eigen(perturbed(x$sampling, x$sampling_sd, spread), TRUE)
    root <- e$vectors %*% (sqrt(pmax(e$values, 0)) * t(e$vectors))
    motion <- matrix(apply(sqrt(diff(c(0, grid, 1))) * matrix(rnorm(ends * d), ends), 2, cumsum), ends)  # Brownian
    steps <- lapply(knots, function(j) -solve(bent[[j]], x$gradient[j, ] + c(x$privacy[j, ] %*% noise)))
    steps <- lapply(knots, function(j) steps[[j]] + c(at("free", j) %*% (loose - steps[[j]])))
    for (i in seq_along(mix)) {
      total <- function(list) Reduce(`+`, Map(`*`, mix[[i]], list))
      bridge <- if (is.null(tau)) rnorm(d) else motion[match(tau[i], grid), ] - tau[i] * motion[ends, ]
      sampled <- -solve(total(bent), c(root %*% bridge))
      moved <- sampled - c(total(lapply(knots, function(j) at("free", j))) %*% sampled) + total(steps)
      if (!is.null(x$bend)) {  # the root of a gradient that bends, and a skewed sampling error
        usual <- solve(at("curvature", 1)); moved <- moved + x$skew * (sampled^2 - diag(usual %*% x$sampling %*% usual))
        moved <- moved / pmax(1 + x$bend * moved, 0.05)
      }
      out[[i]][r, ] <- pmin(pmax(c(mix[[i]] %*% x$center) + c(x$frame %*% moved), x$low), x$high)
    }
  }
  out
}

draw_generator <- function(release, m, tau) {
  s <- release$settings; t0 <- release$tensors; S <- s$blocks + s$pseudo_blocks
  shape <- c(rep(if (s$blocks > 1) s$concentration else 1, s$blocks), rep(s$alpha / s$pseudo_blocks, s$pseudo_blocks))
  u <- matrix(rgamma(m * S, rep(shape, each = m)), m); u <- u / rowSums(u)
  lapply(if (is.null(tau)) list(NULL) else tau, function(v) {
    x <- h <- sweep(sweep(cbind(u, v), 2, t0$input_shift), 2, t0$input_scale, "/")
    part <- function(name, i) t0[[paste0(s$default_iterate, "/", name, i)]]
    last <- 0; while (!is.null(part("kernel", last + 1))) last <- last + 1
    for (i in seq_len(last) - 1) h <- cbind(pmax(sweep(h %*% part("kernel", i), 2, part("bias", i), "+"), 0), x)
    h <- sweep(h %*% part("kernel", last), 2, part("bias", last), "+")
    h <- if (isTRUE(s$clipped)) pmin(pmax(h, -1), 1) else tanh(h)
    sweep(sweep(h, 2, t0$radius, "*"), 2, t0$center, "+")
  })
}

draw_stored <- function(release, m, tau) {
  draws <- release$tensors$draws; size <- rev(dim(draws))[2]; rows <- sample.int(size, m, replace = m > size)
  if (is.null(tau)) return(list(draws[rows, , drop = FALSE]))
  lapply(tau, function(v) matrix(draws[which.min(abs(release$settings$index_values - v)), rows, ], m))
}
