"""Which file operations survive a crash, and in which order?  The few durable verbs that the store is made of.

append, sync, cut, rename, unlink, sync directory. Every other module of the store goes through them, so that a test can
stand between any two steps (`Files.before`), and so that one rule holds everywhere: **a failed sync is never retried on
the same descriptor**. The kernel may have dropped the pages and forgotten the error; a second sync that succeeds would
lie. The file is unusable from then on: its owner closes, opens again and looks at what is really there.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from ledger.core.errors import Conflict, StorageFailed

Result = TypeVar("Result")

_PID_DIGITS_MAX = 20


class AppendFile:
    """A file that grows at its end.

    Args:
        files: Whose verbs these are.
        path: The file; it is there.
        size: Where its end is.
    """

    def __init__(self, files: "Files", path: Path, size: int) -> None:
        """Open the file for writing behind `size`."""
        self.path = path
        self.size = size
        self._files = files
        self._broken = False
        self._descriptor = _guard("opening", path, lambda: os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def append(self, data: bytes) -> int:
        """Write at the end; returns the offset where the data begin. Durable only after `sync`.

        Raises:
            StorageFailed: The disk failed; part of the data may be there.
        """
        offset = self.size
        self.write_at(offset, data)
        self.size += len(data)
        return offset

    def write_at(self, offset: int, data: bytes) -> None:
        """Write at an offset (the same bytes again, or behind the end)."""
        self._check()
        self._files.before("append", self.path)
        rest = memoryview(data)
        try:
            while rest:
                written = os.pwrite(self._descriptor, rest, offset)
                offset, rest = offset + written, rest[written:]
        except OSError as error:
            self._broken = True
            raise StorageFailed(f"writing {self.path} failed: {error}") from error

    def sync(self) -> None:
        """Make everything written durable.

        Raises:
            StorageFailed: It failed; the file is not usable any more.
        """
        self._check()
        try:
            self._files.before("sync", self.path)
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._broken = True
            raise StorageFailed(f"syncing {self.path} failed: {error}; it must be opened again") from error

    def cut(self, size: int) -> None:
        """Cut the end off, and sync."""
        self._check()
        self._files.before("cut", self.path)
        _guard("cutting", self.path, lambda: os.ftruncate(self._descriptor, size))
        self.size = size
        self.sync()

    def close(self) -> None:
        """Close the descriptor; twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _check(self) -> None:
        if self._broken or self._descriptor < 0:
            raise StorageFailed(f"{self.path} must be opened again after a failure")


class Files:
    """The durable verbs. A test derives from it and disturbs `before`."""

    def before(self, verb: str, path: Path) -> None:
        """Stand before a step that changes the disk; does nothing here."""

    def make_directory(self, path: Path) -> None:
        """Create a folder and its parents, durably."""
        if path.is_dir():
            return
        self.make_directory(path.parent)
        self.before("make directory", path)
        _guard("creating", path, lambda: path.mkdir(exist_ok=True))
        self.sync_directory(path.parent)

    def create(self, path: Path, content: bytes = b"") -> AppendFile:
        """Create a file that is not there, and make its name durable (its content is after `sync`)."""
        self.before("create", path)
        descriptor = _guard("creating", path, lambda: os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o640))
        os.close(descriptor)
        self.sync_directory(path.parent)
        file = AppendFile(self, path, 0)
        if content:
            file.append(content)
        return file

    def open(self, path: Path, size: int | None = None) -> AppendFile:
        """Open a file for appending behind `size`, or behind what is there."""
        return AppendFile(self, path, self.size(path) if size is None else size)

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes; -1 if it is not there."""
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise StorageFailed(f"looking at {path} failed: {error}") from error

    def read(self, path: Path, offset: int, length: int) -> bytes:
        """Read up to `length` bytes at an offset.

        Raises:
            FileNotFoundError: The file is gone.
            StorageFailed: The disk failed.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageFailed(f"opening {path} failed: {error}") from error
        try:
            return os.pread(descriptor, length, offset)
        except OSError as error:
            raise StorageFailed(f"reading {path} failed: {error}") from error
        finally:
            os.close(descriptor)

    def reader(self, path: Path) -> BinaryIO:
        """Open a file to read it from front to back."""
        return _guard("opening", path, lambda: path.open("rb"))

    def names(self, directory: Path) -> list[str]:
        """List a folder, ascending."""
        return _guard("listing", directory, lambda: sorted(os.listdir(directory)))  # noqa: PTH208 (names, not paths)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file within its folder or to another one, durably."""
        self.before("rename", source)
        _guard("renaming", source, lambda: source.rename(target))
        self.sync_directory(target.parent)
        if source.parent != target.parent:
            self.sync_directory(source.parent)

    def unlink(self, path: Path) -> None:
        """Remove a file; durable after `sync_directory`. One that is gone already is fine."""
        self.before("unlink", path)
        _guard("removing", path, lambda: path.unlink(missing_ok=True))

    def sync_directory(self, path: Path) -> None:
        """Make the names in a folder durable."""
        self.before("sync directory", path)
        descriptor = _guard("opening", path, lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            _guard("syncing", path, lambda: os.fsync(descriptor))
        finally:
            os.close(descriptor)


class DirectoryLock:
    """Holds a folder for this process until it is closed or the process ends."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            Conflict: Another process (or another store of this one) has it.
            StorageFailed: The file can't be opened.
        """
        self._descriptor = _guard("opening", path, lambda: os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o640))
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, _PID_DIGITS_MAX, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            who = f" (process {holder})" if holder.isdecimal() else ""
            raise Conflict(f"{path.parent} is in use by another process: it holds {path}{who}") from error
        except OSError as error:
            os.close(self._descriptor)
            raise StorageFailed(f"locking {path} failed: {error}") from error
        with suppress(OSError):  # Only for people to read, also on a full disk.
            os.pwrite(self._descriptor, f"{os.getpid()}\n".ljust(_PID_DIGITS_MAX).encode(), 0)

    def close(self) -> None:
        """Let go; twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _guard(doing: str, path: Path, step: Callable[[], Result]) -> Result:
    """Do one step; a failure of the disk is a `StorageFailed` that names the file."""
    try:
        return step()
    except OSError as error:
        raise StorageFailed(f"{doing} {path} failed: {error}") from error
