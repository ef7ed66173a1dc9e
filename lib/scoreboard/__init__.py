"""Claims of the papers as machine-checked statements: what each says, what tests it here, and how it came out.

claim             the file of claims, data/claims/claims.yaml, checked as it is read
expressions       the small language of tests, and paper_formulas, the few functions that a test may call
metrics           what the lessons measured
verdicts          holds, does not hold, equivalent, undecided, not open, untestable; or compared
decision_rule     one comparison, decided by its interval
multiple_testing  how many would hold by luck, and which still do with all of them tested at once
replication       two runs compared
counts, tables, figures, summary_figure, claim_cards, format   how all this is shown
"""
