"""Execute one notebook as its pipeline stage declares it: `python -m lib.reports.execute 01_policy_zoo`.

`dvc_stage` reads what the stage declares and compares it with the notebook, `source_check` finds what no page can take
before anything runs, `strip_outputs` makes the copies that stages depend on, `rerun_reasons` says why DVC runs the
stage, `papermill_engine` drives the kernel, `output_limits` cuts too much output, `figure_alt_texts` describes figures,
`progress` prints to the terminal, `normalise_outputs` takes out whatever differs between two runs, and
`execute_lesson` ties them together. Left out: anything about what a notebook computes.
"""

import sys

# jsonschema, which nbformat imports, reads a grammar of web addresses as it starts: seconds in every process, for a
# format that notebooks do not have. It does without where the package is missing.
sys.modules.setdefault("rfc3987_syntax", None)
