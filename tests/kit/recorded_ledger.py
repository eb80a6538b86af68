"""A ledger that holds the first blocks of a recorded channel in memory, for what reads ledgers."""

from collections.abc import Iterator

from ledger.core.errors import NotFound
from ledger.core.hashing import header_hash
from ledger.core.names import ZERO_DIGEST, BlockNumber, Digest, TxId, TxIndex, Verdict
from ledger.core.state import HistoryEntry, LedgerView, StateKey, TxPlace
from ledger.core.vblock import VBlock
from ledger.wire.block import decode_block
from ledger.wire.transaction import decode_transaction
from tests.kit.paths import VECTORS
from tests.kit.recorded import RecordedState, recorded_states


class RecordedView(RecordedState):
    """The state of a recorded channel at one height, with what else a view tells."""

    commit_hash = b""

    def has_transaction(self, tx_id: TxId) -> bool:
        raise NotImplementedError("simulations ask for no transaction")

    def expiring(self, number: BlockNumber) -> Iterator[StateKey]:
        raise NotImplementedError("simulations ask for no expiry")


class RecordedLedger:
    """The first `height` blocks of a recorded channel.

    Args:
        channel: Name of its folder.
        height: Number of blocks.
    """

    def __init__(self, channel: str, height: int) -> None:
        self.height = height
        self.first_block = BlockNumber(0)
        self.joined_at: BlockNumber | None = None
        self.vblock_hash: Digest = ZERO_DIGEST
        self._view = RecordedView(recorded_states(channel)[height].entries)
        self._blocks = [(VECTORS / channel / "blocks" / f"{number:06d}.block").read_bytes() for number in range(height)]

    @property
    def block_hash(self) -> Digest:
        header = decode_block(self._blocks[-1]).header
        return header_hash(header.number, header.previous_hash, header.data_hash)

    def view(self) -> LedgerView:
        return self._view

    def block_bytes(self, number: BlockNumber) -> bytes:
        if not 0 <= number < self.height:
            raise NotFound(f"no block {number}")
        return self._blocks[number]

    def config_block_bytes(self, number: BlockNumber) -> bytes:
        return self.block_bytes(number)

    def vblock(self, number: BlockNumber) -> VBlock:
        raise NotImplementedError("nothing here asks for vBlocks")

    def places(self, tx_id: TxId) -> tuple[TxPlace, ...]:
        return tuple(place for place, envelope in self._envelopes() if decode_transaction(envelope).tx_id == tx_id)

    def envelope(self, place: TxPlace) -> bytes:
        return decode_block(self._blocks[place.block]).envelopes[place.index]

    def history(self, namespace: str, key: str) -> Iterator[HistoryEntry]:
        for place, envelope in reversed(list(self._envelopes())):
            action = decode_transaction(envelope).action
            if place.verdict == Verdict.VALID and action is not None:
                for entry in action.rwset.namespaces:
                    if entry.namespace == namespace and any(write.key == key for write in entry.writes):
                        yield HistoryEntry(place.block, place.index)

    def _envelopes(self) -> Iterator[tuple[TxPlace, bytes]]:
        for raw in self._blocks:
            block = decode_block(raw)
            for index, envelope in enumerate(block.envelopes):
                yield TxPlace(block.number, TxIndex(index), block.metadata[2][index]), envelope
