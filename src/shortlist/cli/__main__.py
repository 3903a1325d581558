"""`python -m shortlist.cli`: the command line, where the program itself is not on the path."""

import sys

from shortlist.cli import main

if __name__ == "__main__":  # worker processes import this file
    sys.exit(main())
