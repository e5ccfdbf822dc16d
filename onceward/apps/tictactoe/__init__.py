"""Winner-stays tic-tac-toe: so far its rules."""
