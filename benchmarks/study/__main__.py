"""`python -m benchmarks.study`: what other processes are to import must not lie in here."""

import sys

from benchmarks.study.command import main

if __name__ == "__main__":
    sys.exit(main())
