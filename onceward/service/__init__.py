"""What runs: the processes around the parts. Ownership is for speed, versions are for truth."""
