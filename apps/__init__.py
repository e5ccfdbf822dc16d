"""Example applications on the public API, to read, run and modify.

They run from a checkout of the repository and are not part of the installed package.
"""
