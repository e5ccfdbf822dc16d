"""Applications on the public API alone: read them to learn it, run them, or take them apart."""
