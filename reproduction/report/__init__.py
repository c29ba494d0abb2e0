"""Results beside the printed figures: `markdown` judges and writes, `page` and `figures` draw, `reasons` explains."""
