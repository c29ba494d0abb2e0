"""What a fit will cost and how precise it will be, by public arithmetic; never opens data."""
