"""`python -m onceward` is the `onceward` command."""

import sys

from onceward.cli import main

sys.exit(main())
