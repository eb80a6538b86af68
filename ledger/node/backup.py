"""How does a peer's ledger get into a backup, and out of one?  While it runs, while it is stopped, and elsewhere.

A running peer makes a backup itself, in a thread, when an admin asks for it over REST: nobody else may open its ledger.
Where to is the operator's to say: below the setting `backup_dir`, so that a token can't write anywhere else.

*Restoring* makes a channel of a backup: every file is compared with the manifest before it is copied and after, the
database is made again, and what comes out must have the manifest's hashes. Then the records are marked: what the peer
signed since the backup was taken is not in them, so it signs nothing before the orderers have said how far the channel
is (`storage.checkpoints`). All of that happens in a folder of another name; renaming it makes it the channel.
"""

import logging
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ledger import __version__
from ledger.core.block import block_hash
from ledger.core.errors import Busy, Conflict, InvalidBlock, LedgerError, Refused, StorageDamaged, StorageFailed
from ledger.core.names import BlockNumber, ChannelId
from ledger.interfaces.rest.ports import BackupState, BackupStatus
from ledger.node.clock import now_ms
from ledger.node.files import read
from ledger.node.ledgers import check_genesis
from ledger.node.rebuild import Reapply, Remake
from ledger.node.rules import genesis_bundle
from ledger.storage.backup import (
    GENESIS,
    Manifest,
    check_backup,
    copy_backup,
    read_manifest,
    write_backup,
)
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.files import Files
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.rebuilding import CHK_DEFAULT
from ledger.storage.rebuilding import rebuild as rebuild_database
from ledger.wire.block import decode_block

log = logging.getLogger("peerledger.backup")

Progress = Callable[[str, int, int], None]
"""Hears what is being done, and how much of it is."""


class Backups:
    """Makes backups of one channel of a running peer, one at a time.

    Args:
        store: The channel's ledger.
        directory: Below which they are made; None allows none.
    """

    def __init__(self, store: LedgerStore, directory: Path | None) -> None:
        """Nothing is backed up before it is asked for."""
        self._store = store
        self._directory = directory
        self._lock = threading.Lock()
        self._status: BackupStatus | None = None
        self._thread: threading.Thread | None = None
        self._ending = False

    @property
    def status(self) -> BackupStatus | None:
        """The present or the last backup; None if there was none since the start."""
        return self._status

    def start(self, to: str) -> BackupStatus:
        """Begin a backup.

        Args:
            to: Its folder: absolute or seen from the peer's `backup_dir`, and below that.

        Raises:
            Refused: It is not below `backup_dir`, or there is none.
            Conflict: It is there already.
            Busy: Another one is being made.
        """
        target = self._target(to)
        if target.exists():
            raise Conflict(f"{target} is there already; nothing was written")
        with self._lock:
            if self._ending or (self._status is not None and self._status.state is BackupState.RUNNING):
                raise Busy(f"a backup of {self._store.channel_id} is being made already")
            self._status = BackupStatus(BackupState.RUNNING, str(target))
            self._thread = threading.Thread(target=self._run, args=(target,), name="backup")
            self._thread.start()
        return self._status

    def close(self) -> None:
        """End what is under way, unfinished; before the ledger is closed."""
        with self._lock:
            self._ending = True
        if self._thread is not None:
            self._thread.join()

    def _target(self, to: str) -> Path:
        rule = "backup directory"
        if self._directory is None:
            raise Refused("backup", rule=rule, expected="the peer's setting backup_dir", found="none")
        base = self._directory.resolve()
        target = (base / to).resolve() if to and "\0" not in to else base
        if base not in target.parents:
            raise Refused("backup", rule=rule, expected=f"a folder below {base}", found=to)
        return target

    def _run(self, target: Path) -> None:
        """Make the backup; whatever goes wrong stands in the status, and the peer goes on."""
        channel = self._store.channel_id
        try:
            genesis = self._store.config_block_bytes(BlockNumber(0))
            manifest = write_backup(
                self._store, target, genesis, version=__version__, now_ms=now_ms(), progress=self._tell
            )
        except LedgerError as error:
            log.warning("backup_failed", extra={"channel": channel, "path": str(target), "reason": str(error)})
            self._status = BackupStatus(BackupState.FAILED, str(target), reason=str(error))
            return
        log.info("backup_made", extra={"channel": channel, "path": str(target), "height": manifest.height})
        size = manifest.size_bytes
        self._status = BackupStatus(BackupState.DONE, str(target), size, size, manifest)

    def _tell(self, done: int, total: int) -> None:
        if self._ending:
            raise StorageFailed("the peer is being stopped")
        assert self._status is not None
        self._status = BackupStatus(BackupState.RUNNING, self._status.path, done, total)


