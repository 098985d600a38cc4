"""`python -m pyramid_bert` is `pyramid-bert`."""

import sys

from .cli import main

sys.exit(main())
