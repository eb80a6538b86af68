"""What is in a backup, and when is it one?  A folder of copies with a list of them, as of one committed block.

    manifest.json      what the ledger is at that block, and every file with its size and SHA-256
    genesis.block      the trust root
    kept/ prunable/    the segments, as far as that block's commit counts them
    records/           statements signed, proofs, evidence, prune receipts

All of these only grow at their end, so the copy of a running peer's ledger is consistent without anybody waiting: the
savepoint says how far each file counts at one block, and what lies behind that is not copied. The database is left out:
it is derived, and making it again takes a fraction of the time that committing took.

The order of things, with the peer committing and perhaps pruning meanwhile:

1. A pin holds back pruning from now on. One pruning that was decided before may still happen: what it removes is below
   the block of step 3, and its record is in the copy, since that file is copied last.
2. How long the records are is looked at before the savepoint is read, so they speak of no later block.
3. Savepoint and roots are read in one snapshot.
4. Files are copied, synced, and the copies are read back: every block must be there whole.
5. The manifest is written last, into a folder with another name; renaming that makes it a backup.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ledger.core.errors import Conflict, NotFound, StorageDamaged, StorageFailed
from ledger.storage.block_files import BlockFiles, Positions
from ledger.storage.files import Files
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.record_log import RecordLog
from ledger.storage.segments import Position

FORMAT = "peerledger/backup/v1"
MANIFEST, GENESIS = "manifest.json", "genesis.block"
RECORDS = ("signed.log", "proofs.log", "evidence.log")
PRUNES = "prunes.log"
FOLDERS = ("kept", "prunable", "records")

PIN_TIMEOUT_S = 3600.0
"""Time for which pruning is held back for one file."""

_CHUNK_BYTES = 1 << 20

Progress = Callable[[int, int], None]
"""Hears how many bytes are done, of how many; may raise to end the work."""


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One file of a backup."""

    name: str
    """Its path in the backup."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds; hashes in hex."""

    format: str
    version: str
    """Version of the program that made it."""

    made_at_ms: int
    """Milliseconds since 1970, UTC."""

    channel: str
    height: int
    """Blocks in it: from 0 up to this one, not counted."""

    block_hash: str
    vblock_hash: str
    commit_hash: str
    state_hash: str
    """Of the state after the last block."""

    prune_point: int | None
    """Highest block of which the bodies of invalid transactions are not in it."""

    checkpoint_interval_blocks: int
    files: tuple[BackupFile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    def members(self) -> dict[str, Any]:
        """Give it as JSON members."""
        return asdict(self)


def write_backup(
    store: LedgerStore,
    target: Path,
    genesis: bytes,
    *,
    version: str,
    now_ms: int,
    files: Files | None = None,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """Copy a channel's ledger while it is used.

    Args:
        store: The ledger; others may commit and prune.
        target: The backup's folder; must not be there.
        genesis: The channel's genesis block.
        version: Version of this program.
        now_ms: The present time, milliseconds since 1970.
        files: The durable verbs.
        progress: Hears how many bytes are done.

    Raises:
        Conflict: The target is there, or the ledger has no block yet, or not its first ones.
        StorageDamaged: A block is not whole in the copy.
        StorageFailed: The disk failed.

    Durability: the backup is on the disk on return; before that there is none.
    """
    files = files or Files()
    if target.exists():
        raise Conflict(f"{target} is there already; nothing was written")
    if store.height == 0:
        raise Conflict(f"channel {store.channel_id} has no block yet: there is nothing to back up")
    if store.joined_at is not None:
        raise Conflict(
            f"the ledger of {store.channel_id} was joined from checkpoint {store.joined_at} and lacks the blocks before"
            " it: nothing could be made of a backup. Back up another peer; this one can join again"
        )
    building = target.parent / f".{target.name}.partial"
    _remove(building)
    files.make_directory(building)
    pin = store.pin(store.first_block, "backup", PIN_TIMEOUT_S)  # 1.
    try:
        manifest = _Copying(store, building, files, progress).run(genesis, version, now_ms)
        _write(files, building / MANIFEST, json.dumps(manifest.members(), indent=1).encode())
        files.sync_directory(building)
        if target.exists():
            raise Conflict(f"{target} has come into being meanwhile; nothing was written")
        files.rename(building, target)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    finally:
        store.unpin(pin)
    return manifest


class _Copying:
    """One backup on its way."""

    def __init__(self, store: LedgerStore, building: Path, files: Files, progress: Progress) -> None:
        self._store = store
        self._building = building
        self._files = files
        self._progress = progress
        self._done = 0
        self._total = 0
        self._copied: list[BackupFile] = []

    def run(self, genesis: bytes, version: str, now_ms: int) -> Manifest:
        """Copy all (steps 2 to 4)."""
        store, files = self._store, self._files
        for name in FOLDERS:
            files.make_directory(self._building / name)
        records = {f"records/{name}": files.size(store.directory / "records" / name) for name in RECORDS}
        tip = store.tip()
        segments = dict(self._segments("kept", ".kept", tip.savepoint.kept))
        segments |= self._segments("prunable", ".bodies", tip.savepoint.bodies)
        self._total = sum(size for size in (*records.values(), *segments.values()) if size > 0)
        for name, size in (segments | records).items():
            if size >= 0:
                self._copy(name, size)
        prune_point = self._copy_prunes()
        _write(files, self._building / GENESIS, genesis)
        self._copied.append(BackupFile(GENESIS, len(genesis), sha256(genesis).hexdigest()))
        for name in FOLDERS:
            files.sync_directory(self._building / name)
        self._read_back(tip.savepoint.height, prune_point)
        return Manifest(
            format=FORMAT,
            version=version,
            made_at_ms=now_ms,
            channel=store.channel_id,
            height=tip.savepoint.height,
            block_hash=tip.savepoint.block_hash.hex(),
            vblock_hash=tip.savepoint.vblock_hash.hex(),
            commit_hash=tip.savepoint.commit_hash.hex(),
            state_hash=tip.roots.state_hash.hex(),
            prune_point=prune_point if prune_point >= 0 else None,
            checkpoint_interval_blocks=store.chk,
            files=tuple(self._copied),
        )

    def _segments(self, folder: str, suffix: str, position: Position | None) -> Iterator[tuple[str, int]]:
        """List the segments that count, with how far they do."""
        for name in self._files.names(self._store.directory / folder):
            if not name.endswith(suffix) or position is None:
                continue
            first, path = int(name.removesuffix(suffix)), self._store.directory / folder / name
            if first <= position.file:
                yield f"{folder}/{name}", position.size if first == position.file else self._files.size(path)

    def _copy(self, name: str, size: int) -> None:
        """Copy the beginning of a file, and sync; one that was pruned meanwhile is left out."""
        source = self._store.directory / name
        try:
            digest = copy(self._files, source, self._building / name, size, self._tell)
        except FileNotFoundError as error:
            if name.startswith("prunable/") and int(source.stem) <= self._store.prune_point:
                return
            raise StorageDamaged(f"{source} is gone; nothing was backed up") from error
        self._copied.append(BackupFile(name, size, digest))

    def _tell(self, size: int) -> None:
        self._done += size
        self._progress(min(self._done, self._total), self._total)

    def _copy_prunes(self) -> int:
        """Copy the record of prunings, of which one may be written just now; give the prune point of the copy."""
        source, target = (folder / "records" / PRUNES for folder in (self._store.directory, self._building))
        copy(self._files, source, target, self._files.size(source), self._tell)
        prunes = RecordLog(target, self._files)  # Cuts off what was half written.
        prune_point = int.from_bytes(prunes.read(len(prunes) - 1)[:8], "big") if len(prunes) else -1
        prunes.close()
        for path in target.parent.iterdir():
            if path.stem == target.stem and path != target:
                self._files.unlink(path)
        content = self._files.read(target, 0, self._files.size(target))
        self._copied.append(BackupFile(f"records/{PRUNES}", len(content), sha256(content).hexdigest()))
        return prune_point

    def _read_back(self, height: int, prune_point: int) -> None:
        """See that every block is whole in the copy."""
        copied = BlockFiles(self._files, self._building, chk=1)
        found = sum(1 for _ in copied.whole_blocks(Positions(None, None), 0, prune_point))
        if found != height:
            raise StorageDamaged(
                f"block {found} of {self._store.channel_id} is not whole on the disk; nothing was backed up: run "
                "`peerledger verify` on the stopped peer"
            )


def read_manifest(backup: Path) -> Manifest:
    """Read what a backup says of itself.

    Raises:
        NotFound: It is no backup, or one that was interrupted.
        StorageDamaged: Its manifest is none.
        StorageFailed: It can't be read.
    """
    path = backup / MANIFEST
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise NotFound(f"{backup} is no backup: it has no {MANIFEST}") from error
    except OSError as error:
        raise StorageFailed(f"reading {path} failed: {error}") from error
    except ValueError as error:
        raise StorageDamaged(f"{path} is damaged: {error}") from error
    try:
        return _manifest_of(content)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise StorageDamaged(f"{path} is no manifest of {FORMAT}: {error!r}") from error


def check_backup(backup: Path, manifest: Manifest, progress: Progress) -> None:
    """Read every file of a backup, or of its copy, and compare with the manifest.

    Raises:
        StorageDamaged: A file is not what was backed up; it is named.
    """
    done = 0
    for file in manifest.files:
        path, hashed, size = backup / file.name, sha256(), 0
        try:
            with path.open("rb") as opened:
                while chunk := opened.read(_CHUNK_BYTES):
                    hashed.update(chunk)
                    size += len(chunk)
                    progress(done + size, manifest.size_bytes)
        except FileNotFoundError as error:
            raise StorageDamaged(f"{path} is missing") from error
        except OSError as error:
            raise StorageFailed(f"reading {path} failed: {error}") from error
        done += size
        if (size, hashed.hexdigest()) != (file.size_bytes, file.sha256):
            raise StorageDamaged(
                f"{path} is damaged: it has {size} bytes with SHA-256 {hashed.hexdigest()}, {file.size_bytes} with "
                f"{file.sha256} were backed up"
            )


def copy_backup(backup: Path, manifest: Manifest, directory: Path, files: Files, progress: Progress) -> None:
    """Copy a backup's files into a channel's folder, and sync them."""
    done = 0
    for name in FOLDERS:
        files.make_directory(directory / name)
    for file in manifest.files:
        if file.name != GENESIS:
            try:
                copy(files, backup / file.name, directory / file.name, file.size_bytes, lambda size: None)
            except FileNotFoundError as error:
                raise StorageDamaged(f"{backup / file.name} is missing") from error
        done += file.size_bytes
        progress(done, manifest.size_bytes)
    for name in FOLDERS:
        files.sync_directory(directory / name)


def copy(files: Files, source: Path, target: Path, size: int, tell: Callable[[int], None]) -> str:
    """Copy the first `size` bytes of a file, and sync; give their SHA-256 in hex.

    Raises:
        FileNotFoundError: The source is gone.
        StorageDamaged: It is shorter.
        StorageFailed: The disk failed.
    """
    hashed = sha256()
    copied = files.create(target)
    try:
        while copied.size < size:
            chunk = files.read(source, copied.size, min(_CHUNK_BYTES, size - copied.size))
            if not chunk:
                raise StorageDamaged(f"{source} has {copied.size} bytes, {size} were expected")
            hashed.update(chunk)
            copied.append(chunk)
            tell(len(chunk))
        copied.sync()
    except FileNotFoundError:
        files.unlink(target)
        raise
    finally:
        copied.close()
    return hashed.hexdigest()


def _manifest_of(content: Mapping[str, Any]) -> Manifest:
    """Check the members of a manifest (any error says that it is none)."""
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}")
    listed = tuple(BackupFile(str(one["name"]), int(one["size_bytes"]), str(one["sha256"])) for one in content["files"])
    for file in listed:
        folder, _, name = file.name.rpartition("/")
        if (folder not in FOLDERS and file.name != GENESIS) or not name or name.startswith("."):
            raise ValueError(f"a file named {file.name!r}")
    manifest = Manifest(**{**content, "files": listed})
    for name in ("block_hash", "vblock_hash", "commit_hash", "state_hash"):
        bytes.fromhex(getattr(manifest, name))
    if "/" in manifest.channel or manifest.height < 1 or manifest.checkpoint_interval_blocks < 1:
        raise ValueError("channel, height or interval")
    return manifest


def _write(files: Files, path: Path, content: bytes) -> None:
    file = files.create(path, content)
    try:
        file.sync()
    finally:
        file.close()


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StorageFailed(f"removing {folder} failed: {error}") from error


__all__ = ["FORMAT", "BackupFile", "Manifest", "check_backup", "copy_backup", "read_manifest", "write_backup"]
