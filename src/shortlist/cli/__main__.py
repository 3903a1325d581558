"""`python -m shortlist.cli`: the command line, where the program itself is not on the path."""

import sys

from shortlist.cli import main

sys.exit(main())