def back_up(data: Path, genesis: Path, target: Path, progress: Progress) -> Manifest:
    """Back up a stopped peer's channel.

    Args:
        data: Its data directory.
        genesis: The channel's genesis block.
        target: The backup's folder; must not be there.
        progress: Hears of the bytes copied.

    Raises:
        NotFound: The genesis block is not there.
        InvalidBlock: The directory holds a channel of that name with another genesis block.
        Conflict: Another process has the channel open, the target is there, or there is nothing to back up.
        StorageDamaged, StorageFailed: See `storage.backup.write_backup`.
    """
    content = read(genesis)
    channel = ChannelId(genesis_bundle(content).channel_id)
    if not (data / "channels" / channel / "kept").is_dir():
        raise Conflict(f"{data} holds no channel {channel}: there is nothing to back up")
    store = LedgerStore.open(data, channel, chk=interval_of(data, channel) or CHK_DEFAULT)
    try:
        check_genesis(store, content)
        return write_backup(
            store,
            target,
            content,
            version=__version__,
            now_ms=now_ms(),
            progress=lambda done, total: progress("copying", done, total),
        )
    finally:
        store.close()


def interval_of(data: Path, channel: ChannelId) -> int | None:
    """Tell from the last statement that a peer signed how many blocks lie between checkpoints."""
    with CheckpointStore(data / "channels" / channel / "records", channel) as records:
        signed = [message for number in records.numbers() if (message := records.signed(number)) is not None]
    return signed[-1].interval_blocks if signed else None


def restore(backup: Path, data: Path, progress: Progress, *, genesis: Path | None = None) -> Manifest:
    """Make a channel of a backup.

    Args:
        backup: The backup's folder.
        data: The data directory of a peer that is stopped; made if it is not there.
        progress: Hears of the work.
        genesis: The channel's genesis block as the operator has it, to be compared with the backup's.

    Raises:
        NotFound: There is no backup.
        InvalidBlock: It is a backup of another channel than the genesis block's.
        Conflict: The data directory holds that channel already.
        StorageDamaged: The backup is damaged, or what was made of it is not what was backed up.
        StorageFailed: The disk failed.

    Durability: the channel is there whole on return; a crash before that leaves none.
    """
    files = Files()
    manifest = read_manifest(backup)
    channel = ChannelId(manifest.channel)
    target = data / "channels" / channel
    check_empty(target)
    check_backup(backup, manifest, lambda done, total: progress("checking the backup", done, total))
    trust_root = check_trust_root(backup, manifest, genesis)
    building = data / f".{channel}.restoring"
    shutil.rmtree(building, ignore_errors=True)
    folder = building / "channels" / channel
    files.make_directory(folder)
    try:
        copy_backup(backup, manifest, folder, files, lambda done, total: progress("copying", done, total))
        check_copy(folder, manifest, lambda done, total: progress("checking the copy", done, total))
        remake(building, channel, trust_root, manifest, lambda done, total: progress("blocks", done, total))
        with CheckpointStore(folder / "records", channel, files) as records:
            records.mark_restored()
        files.make_directory(target.parent)
        check_empty(target)
        files.rename(folder, target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return manifest


def check_empty(target: Path) -> None:
    """See that a channel's folder is not there, or holds nothing.

    Raises:
        Conflict: It holds something.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Conflict(f"{target} is not empty; nothing was changed: restore into another data directory")


def check_trust_root(backup: Path, manifest: Manifest, genesis: Path | None) -> bytes:
    """Give the backup's genesis block; it is of the channel, and the one that the operator has.

    Raises:
        InvalidBlock: It is another.
    """
    content = read(backup / GENESIS)
    found = genesis_bundle(content).channel_id
    if found != manifest.channel:
        raise InvalidBlock(f"{backup / GENESIS}", rule="channel", expected=manifest.channel, found=found)
    if genesis is not None:
        expected, found_hash = block_hash(decode_block(read(genesis))), block_hash(decode_block(content))
        if expected != found_hash:
            raise InvalidBlock(f"{backup / GENESIS}", rule="genesis block", expected=expected, found=found_hash)
    return content


def check_copy(folder: Path, manifest: Manifest, progress: Callable[[int, int], None]) -> None:
    """Read the copied files back and compare them with the manifest."""
    kept = tuple(file for file in manifest.files if file.name != GENESIS)
    check_backup(folder, replace(manifest, files=kept), progress)


def remake(
    data: Path, channel: ChannelId, genesis: bytes, manifest: Manifest, progress: Callable[[int, int], None]
) -> None:
    """Make the database, and see that the ledger is the one that was backed up.

    Raises:
        StorageDamaged: It is another.
    """
    made = rebuild_database(
        data,
        channel,
        lambda reasons: Remake(genesis, Reapply(reasons)),
        with_bodies=False,
        chk=manifest.checkpoint_interval_blocks,
        progress=progress,
    )
    for what, expected, found in (
        ("height", manifest.height, made.height),
        ("vBlock hash", manifest.vblock_hash, made.vblock_hash.hex()),
        ("state hash", manifest.state_hash, made.state_hash.hex()),
        ("prune point", manifest.prune_point, made.prune_point if made.prune_point >= 0 else None),
    ):
        if expected != found:
            raise StorageDamaged(f"{what} of what was made is {found}, that of what was backed up {expected}")


__all__ = ["Backups", "back_up", "restore"]
