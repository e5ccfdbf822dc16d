"""Synchronous classes, from `onceward.client`. Written by `make generate`."""
