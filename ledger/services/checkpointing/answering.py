"""What does a peer tell one that diverged?  vBlocks under a checkpoint, and its state there, piece by piece.

Each answer is made from the ledger alone and says only what any peer of the channel may see: hashes, and entries of the
public state and of hashed private data. Whoever asks checks each of them.

The state at a checkpoint can be shown as long as it is kept, which is that at the latest valid one. So the first
question for it holds it for a while: a comparison that has begun is not disturbed by the next checkpoint. Where the one
that is asked for is gone, the latest valid one is offered in its place.

Everything here may wait for the disk: it is called in an executor.
"""

import time
from threading import Lock

from ledger.core.divergence import LogAnswer, StateOffer
from ledger.core.errors import Busy, NotFound
from ledger.core.merkle import inclusion_proof
from ledger.core.names import BlockNumber
from ledger.core.state import Entry, StateKey
from ledger.core.tree_descent import Branch, Place, Subtree
from ledger.storage.checkpoint_state import CheckpointStateView
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.ledger_store import LedgerStore

ANSWER_BYTES_WANTED = 1 << 20
"""Size at which an answer about many things ends."""

SUBTREE_BYTES = 40
"""Size of a node in an answer, about."""

HOLD_S = 600.0
"""How long a state is held after the last question about it."""

HELD_MAX = 2
"""States that are held at once."""

WALK_REST = 4.0
"""After a walk over the whole state, so many times as long as it took passes before the next."""


class CompareSource:
    """Answers for one channel.

    Args:
        store: The channel's ledger.
        records: Its checkpoints.
    """

    def __init__(self, store: LedgerStore, records: CheckpointStore) -> None:
        """Hold nothing yet."""
        self._store = store
        self._records = records
        self._lock = Lock()
        self._held: dict[BlockNumber, tuple[CheckpointStateView, float]] = {}
        self._walking = Lock()
        self._next_walk = 0.0

    def log_entry(self, checkpoint: BlockNumber, number: BlockNumber) -> LogAnswer:
        """Give a vBlock under the log of a checkpoint; raises `NotFound`."""
        if self._store.roots(checkpoint) is None:
            raise NotFound(f"no checkpoint at block {checkpoint} was computed here")
        if number > checkpoint:
            raise NotFound(f"vBlock {number} is above checkpoint {checkpoint}")
        path = inclusion_proof(number, checkpoint + 1, self._store.log_node)
        return LogAnswer(self._store.vblock(number).header, path)

    def state(self, checkpoint: BlockNumber) -> StateOffer:
        """Offer the state at a checkpoint, or at the latest valid one, and hold it.

        Raises:
            NotFound: There is none that can be shown.
            Busy: Other states are held.
        """
        latest = self._records.latest_valid
        numbers = [checkpoint] if latest is None else [checkpoint, latest.statement.number]
        for number in numbers:
            proof = self._records.proof(number)
            if proof is None:
                continue
            try:
                view = self._view(number)
            except NotFound:
                continue
            return StateOffer(proof, view.roots)
        raise NotFound(f"the state at checkpoint {checkpoint} can't be shown here, and no later valid one")

    def subtrees(self, checkpoint: BlockNumber, places: tuple[Place, ...]) -> tuple[Subtree, ...]:
        """Show what is below places, as many as fit; raises `NotFound`, `Busy`."""
        view, shown, size = self._view(checkpoint), [], 0
        for place in places:
            shown.append(view.shown(place))
            size += _size(shown[-1])
            if size >= ANSWER_BYTES_WANTED:
                break
        return tuple(shown)

    def entries(
        self, checkpoint: BlockNumber, keys: tuple[StateKey, ...], paths: tuple[bytes, ...]
    ) -> tuple[tuple[StateKey, Entry], ...]:
        """Show entries by their keys and by their paths, as many as fit.

        Raises:
            NotFound: The state is not held any more.
            Busy: Another walk over the state, which paths take, is under way, or was just now.
        """
        view = self._view(checkpoint)
        found = [(key, entry) for key in keys if (entry := view.get(key)) is not None]
        if paths:
            found += self._walked(view, paths)
        size = count = 0
        for key, entry in found:  # One at least, whatever its size.
            size += len(key.key) + len(entry.value) + len(entry.metadata)
            count += 1
            if size >= ANSWER_BYTES_WANTED:
                break
        return tuple(found[:count])

    def _walked(self, view: CheckpointStateView, paths: tuple[bytes, ...]) -> list[tuple[StateKey, Entry]]:
        """Look for entries by their paths: one walk at a time, and a rest behind each."""
        if time.monotonic() < self._next_walk or not self._walking.acquire(blocking=False):
            raise Busy("the state is being walked for somebody, or was just now")
        began = time.monotonic()
        try:
            return list(view.at_paths(paths).values())
        finally:
            ended = time.monotonic()
            self._next_walk = ended + WALK_REST * (ended - began)
            self._walking.release()

    # -- holding

    def _view(self, number: BlockNumber) -> CheckpointStateView:
        """Give the state at a checkpoint, held from now on."""
        with self._lock:
            self._let_go(time.monotonic())
            held = self._held.get(number)
            if held is None and len(self._held) >= HELD_MAX:
                raise Busy(f"states at {', '.join(map(str, self._held))} are held for others")
            view = held[0] if held is not None else self._store.checkpoint_view(number)
            self._held[number] = view, time.monotonic() + HOLD_S
            return view

    def sweep(self) -> None:
        """Let go of what nobody asked about for a while; called from time to time."""
        with self._lock:
            self._let_go(time.monotonic())

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._let_go(float("inf"))

    def _let_go(self, now: float) -> None:
        for number in [number for number, (_, end) in self._held.items() if end < now]:
            self._held.pop(number)[0].close()


def _size(subtree: Subtree) -> int:
    """Estimate the size of a subtree as it travels."""
    waiting: list[Subtree] = [subtree]
    count = 0
    while waiting:
        one = waiting.pop()
        count += 1
        if isinstance(one, Branch):
            waiting += [one.left, one.right]
    return SUBTREE_BYTES * count


__all__ = ["CompareSource"]
