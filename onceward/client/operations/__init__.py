"""Methods of the client, one class for each noun. Written by `make generate`."""
