"""How is a small file of records kept, so that a crash costs at most what nobody was told?

    file   = magic | record ...
    record = u32(length) | u32(CRC-32 of the length) | payload | first 8 bytes of SHA-256(length | payload)

`append` returns when the record is on the disk. What a crash leaves half written at the end is cut at the next start.
Everything else that does not fit is damage and named: the length has a check of its own, so that a flipped bit in it
doesn't make the rest of the file look like a torn tail.
"""

import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from ledger.core.encoding import u32
from ledger.core.errors import StorageDamaged, StorageFailed
from ledger.storage.files import AppendFile, Files

MAGIC = b"peerledger/records/v1\n"
HEADER_BYTES = 8
CHECK_BYTES = 8
PAYLOAD_BYTES_MAX = 64 * 1024 * 1024


class RecordLog:
    """An append-only file of records.  Not thread-safe: its owner has a lock.

    Args:
        path: The file; created with its folder if it is not there.
        files: The durable verbs.

    Raises:
        StorageDamaged: The file holds something that no crash leaves behind.
        StorageFailed: The disk failed.
    """

    def __init__(self, path: Path, files: Files | None = None) -> None:
        """Open the file, check every record, cut a torn tail."""
        self.path = path
        self._files = files if files is not None else Files()
        self._places: list[tuple[int, int]] = []  # (offset, length) of each payload
        self._file: AppendFile | None = None
        if self._files.size(path) < len(MAGIC):
            self._create()
        else:
            self._recover()

    def append(self, payload: bytes) -> int:
        """Write a record; returns its index.

        Raises:
            StorageFailed: The disk failed. The record does not count; the next append opens the file again.

        Durability: the record is on the disk on return.
        """
        assert len(payload) <= PAYLOAD_BYTES_MAX, "a record of this file is small"
        file = self._file if self._file is not None else self._reopen()
        offset = file.size
        try:
            file.append(_framed(payload))
            file.sync()
        except StorageFailed:
            self.close()  # A failed sync is never tried again on the same descriptor.
            raise
        self._places.append((offset + HEADER_BYTES, len(payload)))
        return len(self._places) - 1

    def __len__(self) -> int:
        return len(self._places)

    def read(self, index: int) -> bytes:
        """Read a record back and check it again.

        Raises:
            StorageDamaged: It is not what was written.
            StorageFailed: The disk failed.
        """
        offset, length = self._places[index]
        raw = self._files.read(self.path, offset - HEADER_BYTES, HEADER_BYTES + length + CHECK_BYTES)
        payload = raw[HEADER_BYTES : HEADER_BYTES + length]
        if raw != _framed(payload):
            raise self._damaged(index, "its check does not fit")
        return payload

    def records(self) -> Iterator[bytes]:
        """Yield all records, oldest first."""
        for index in range(len(self)):
            yield self.read(index)

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._end()

    def close(self) -> None:
        """Close the file; a later append opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _end(self) -> int:
        """Where the records that count end."""
        if not self._places:
            return len(MAGIC)
        offset, length = self._places[-1]
        return offset + length + CHECK_BYTES

    def _create(self) -> None:
        """Make the file anew: it is not there, or a crash left less of it than its first line."""
        self._files.make_directory(self.path.parent)
        if self._files.size(self.path) >= 0:
            self._file = self._files.open(self.path)
            self._file.cut(0)
        else:
            self._file = self._files.create(self.path)
        self._file.append(MAGIC)
        self._file.sync()

    def _reopen(self) -> AppendFile:
        """Open the file again behind what counts; whatever a failure left there goes."""
        file = self._files.open(self.path)
        if file.size > self._end():
            file.cut(self._end())
        self._file = file
        return file

    def _recover(self) -> None:
        """Find all records; cut what a crash left at the end."""
        data = self._files.read(self.path, 0, self._files.size(self.path))
        if data[: len(MAGIC)] != MAGIC:
            raise StorageDamaged(f"{self.path} does not begin as a file of records; restore it from a copy")
        offset = len(MAGIC)
        while offset < len(data):
            length = self._whole_length(data, offset)
            if length is None:
                break
            self._places.append((offset + HEADER_BYTES, length))
            offset += HEADER_BYTES + length + CHECK_BYTES
        self._reopen()

    def _whole_length(self, data: bytes, offset: int) -> int | None:
        """Return the length of the record at an offset, None if it is the torn tail.

        A tail is torn if it is shorter than it says, or if it ends in zeros: the size of a file may reach the disk
        before its content. No whole record ends in eight zeros, or one in 2^64 does.
        """
        rest = data[offset:]
        if len(rest) < HEADER_BYTES or not any(rest):
            return None
        torn = not any(rest[-CHECK_BYTES:])
        length = int.from_bytes(rest[:4], "big")
        if zlib.crc32(rest[:4]) != int.from_bytes(rest[4:8], "big") or length > PAYLOAD_BYTES_MAX:
            if torn:
                return None
            raise self._damaged(len(self._places), "its length does not fit its check")
        end = HEADER_BYTES + length + CHECK_BYTES
        if len(rest) < end:
            return None
        if rest[:end] != _framed(rest[HEADER_BYTES : HEADER_BYTES + length]):
            if torn:
                return None
            raise self._damaged(len(self._places), "its check does not fit")
        return length

    def _damaged(self, index: int, reason: str) -> StorageDamaged:
        return StorageDamaged(f"{self.path}: record {index} is damaged: {reason}; restore the file from a copy")


def _framed(payload: bytes) -> bytes:
    """Put a payload between its length and its check."""
    length = u32(len(payload))
    return length + u32(zlib.crc32(length)) + payload + sha256(length + payload).digest()[:CHECK_BYTES]


__all__ = ["RecordLog"]
