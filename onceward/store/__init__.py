"""Transactions on an engine: validated reads, shared commits and user records."""

from onceward.store.store import Store
from onceward.store.transaction import Transaction

__all__ = ["Store", "Transaction"]
