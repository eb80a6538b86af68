"""How is a checkpointed state handed to joiners?  Cut into chunks once, in files that wait to be asked for.

The database has the entries in the order of their keys, a joiner wants them in chunks of the state tree. So the first
joiner of a checkpoint has the state sorted: one walk that counts, one that puts each entry into the file of its chunk.
The files are derived and belong to nobody: they are not synced, removed at the next start, and made again when they are
asked for.
"""

import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Lock

from ledger.core.encoding import Reader, lp
from ledger.core.errors import NotFound, StorageFailed
from ledger.core.joining import StateChunk, chunk_bits, chunk_of, chunk_path, chunk_proof
from ledger.core.names import BlockNumber
from ledger.core.state import Entry, StateKey
from ledger.core.state_tree import StateProof, path_of
from ledger.storage.checkpoint_state import CheckpointStateView
from ledger.storage.keys import entry_of, entry_value, state_key, state_key_of

BUFFERED_BYTES_MAX = 8 << 20
"""Entries that wait in memory for their files."""

CHECKPOINTS_MAX = 2
"""Checkpoints whose chunks are kept: a new one may become valid while somebody joins from the one before."""

STOP_LOOKED_FOR_EVERY = 1_000
"""Entries between two looks whether the work is still wanted."""


class StateChunks:
    """The chunks of a channel's checkpointed states.  One thread makes them; reading is safe from any.

    Args:
        directory: Folder for them, which nothing else uses; emptied now.
    """

    def __init__(self, directory: Path) -> None:
        """Begin with none."""
        self._directory = directory
        self._lock = Lock()
        self._stopped = Event()
        self._made: dict[BlockNumber, tuple[int, dict[int, StateProof]]] = {}
        try:
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        except OSError as error:
            raise StorageFailed(f"emptying {directory} failed: {error}") from error

    def bits(self, number: BlockNumber) -> int | None:
        """Give the bits of the chunks of a checkpoint, if they are made."""
        made = self._made.get(number)
        return None if made is None else made[0]

    def make(self, view: CheckpointStateView) -> int:
        """Cut a state into chunks, if that was not done; give their bits.

        Raises:
            StorageFailed: The disk failed, or `stop` was called.
        """
        number = view.roots.number
        with self._lock:
            known = self.bits(number)
            if known is not None:
                return known
            folder = self._directory / str(number)
            try:
                bits = self._sort(view, folder)
                proofs = {
                    index: chunk_proof(view.prove_path(chunk_path(index, bits)), bits) for index in range(1 << bits)
                }
            except OSError as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise StorageFailed(f"writing the chunks of checkpoint {number} failed: {error}") from error
            self._made[number] = (bits, proofs)
            for old in sorted(self._made)[:-CHECKPOINTS_MAX]:
                del self._made[old]
                shutil.rmtree(self._directory / str(old), ignore_errors=True)
            return bits

    def _entries(self, view: CheckpointStateView) -> Iterator[tuple[StateKey, Entry, int]]:
        """Yield the entries with about the size of each, as long as the work is wanted."""
        for count, (key, entry) in enumerate(view.entries()):
            if count % STOP_LOOKED_FOR_EVERY == 0 and self._stopped.is_set():
                raise StorageFailed("the ledger is being closed")
            yield key, entry, len(key.key) + len(entry.value) + len(entry.metadata) + 64

    def _sort(self, view: CheckpointStateView, folder: Path) -> int:
        """Write each entry to the file of its chunk; give the bits of the chunks."""
        count = total = 0
        for _, _, size in self._entries(view):
            count, total = count + 1, total + size
        bits = chunk_bits(count, total)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        waiting: defaultdict[int, list[bytes]] = defaultdict(list)
        buffered = 0
        for key, entry, size in self._entries(view):
            waiting[chunk_of(path_of(key), bits)].append(lp(state_key(key)) + lp(entry_value(entry)))
            buffered += size
            if buffered >= BUFFERED_BYTES_MAX:
                _append(folder, waiting)
                buffered = 0
        _append(folder, waiting)
        return bits

    def chunk(self, number: BlockNumber, index: int) -> StateChunk:
        """Read a chunk.

        Raises:
            NotFound: There is none of this checkpoint (any more), or of this index.
            StorageFailed: The disk failed.
        """
        made = self._made.get(number)
        if made is not None and index in made[1]:
            path = self._directory / str(number) / str(index)
            try:
                data = path.read_bytes() if path.exists() else b""  # A chunk without entries has no file.
            except FileNotFoundError:
                data = b""
            except OSError as error:
                raise StorageFailed(f"reading {path} failed: {error}") from error
            if self._made.get(number) is made:  # Else it was removed meanwhile, and the file with it.
                return StateChunk(index, tuple(_entries_in(data)), made[1][index])
        raise NotFound(f"no chunk {index} of the state at block {number} is served here")

    def stop(self) -> None:
        """Let the work under way end soon; no more is begun."""
        self._stopped.set()


def _append(folder: Path, waiting: defaultdict[int, list[bytes]]) -> None:
    """Write what waits behind what is in the files."""
    for index, parts in waiting.items():
        with (folder / str(index)).open("ab") as file:
            file.writelines(parts)
    waiting.clear()


def _entries_in(data: bytes) -> Iterator[tuple[StateKey, Entry]]:
    reader = Reader(data, "state chunk")
    while reader.offset < len(data):
        yield state_key_of(reader.lp()), entry_of(reader.lp())


__all__ = ["StateChunks"]
