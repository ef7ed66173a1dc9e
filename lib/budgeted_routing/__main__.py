"""`python -m lib.budgeted_routing`: says at once that it begins, for to read the programs of
`lib.budgeted_routing.train_cli` takes seconds."""

import sys

if __name__ == "__main__":
    if not {"-h", "--help"} & set(sys.argv):
        print("reading programs ...", flush=True)
    from lib.budgeted_routing.train_cli import main

    raise SystemExit(main())
