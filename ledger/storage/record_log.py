"""How is a small file of records kept, so that a crash costs at most what nobody was told?

    file   = magic | salt(8) | first 8 bytes of SHA-256(magic | salt) | record seal record seal ...
    record = u32(length) | u32(CRC-32 of the length) | payload | first 8 bytes of SHA-256(length | payload)
    seal   = salt | first 8 bytes of SHA-256(salt | u64(its offset))

`append` returns when the record is on the disk. What a crash leaves half written at the end is cut at the next start;
after a power cut that may be anything: less than was written, zeros, garbage. Everything else that does not fit is
damage and named. To tell the two apart there are seals: a record's seal is written once the record is synced, so where
a seal lies behind what does not fit, that was durable and has changed since. A seal is not synced itself: it reaches
the disk with the next record, or whenever the system writes it, and a last record without one is as good. The salt is
random, so that no payload can look like a seal.
"""

import secrets
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from ledger.core.encoding import u32, u64
from ledger.core.errors import StorageDamaged, StorageFailed
from ledger.storage.files import AppendFile, Files

MAGIC = b"peerledger/records/v2\n"
SALT_BYTES = 8
HEADER_BYTES = 8
CHECK_BYTES = 8
SEAL_BYTES = SALT_BYTES + CHECK_BYTES
BEGIN_BYTES = len(MAGIC) + SALT_BYTES + CHECK_BYTES
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
        size = self._files.size(path)
        begin = self._files.read(path, 0, BEGIN_BYTES) if size >= BEGIN_BYTES else b""
        self._salt = begin[len(MAGIC) : len(MAGIC) + SALT_BYTES]
        if begin and begin == _beginning(self._salt):
            self._recover()
        elif size <= BEGIN_BYTES:  # Records follow once the beginning is synced: there were none.
            self._create()
        else:
            raise StorageDamaged(f"{path} does not begin as a file of records; restore it from a copy")

    def append(self, payload: bytes) -> int:
        """Write a record; returns its index.

        Raises:
            StorageFailed: The disk failed. The record does not count; the next append opens the file again.

        Durability: the record is on the disk on return.
        """
        assert len(payload) <= PAYLOAD_BYTES_MAX, "a record of this file is small"
        file = self._file if self._file is not None else self._reopen()
        end = self._end()
        seal = self._seal(end) if self._places else b""
        try:
            file.write_at(end, seal + _framed(payload))  # The seal may be there; now it is synced as well.
            file.sync()
        except StorageFailed:
            self.close()  # A failed sync is never tried again on the same descriptor.
            raise
        self._places.append((end + len(seal) + HEADER_BYTES, len(payload)))
        try:
            file.write_at(self._end(), self._seal(self._end()))
        except StorageFailed:
            self.close()  # The record is durable; its seal comes with the next one.
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
        return self._end() + (SEAL_BYTES if self._places else 0)

    def close(self) -> None:
        """Close the file; a later append opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _end(self) -> int:
        """Where the records that count end; behind the last of them is its seal, or will be."""
        if not self._places:
            return BEGIN_BYTES
        offset, length = self._places[-1]
        return offset + length + CHECK_BYTES

    def _seal(self, offset: int) -> bytes:
        """Make the seal that lies at an offset."""
        return self._salt + sha256(self._salt + u64(offset)).digest()[:CHECK_BYTES]

    def _create(self) -> None:
        """Make the file anew: it is not there, or a crash left no whole beginning of it."""
        self._files.make_directory(self.path.parent)
        if self._files.size(self.path) >= 0:
            self._file = self._files.open(self.path)
            self._file.cut(0)
        else:
            self._file = self._files.create(self.path)
        self._salt = secrets.token_bytes(SALT_BYTES)
        self._file.append(_beginning(self._salt))
        self._file.sync()

    def _reopen(self) -> AppendFile:
        """Open the file again behind what counts; whatever a failure left there goes."""
        file = self._files.open(self.path)
        if file.size > self.size_bytes:
            file.cut(self.size_bytes)
        self._file = file
        return file

    def _recover(self) -> None:
        """Find all records; cut what a crash left at the end."""
        data = self._files.read(self.path, 0, self._files.size(self.path))
        offset = BEGIN_BYTES
        while offset < len(data):
            wrong = self._take(data, offset)
            end = offset if wrong else self._end()
            if not wrong and data[end : end + SEAL_BYTES] == self._seal(end):
                offset = end + SEAL_BYTES
                continue
            if self._is_sealed_behind(data, end):
                raise self._damaged(len(self._places) - (not wrong), wrong or "its seal does not fit")
            break
        self._reopen()

    def _take(self, data: bytes, offset: int) -> str:
        """Take in the record at an offset; say what does not fit if it is not whole."""
        begin = offset + HEADER_BYTES
        length = int.from_bytes(data[offset : offset + 4], "big")
        end = begin + length + CHECK_BYTES
        if data[offset + 4 : begin] != u32(zlib.crc32(data[offset : offset + 4])) or length > PAYLOAD_BYTES_MAX:
            return "its length does not fit its check"
        if data[offset:end] != _framed(data[begin : begin + length]):
            return "its check does not fit"
        self._places.append((begin, length))
        return ""

    def _is_sealed_behind(self, data: bytes, offset: int) -> bool:
        """Tell whether any seal lies behind an offset: what is before it was durable."""
        at = data.find(self._salt, offset)
        while at >= 0:
            if data[at : at + SEAL_BYTES] == self._seal(at):
                return True
            at = data.find(self._salt, at + 1)
        return False

    def _damaged(self, index: int, reason: str) -> StorageDamaged:
        return StorageDamaged(f"{self.path}: record {index} is damaged: {reason}; restore the file from a copy")


def _beginning(salt: bytes) -> bytes:
    """Make what a file begins with."""
    return MAGIC + salt + sha256(MAGIC + salt).digest()[:CHECK_BYTES]


def _framed(payload: bytes) -> bytes:
    """Put a payload between its length and its check."""
    length = u32(len(payload))
    return length + u32(zlib.crc32(length)) + payload + sha256(length + payload).digest()[:CHECK_BYTES]


__all__ = ["RecordLog"]
