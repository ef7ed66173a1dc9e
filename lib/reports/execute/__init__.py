"""Execute one notebook as its pipeline stage declares it: `python -m lib.reports.execute 01_policy_zoo`.

`stage` reads what the stage declares and holds it against the notebook, `clean` makes the copies that
stages depend on, `reasons` says why DVC runs the stage, `engine` drives the kernel through papermill,
`progress` talks to the terminal, `scrub` takes out whatever differs between two runs, and `lesson` ties
them together. Left out: anything about what a notebook computes.
"""

import sys

# jsonschema, which nbformat imports, reads a grammar of web addresses as it starts: seconds in every process, for a
# format that notebooks do not have. It does without where the package is missing.
sys.modules.setdefault("rfc3987_syntax", None)
