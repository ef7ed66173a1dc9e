"""Claims of the papers as machine-checked statements: what each says, what tests it here, and how it came out.

entries      the file of claims, data/claims/claims.yaml, checked as it is read
expressions  the small language of tests, and functions, the few that a test may call
records      estimates that a claim asks of records, in pairs
metrics      what the lessons measured, and quantities, arithmetic of estimates with their intervals
verdicts     holds, does not hold, undecided, compared, not testable
chance       how many would hold by luck, and which still do with all of them asked at once
tally, lists, pictures, board, told   counts and metrics, tables, figures, the board that filters, numbers as text
"""
