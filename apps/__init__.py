"""Example applications on the public API: read them to learn it, run them, or take them apart.

They run from a checkout of the repository, and are not part of the installed package.
"""
