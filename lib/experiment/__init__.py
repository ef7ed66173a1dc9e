"""How experiments run: jobs that resume, random streams, files, and the results table.

`sweep` runs jobs and names them by their settings; `seeds` gives every random stream by name; `artifacts` reads and
writes files; `results_table` has the columns that all systems share; `run_context` is what carries a study out.
"""
