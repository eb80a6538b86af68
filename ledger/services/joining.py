"""What does a peer give to those who join?  Its latest valid checkpoint and everything under it, piece by piece.

Each question is answered from the ledger alone, whoever asks; the joiner checks every piece itself. While somebody
joins, the block at the checkpoint is pinned, for a bounded time: it stays whole even if a later checkpoint becomes
valid and is pruned on. The state of a checkpoint is cut into chunks when the first joiner asks for it, in a thread of
its own: until that is done, whoever asks hears that it is under way, and asks again.

Everything here may wait for the disk: it is called in an executor.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from ledger.core.checkpoint import CheckpointProof
from ledger.core.errors import Busy, NotFound
from ledger.core.joining import BlockHead, JoinOffer, StateChunk
from ledger.core.names import BlockNumber
from ledger.core.vblock import Leaf
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.serving import CHECKPOINTS_MAX, StateChunks

ANSWER_BYTES_WANTED = 1 << 20
"""Size at which an answer about many blocks ends."""

HEAD_BYTES, LEAF_BYTES = 200, 40
"""Size of a head, and of a leaf without its id, at most."""

PIN_TIMEOUT_S = 600.0
"""How long a joiner may take, after its last question for an offer."""

CUT_WAIT_S = 2.0
"""How long an answer waits for the state to be cut before it says that this is under way."""


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
        self._cutter = ThreadPoolExecutor(1, "cut")
        self._lock = Lock()
        self._cutting: tuple[BlockNumber, Future[int]] | None = None
        self._pins: dict[BlockNumber, tuple[int, float]] = {}

    def offer(self) -> JoinOffer:
        """Offer the latest valid checkpoint, its state cut into chunks.

        Raises:
            NotFound: None is valid yet.
            Busy: Its state is being cut; ask again.
            StorageFailed: The disk failed.
        """
        proof = self._latest_valid()
        if proof is None:
            raise NotFound(f"no checkpoint of {self._store.channel_id} is valid yet: nothing can be joined from here")
        number = proof.statement.number
        roots = self._store.roots(number)
        if roots is None:
            raise NotFound(f"checkpoint {number} of {self._store.channel_id} is valid, but not computed here")
        self._hold(number)
        bits = self._bits(number)
        numbers = tuple(one.number for one in self._store.config_blocks() if one.number <= number)
        return JoinOffer(self._store.channel_id, proof, roots.state_root, numbers, bits, self._interval_blocks)

    def _bits(self, number: BlockNumber) -> int:
        """Give the bits of a checkpoint's chunks; begin to cut, or wait a while, where they are not made."""
        known = self._chunks.bits(number)
        if known is not None:
            return known
        with self._lock:
            cutting = self._cutting
            if cutting is None or cutting[0] != number:
                if cutting is not None and not cutting[1].done():
                    raise Busy(f"the state at block {cutting[0]} is being cut, then that at block {number} is")
                cutting = self._cutting = number, self._cutter.submit(self._cut, number)
        try:
            return cutting[1].result(CUT_WAIT_S)
        except TimeoutError as error:
            raise Busy(f"the state at block {number} is being cut into chunks") from error
        except BaseException:
            with self._lock:
                self._cutting = None  # It failed: the next question tries again.
            raise

    def _cut(self, number: BlockNumber) -> int:
        with self._store.checkpoint_view(number) as view:
            return self._chunks.make(view)

    def _hold(self, number: BlockNumber) -> None:
        """Pin the block at the checkpoint that is being joined from."""
        now = time.monotonic()
        with self._lock:
            held = self._pins.get(number)
            if held is not None and now - held[1] < PIN_TIMEOUT_S / 2:
                return
            if held is not None:
                self._store.unpin(held[0])
            pin_id = self._store.pin(number, f"joiners from checkpoint {number}", PIN_TIMEOUT_S)
            self._pins[number] = pin_id, now
            for old in sorted(self._pins)[:-CHECKPOINTS_MAX]:
                self._store.unpin(self._pins.pop(old)[0])

    def config_block(self, number: BlockNumber) -> bytes:
        """Give a config block whole; raises `NotFound`."""
        return self._store.config_block_bytes(number)

    def checkpoint_block(self, number: BlockNumber) -> bytes:
        """Give the block at a checkpoint whole; raises `NotFound`, `Pruned`."""
        return self._store.block_bytes(number)

    def heads(self, number: BlockNumber, last: BlockNumber) -> tuple[BlockHead, ...]:
        """Give the heads of blocks `[number, last]`, as many as fit; raises `NotFound`."""
        found: list[BlockHead] = []
        for each in self._numbers(number, last):
            stored, summary = self._store.stored_block(each), self._store.summary(each)
            head = BlockHead(
                each, stored.header.previous_hash, stored.header.data_hash, len(stored.verdicts),
                stored.verdicts.count(0), summary.tx_root, stored.commit_hash,
            )  # fmt: skip
            found.append(head)
            if len(found) * HEAD_BYTES >= ANSWER_BYTES_WANTED:
                break
        return tuple(found)

    def leaves(self, number: BlockNumber, last: BlockNumber) -> tuple[tuple[BlockNumber, tuple[Leaf, ...]], ...]:
        """Give the leaves of blocks `[number, last]`, as many as fit; raises `NotFound`."""
        found: list[tuple[BlockNumber, tuple[Leaf, ...]]] = []
        size = 0
        for each in self._numbers(number, last):
            leaves = self._store.stored_block(each).leaves
            found.append((each, leaves))
            size += sum(LEAF_BYTES + len(leaf.tx_id) for leaf in leaves)
            if size >= ANSWER_BYTES_WANTED:
                break
        return tuple(found)

    def _numbers(self, number: BlockNumber, last: BlockNumber) -> Iterator[BlockNumber]:
        end = min(last, self._store.height - 1)
        if number > end:
            raise NotFound(f"block {number} is above {end}, the last one that is served of those up to {last}")
        return map(BlockNumber, range(number, end + 1))

    def chunk(self, checkpoint: BlockNumber, index: int) -> StateChunk:
        """Give a chunk of the state at a checkpoint that was offered; raises `NotFound`."""
        return self._chunks.chunk(checkpoint, index)

    def close(self) -> None:
        """Let the cutting under way end."""
        self._chunks.stop()
        self._cutter.shutdown(cancel_futures=True)


__all__ = ["JoinSource"]
