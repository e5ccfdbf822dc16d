"""Transactions on an engine: reads that are validated, shared commits, and user records."""

from onceward.store.store import Store
from onceward.store.transaction import Transaction

__all__ = ["Store", "Transaction"]
