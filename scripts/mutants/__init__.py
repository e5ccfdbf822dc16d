"""Mutation testing of pure modules: `python -m scripts.mutants`."""
