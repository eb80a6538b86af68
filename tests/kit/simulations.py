"""Builders for simulations: a small state, a proposal."""

from collections.abc import Mapping

from ledger.chaincode.values import Timestamp, TransactionContext
from ledger.core.names import BlockNumber, TxId, TxIndex
from ledger.core.state import Entry, Version, public_key
from tests.kit.recorded import RecordedState

TX_ID = TxId("ab" * 32)


def make_state(namespace: str, values: Mapping[str, bytes]) -> RecordedState:
    """Make a state whose entry number n was written by transaction n of block 3."""
    return RecordedState(
        {
            public_key(namespace, key): Entry(value, Version(BlockNumber(3), TxIndex(index)))
            for index, (key, value) in enumerate(values.items())
        }
    )


def make_proposal(
    *args: str | bytes, creator: bytes = b"", transient: Mapping[str, bytes] | None = None, is_init: bool = False
) -> TransactionContext:
    """Make a proposal with these arguments."""
    return TransactionContext(
        TX_ID,
        "channel",
        creator,
        Timestamp(1_700_000_000, 5_000_000),
        tuple(arg.encode() if isinstance(arg, str) else arg for arg in args),
        transient=transient or {},
        is_init=is_init,
    )
