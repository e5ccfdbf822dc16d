"""Synchronous classes, from `onceward.app`. Written by `make generate`."""
