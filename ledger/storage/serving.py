"""How is a checkpointed state handed to joiners?  Cut into chunks once, in files that wait to be asked for.

The database has the entries in the order of their keys, a joiner wants them in chunks of the state tree. So the first
joiner of a checkpoint has the state sorted: one walk over it, each entry to the file of its chunk. The files are
derived and belong to nobody: they are not synced, removed at the next start, and made again when they are asked for.
"""

import shutil
from collections import defaultdict
from pathlib import Path
from threading import Lock

from ledger.core.encoding import Reader, lp
from ledger.core.errors import NotFound, StorageFailed
from ledger.core.joining import StateChunk, chunk_bits, chunk_of, chunk_path, chunk_proof
from ledger.core.names import BlockNumber
from ledger.core.state_tree import StateProof, path_of
from ledger.storage.checkpoint_state import CheckpointStateView
from ledger.storage.keys import entry_of, entry_value, state_key, state_key_of

ENTRIES_PER_CHUNK = 2_000
BUFFERED_BYTES_MAX = 8 << 20
"""Entries that wait in memory for their files."""

CHECKPOINTS_MAX = 2
"""Checkpoints whose chunks are kept: a new one may become valid while somebody joins from the one before."""


class StateChunks:
    """The chunks of a channel's checkpointed states.  Safe from any thread.

    Args:
        directory: Folder for them, which nothing else uses; emptied now.
    """

    def __init__(self, directory: Path) -> None:
        """Begin with none."""
        self._directory = directory
        self._lock = Lock()
        self._made: dict[BlockNumber, tuple[int, dict[int, StateProof]]] = {}
        try:
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        except OSError as error:
            raise StorageFailed(f"emptying {directory} failed: {error}") from error

    def make(self, view: CheckpointStateView) -> int:
        """Cut a state into chunks, if that was not done; give their bits.

        Raises:
            StorageFailed: The disk failed.
        """
        number = view.roots.number
        with self._lock:
            known = self._made.get(number)
            if known is not None:
                return known[0]
            bits = chunk_bits(sum(1 for _ in view.entries()), ENTRIES_PER_CHUNK)
            folder = self._directory / str(number)
            try:
                self._sort(view, bits, folder)
            except OSError as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise StorageFailed(f"writing the chunks of checkpoint {number} failed: {error}") from error
            proofs = {index: chunk_proof(view.prove_path(chunk_path(index, bits)), bits) for index in range(1 << bits)}
            self._made[number] = (bits, proofs)
            for old in sorted(self._made)[:-CHECKPOINTS_MAX]:
                del self._made[old]
                shutil.rmtree(self._directory / str(old), ignore_errors=True)
            return bits

    def _sort(self, view: CheckpointStateView, bits: int, folder: Path) -> None:
        """Write each entry to the file of its chunk."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        waiting: defaultdict[int, list[bytes]] = defaultdict(list)
        size = 0

        def write() -> None:
            for index, parts in waiting.items():
                with (folder / str(index)).open("ab") as file:
                    file.writelines(parts)
            waiting.clear()

        for key, entry in view.entries():
            part = lp(state_key(key)) + lp(entry_value(entry))
            waiting[chunk_of(path_of(key), bits)].append(part)
            size += len(part)
            if size >= BUFFERED_BYTES_MAX:
                write()
                size = 0
        write()

    def chunk(self, number: BlockNumber, index: int) -> StateChunk:
        """Read a chunk.

        Raises:
            NotFound: There is none of this checkpoint, or of this index.
            StorageFailed: The disk failed.
        """
        made = self._made.get(number)
        if made is None or index not in made[1]:
            raise NotFound(f"no chunk {index} of the state at block {number} is served here")
        path = self._directory / str(number) / str(index)
        try:
            data = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise StorageFailed(f"reading {path} failed: {error}") from error
        reader = Reader(data, "state chunk")
        entries = []
        while reader.offset < len(data):
            entries.append((state_key_of(reader.lp()), entry_of(reader.lp())))
        return StateChunk(index, tuple(entries), made[1][index])
