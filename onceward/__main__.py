"""Entry point of `python -m onceward`: runs the `onceward` command."""

import sys

from onceward.cli import main

sys.exit(main())
