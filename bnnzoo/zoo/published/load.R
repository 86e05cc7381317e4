# Read cards, data and draws of the reference set; needs jsonlite, and posterior for draws. Run in the folder of this file.

card <- function(name) jsonlite::fromJSON(file.path("cards", paste0(name, ".json")))

data_of <- function(name) {
  path <- card(name)$data
  if (is.null(path)) stop("The data of ", name, " are not in this folder: its card names them under 'needs'.", call. = FALSE)
  jsonlite::fromJSON(path)
}

# Draws of E[y | x, theta], one variable for each row, or of class probabilities, one for each row and class.
draws <- function(name) {
  table <- read.csv(card(name)$reference$csv, check.names = FALSE)
  names(table)[1:2] <- c(".chain", ".iteration")
  table$.draw <- seq_len(nrow(table))
  posterior::as_draws_df(table)
}

# Moments, diagnostics and quantiles of each prediction, or the entropies of classes.
table_of <- function(name, kind = "summary") read.csv(card(name)$reference[[kind]])

covariance <- function(name) as.matrix(read.csv(card(name)$reference$covariance, check.names = FALSE))
