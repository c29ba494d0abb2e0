"""What several rooms compute with: compiled programs, threads, memory, Newton's method. Knows no model, no record."""
