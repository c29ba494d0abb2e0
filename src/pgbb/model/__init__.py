"""What is estimated, and what is public about the data: schema, formula, models. Sees no value of a record."""
