"""What does a peer give to those who join?  Its latest valid checkpoint and everything under it, piece by piece.

Each question is answered from the ledger alone, whoever asks; the joiner checks every piece itself. While somebody
joins, the block at the checkpoint is pinned, for a bounded time: it stays whole even if a later checkpoint becomes
valid and is pruned on.

Everything here may wait for the disk: it is called in an executor.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ledger.core.checkpoint import CheckpointProof
from ledger.core.errors import NotFound
from ledger.core.joining import BlockHead, JoinOffer, StateChunk
from ledger.core.names import BlockNumber
from ledger.core.vblock import Leaf
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.serving import StateChunks

ANSWER_BYTES_WANTED = 1 << 20
"""Size at which an answer about many blocks ends."""

PIN_TIMEOUT_S = 600.0
"""How long a joiner may take, after its last question for an offer."""


class JoinSource:
    """Answers joiners of one channel.

    Args:
        store: The channel's ledger.
        latest_valid: Gives the proof of the latest checkpoint that is valid for everybody.
        interval_blocks: CHK of this peer.
        directory: Folder for chunks, which nothing else uses.
    """

    def __init__(
        self,
        store: LedgerStore,
        latest_valid: Callable[[], CheckpointProof | None],
        interval_blocks: int,
        directory: Path,
    ) -> None:
        """Take the parts."""
        self._store = store
        self._latest_valid = latest_valid
        self._interval_blocks = interval_blocks
        self._chunks = StateChunks(directory)
        self._pin: tuple[BlockNumber, int, float] | None = None

    def offer(self) -> JoinOffer:
        """Offer the latest valid checkpoint, its state cut into chunks.

        Raises:
            NotFound: None is valid yet.
            StorageFailed: The disk failed.
        """
        proof = self._latest_valid()
        if proof is None:
            raise NotFound(f"no checkpoint of {self._store.channel_id} is valid yet: nothing can be joined from here")
        number = proof.statement.number
        with self._store.checkpoint_view(number) as view:
            bits = self._chunks.make(view)
            state_root = view.roots.state_root
        self._hold(number)
        numbers = tuple(one.number for one in self._store.config_blocks() if one.number <= number)
        return JoinOffer(self._store.channel_id, proof, state_root, numbers, bits, self._interval_blocks)

    def _hold(self, number: BlockNumber) -> None:
        """Pin the block at the checkpoint that is being joined from."""
        now = time.monotonic()
        if self._pin is not None:
            held, pin_id, since = self._pin
            if held == number and now - since < PIN_TIMEOUT_S / 2:
                return
            if held == number:
                self._store.unpin(pin_id)
        self._pin = (number, self._store.pin(number, f"joiners from checkpoint {number}", PIN_TIMEOUT_S), now)

    def config_block(self, number: BlockNumber) -> bytes:
        """Give a config block whole; raises `NotFound`."""
        return self._store.config_block_bytes(number)

    def checkpoint_block(self, number: BlockNumber) -> bytes:
        """Give the block at a checkpoint whole; raises `NotFound`, `Pruned`."""
        return self._store.block_bytes(number)

    def heads(self, number: BlockNumber, checkpoint: BlockNumber) -> tuple[BlockHead, ...]:
        """Give heads of blocks from a number on, at most up to a checkpoint, as many as fit."""
        found: list[BlockHead] = []
        size = 0
        for each in self._numbers(number, checkpoint):
            stored, summary = self._store.stored_block(each), self._store.summary(each)
            head = BlockHead(
                each, stored.header.previous_hash, stored.header.data_hash, len(stored.verdicts),
                stored.verdicts.count(0), summary.tx_root, stored.commit_hash,
            )  # fmt: skip
            found.append(head)
            size += 200
            if size >= ANSWER_BYTES_WANTED:
                break
        return tuple(found)

    def leaves(self, number: BlockNumber, checkpoint: BlockNumber) -> tuple[tuple[BlockNumber, tuple[Leaf, ...]], ...]:
        """Give the leaves of blocks from a number on, at most up to a checkpoint, as many as fit."""
        found: list[tuple[BlockNumber, tuple[Leaf, ...]]] = []
        size = 0
        for each in self._numbers(number, checkpoint):
            leaves = self._store.stored_block(each).leaves
            found.append((each, leaves))
            size += sum(36 + len(leaf.tx_id) for leaf in leaves)
            if size >= ANSWER_BYTES_WANTED:
                break
        return tuple(found)

    def _numbers(self, number: BlockNumber, checkpoint: BlockNumber) -> Iterator[BlockNumber]:
        last = min(checkpoint, self._store.height - 1)
        if number > last:
            raise NotFound(f"block {number} is above {last}, the last one that is served for checkpoint {checkpoint}")
        return map(BlockNumber, range(number, last + 1))

    def chunk(self, checkpoint: BlockNumber, index: int) -> StateChunk:
        """Give a chunk of the state at a checkpoint that was offered; raises `NotFound`."""
        return self._chunks.chunk(checkpoint, index)
