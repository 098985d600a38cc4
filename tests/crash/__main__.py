"""`python -m tests.crash`; see `runner`."""

import sys

from tests.crash.runner import main

if __name__ == "__main__":
    sys.exit(main())
