"""What may lie on a disk after the power went off?  What was synced, and anything of what was not.

`PowerFiles` are the durable verbs that remember, for each file, how much of it was synced, and for each folder, which
names were made and removed since it was synced. `SyncedEngine` remembers the database as its last synced batch left it.
`after_power_cut` makes a copy of everything as a disk might give it back:

- *drop*: nothing that was not synced is there; files made in a folder that was not synced are not, removed ones are;
- *half*: a part of the bytes is there, and all names as they were last;
- *zeros*: the file has its size, its content is zeros from the last sync on;
- *garbage*: likewise with random bytes.

LevelDB's own files can't be watched. A copy taken before each batch is what was synced, since every batch is; a copy
taken behind the batch shows what it appended to the log, and that end is dropped, halved, zeroed or garbled alike.
"""

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ledger.storage.engine import Batch, Engine, Snapshot
from ledger.storage.engine_leveldb import LevelDbEngine
from ledger.storage.files import Files

WAYS = ("drop", "half", "zeros", "garbage")

OnStep = Callable[[str, Path], None]


class PowerFiles(Files):
    """Files that know what is synced.

    Args:
        on_step: Called before each step that changes the disk.
    """

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step
        self.unsynced: dict[Path, int] = {}
        """Files with more content than was synced: how much was."""
        self.made: set[Path] = set()
        """Names whose folder was not synced since."""
        self.removed: dict[Path, bytes] = {}
        """Likewise, and what was behind them."""

    def before(self, verb: str, path: Path) -> None:
        """Take down what is about to change, once whoever watches has seen the disk as it is."""
        self._on_step(verb, path)
        match verb:
            case "append" | "cut":
                size = self.size(path)
                self.unsynced[path] = min(size, self.unsynced.get(path, size))
            case "sync":
                self.unsynced.pop(path, None)
            case "create" | "make directory":
                self.made.add(path)
                self.removed.pop(path, None)
            case "unlink":
                if path.exists():
                    self.removed[path] = path.read_bytes()
                    self.unsynced.pop(path, None)
            case "sync directory":
                self.made = {each for each in self.made if each.parent != path}
                self.removed = {each: content for each, content in self.removed.items() if each.parent != path}
            case _:
                raise AssertionError(f"what does {verb} leave behind?")


class SyncedEngine:
    """A LevelDB database of which a copy is kept as the last synced batch left it.

    Args:
        directory: Where it lies.
        copy: Where the copy lies.
        on_step: Called before each batch, and behind it before anybody is told.
    """

    def __init__(self, directory: Path, copy: Path, on_step: OnStep) -> None:
        self._engine = LevelDbEngine(directory)
        self._directory, self._copy, self._on_step = directory, copy, on_step
        copied(directory, copy)

    def get(self, key: bytes) -> bytes | None:
        return self._engine.get(key)

    def batch(self) -> "_SyncedBatch":
        return _SyncedBatch(self._engine.batch(), self._written)

    def snapshot(self) -> Snapshot:
        return self._engine.snapshot()

    def statistics(self) -> str:
        return self._engine.statistics()

    def close(self) -> None:
        self._engine.close()

    def _written(self, write: Callable[[], None]) -> None:
        self._on_step("write batch", self._directory)
        write()
        self._on_step("synced batch", self._directory)  # The copy is still the one before: the sync may not have come.
        copied(self._directory, self._copy)


class _SyncedBatch:
    """A batch that takes the copy on."""

    def __init__(self, batch: Batch, written: Callable[[Callable[[], None]], None]) -> None:
        self._batch, self._written = batch, written
        self.put, self.delete = batch.put, batch.delete

    def write(self) -> None:
        self._written(self._batch.write)


def opens_synced(copy: Path, on_step: OnStep) -> Callable[[Path], Engine]:
    """Open databases that are watched."""
    return lambda directory: SyncedEngine(directory, copy, on_step)


def copied(source: Path, target: Path) -> None:
    """Copy a database at work; the target is replaced.

    LevelDB's own thread may write a table, name it in the manifest, and remove others. So the manifest is copied first,
    and all of it again if a file came or went meanwhile.
    """
    while True:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        names = sorted(path.name for path in source.iterdir())
        names.sort(key=lambda name: not name.startswith(("CURRENT", "MANIFEST")))
        with suppress(FileNotFoundError):
            for name in names:
                shutil.copyfile(source / name, target / name)
            if {path.name for path in source.iterdir()} == set(names):
                return


def after_power_cut(folder: Path, files: PowerFiles, database: Path, target: Path, way: str, seed: int) -> None:
    """Copy a peer's folder as a disk may give it back.

    Args:
        folder: The peer's folder as it is.
        files: What is known of its files.
        database: The database as its last synced batch left it.
        target: The copy.
        way: What became of what was not synced.
        seed: Of the random bytes.
    """
    chance = random.Random(seed)
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("db"))
    for path, synced in files.unsynced.items():
        there = target / path.relative_to(folder)
        if there.exists():
            spoil(there, synced, way, chance)
    if way == "drop":
        for path in files.made:
            there = target / path.relative_to(folder)
            if there.is_dir():
                shutil.rmtree(there)
            else:
                there.unlink(missing_ok=True)
        for path, content in files.removed.items():
            there = target / path.relative_to(folder)
            if there.parent.is_dir():
                there.write_bytes(content)
    live = next(folder.glob("data/channels/*/db"), None)
    if live is not None and database.is_dir():
        there = target / live.relative_to(folder)
        if there.parent.is_dir():
            _database_after(live, database, there, way, chance)


def _database_after(live: Path, synced: Path, there: Path, way: str, chance: random.Random) -> None:
    """Give the database as it was synced, and at the end of its log what may be there of the batch under way."""
    copied(synced, there)
    for log in live.glob("*.log"):
        known = synced / log.name
        if known.exists() and log.stat().st_size > known.stat().st_size:
            shutil.copyfile(log, there / log.name)
            spoil(there / log.name, known.stat().st_size, way, chance)


def spoil(path: Path, synced: int, way: str, chance: random.Random) -> None:
    """Do to the end of a file what a power cut may do to it."""
    size = path.stat().st_size
    if size <= synced:
        return
    match way:
        case "drop":
            os.truncate(path, synced)
        case "half":
            os.truncate(path, synced + chance.randrange(size - synced))
        case "zeros" | "garbage":
            count = size - synced
            with path.open("r+b") as file:
                file.seek(synced)
                file.write(bytes(count) if way == "zeros" else chance.randbytes(count))
        case _:
            raise AssertionError(way)


__all__ = ["WAYS", "OnStep", "PowerFiles", "after_power_cut", "copied", "opens_synced", "spoil"]
