"""How did a key come to its value?  Past changes out of the ledger's index and the envelopes that made them."""

from collections.abc import Iterator

from ledger.chaincode.values import KeyModification, Timestamp
from ledger.core.names import BlockNumber, Verdict
from ledger.core.ports import LedgerReader
from ledger.core.state import TxPlace
from ledger.wire.system_calls import payload_time
from ledger.wire.transaction import decode_transaction


class LedgerHistory:
    """History of one channel up to one height.

    Args:
        ledger: The channel's ledger, which may grow meanwhile.
        height: Number of blocks that are told of: those of the view that the simulation reads.
    """

    def __init__(self, ledger: LedgerReader, height: int) -> None:
        """Take the ledger."""
        self._ledger = ledger
        self._height = height

    def modifications(self, namespace: str, key: str) -> Iterator[KeyModification]:
        """Yield the changes of a public key by valid transactions, newest first; pruning takes none of them away."""
        for block, index in self._ledger.history(namespace, key):
            if block >= BlockNumber(self._height):
                continue
            transaction = decode_transaction(self._ledger.envelope(TxPlace(block, index, Verdict.VALID)))
            assert transaction.action is not None, "a valid transaction that wrote has an action"
            writes = [
                write
                for entry in transaction.action.rwset.namespaces
                if entry.namespace == namespace
                for write in entry.writes
                if write.key == key
            ]
            assert writes, "the history names a transaction that wrote the key"
            last = writes[-1]
            value = b"" if last.deletes else last.value
            time = Timestamp(*payload_time(transaction.payload))
            yield KeyModification(transaction.tx_id, value, time, last.deletes)
