"""Claims of the papers as machine-checked statements: what each says, what tests it here, and how it came out."""
