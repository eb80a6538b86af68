"""Stores for tests: engines that outlive a crash, files that a test can stop at any step, and a ledger's answers."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger.core.names import BlockNumber
from ledger.storage.engine import Batch, Engine, Snapshot
from ledger.storage.engine_leveldb import LevelDbEngine
from ledger.storage.engine_memory import MemoryEngine
from ledger.storage.files import Files
from ledger.storage.ledger_store import LedgerStore


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Steps:
    """Counts the steps that change the disk, and ends the process before one of them."""

    crash_at: int = 0
    """The step, counted from 1; 0 for none."""

    taken: list[tuple[str, str]] = field(default_factory=list)

    def take(self, verb: str, path: Path) -> None:
        self.taken.append((verb, path.name))
        if len(self.taken) == self.crash_at:
            raise Crash(f"before step {self.crash_at}: {verb} {path}")


class SteppingFiles(Files):
    """Files that count, and that know what a power cut leaves: what was synced."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._synced: dict[Path, int] = {}

    def before(self, verb: str, path: Path) -> None:
        self._steps.take(verb, path)
        if verb == "sync":
            self._synced[path] = path.stat().st_size
        elif verb == "create":
            self._synced[path] = 0
        elif verb == "cut":
            self._synced.pop(path, None)

    def cut_power(self) -> None:
        """Drop what was written and not synced."""
        for path, size in self._synced.items():
            if path.exists() and path.stat().st_size > size:
                os.truncate(path, size)


class _SteppingBatch:
    """A batch whose writing is two steps: before it, and after it without anybody being told."""

    def __init__(self, batch: Batch, steps: Steps, directory: Path) -> None:
        self._batch, self._steps, self._directory = batch, steps, directory
        self.put, self.delete = batch.put, batch.delete

    def write(self) -> None:
        self._steps.take("write batch", self._directory)
        self._batch.write()
        self._steps.take("return from batch", self._directory)


class SteppingEngine:
    """An engine that counts its batches as steps."""

    def __init__(self, engine: Engine, steps: Steps, directory: Path) -> None:
        self._engine, self._steps, self._directory = engine, steps, directory

    def get(self, key: bytes) -> bytes | None:
        return self._engine.get(key)

    def batch(self) -> Any:
        return _SteppingBatch(self._engine.batch(), self._steps, self._directory)

    def snapshot(self) -> Snapshot:
        return self._engine.snapshot()

    def statistics(self) -> str:
        return self._engine.statistics()

    def close(self) -> None:
        self._engine.close()


class Databases:
    """Opens one kind of engine; what is in memory is found again by its folder."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._in_memory: dict[Path, MemoryEngine] = {}

    def open(self, directory: Path) -> Engine:
        if self.kind == "leveldb":
            return LevelDbEngine(directory)
        if directory in self._in_memory:
            return self._in_memory[directory].reopened()
        return self._in_memory.setdefault(directory, MemoryEngine())

    def copied(self, source: Path, target: Path) -> None:
        """Let the database of one folder be found in another one too, as it is now."""
        engine = MemoryEngine()
        pairs = self._in_memory[source].snapshot()
        engine.apply(list(pairs.range(b"", None)))
        self._in_memory[target] = engine

    def lost(self, directory: Path) -> None:
        """Lose the database of a folder."""
        self._in_memory.pop(directory, None)
        shutil.rmtree(directory, ignore_errors=True)

    def stepping(self, steps: Steps) -> Callable[[Path], Engine]:
        return lambda directory: SteppingEngine(self.open(directory), steps, directory)


def answers(store: LedgerStore) -> dict[str, object]:
    """Everything that a store answers, to compare two stores, or one at two times."""
    numbers = [BlockNumber(number) for number in range(store.height)]
    ids = sorted(store.iter_tx_ids())
    state = dict(store.iter_state())
    return {
        "tips": (store.height, store.block_hash, store.vblock_hash, store.commit_hash),
        "summaries": [store.summary(number) for number in numbers],
        "vblocks": [store.vblock(number) for number in numbers],
        "faults": [store.faults(number) for number in numbers],
        "places": {tx_id: store.places(tx_id) for tx_id in ids},
        "state": state,
        "history": {
            key: tuple(store.history(key.namespace, key.key.decode())) for key in state if key.kind == 0
        },
        "configs": store.config_blocks(),
        "collections": tuple(store.collection_commits()),
        "state hash": store.roots_now().state_hash,
    }  # fmt: skip
