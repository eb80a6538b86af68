"""Is a transaction valid in itself, and is it endorsed as the state before its block asks for?  (stub)"""

from dataclasses import dataclass

from ledger.core.transaction import Transaction


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction whose signatures were checked."""

    transaction: Transaction
