"""Entry point of the simulator: `python -m onceward.testing.simulate --seeds 50000 --jobs 2`.

This module is only the command. The function `simulate` is in `onceward.testing.simulation`.
"""

from onceward.testing.simulation.command import main

if __name__ == "__main__":
    raise SystemExit(main())
