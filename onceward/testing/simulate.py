"""Entry point of the simulator: `python -m onceward.testing.simulate --seeds 50000 --jobs 2`.

Only the command; `onceward.testing.simulate` is the function, in `onceward.testing.simulation`.
"""

from onceward.testing.simulation.command import main

if __name__ == "__main__":
    raise SystemExit(main())
