"""The app of the shop."""
