"""`python -m lib.routing`: says at once that it begins, for to read the programs of `lib.routing.own` takes seconds."""

import sys

if __name__ == "__main__":
    if not {"-h", "--help"} & set(sys.argv):
        print("reading programs ...", flush=True)
    from lib.routing.own import main

    raise SystemExit(main())
