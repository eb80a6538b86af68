"""Is a LevelDB folder whole?  What LevelDB itself takes without a word, and what would change answers.

LevelDB checks every block it reads, but it trusts the list of its files. It makes a new database where CURRENT is
gone, and then replays whatever logs lie there; it replays logs that were never its own; it takes a MANIFEST whose end
was cut for an older one, although the log that the cut entry had made into a table is removed; and it opens tables only
when something is read from them. So before it opens a folder the following is checked, from file names, sizes, the
MANIFEST and the heads of the batches in the logs (formats: LevelDB's doc/log_format.md and version_edit.cc):

1. No reader has marked the folder as damaged.
2. Where there are tables or logs, there is a CURRENT and the MANIFEST that it names.
3. Every table of the MANIFEST is there in its size.
4. The log that the MANIFEST begins with is there: LevelDB removes a log only behind an entry that names a later one.
5. The batches of this and all later logs follow each other by their sequence numbers, and on those of the tables.

A log whose end is missing passes: what it leaves is the database as it once was, and the segments hold the rest. So
where a power cut left zeros or garbage in place of the last batches, `cut_torn_log` makes it such a log.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ledger.core.errors import DatabaseDamaged, StorageFailed

DAMAGED_NAME = "DAMAGED"
"""A file of ours in the folder: damage was met when something was read; it holds what."""

_BLOCK_BYTES = 1 << 15
_HEAD_BYTES = 7
_FULL, _FIRST, _LAST = 1, 2, 4


@dataclass(slots=True)
class _Manifest:
    """What the entries of a MANIFEST come to."""

    log: int = 0
    last_sequence: int = 0
    tables: dict[int, int] = field(default_factory=dict)
    """Sizes by number."""


def check_files(directory: Path) -> None:
    """Check the folder of a database that nobody has open; one that is empty or not there is fine.

    Raises:
        DatabaseDamaged: It lacks files, or holds such as are not its own.
        StorageFailed: The disk failed.
    """
    try:
        sizes = {path.name: path.stat().st_size for path in directory.glob("*")}
        if DAMAGED_NAME in sizes:  # 1
            raise DatabaseDamaged((directory / DAMAGED_NAME).read_text(errors="replace") or f"{directory} is damaged")
        logs = sorted(int(name[:-4]) for name in sizes if name.endswith(".log") and name[:-4].isdigit())
        if "CURRENT" not in sizes:  # 2
            if logs or any(name.endswith((".ldb", ".sst")) for name in sizes):
                raise _damaged(directory / "CURRENT", "the file is gone")
            return
        name = (directory / "CURRENT").read_bytes().decode(errors="replace").rstrip("\n")
        if name not in sizes or not name.startswith("MANIFEST-"):
            raise _damaged(directory / "CURRENT", f"it names {name!r}, which is not there")
        manifest = _read_manifest(directory / name)
        for number, size in manifest.tables.items():  # 3
            found = [sizes[each] for each in (f"{number:06d}.ldb", f"{number:06d}.sst") if each in sizes]
            if size not in found:
                has = f"has {found[0]} bytes instead of {size}" if found else "is gone"
                raise _damaged(directory / f"{number:06d}.ldb", f"the table {has}")
        if manifest.log and manifest.log not in logs:  # 4
            raise _damaged(directory / f"{manifest.log:06d}.log", "the log is gone, or the MANIFEST is cut")
        _check_logs(directory, [log for log in logs if log >= manifest.log], manifest.last_sequence)  # 5
    except OSError as error:
        raise StorageFailed(f"looking at database {directory} failed: {error}") from error


def cut_torn_log(directory: Path) -> bool:
    """Cut the last log before its first batch that is not whole, if nothing whole follows; tells whether it did.

    Durability: it is cut on return.

    Raises:
        StorageFailed: The disk failed.
    """
    try:
        path = max(directory.glob("*.log"), default=None)
        at = None if path is None else _torn_at(path.read_bytes())
        if path is None or at is None:
            return False
        with path.open("r+b") as file:
            file.truncate(at)
            os.fsync(file.fileno())
        return True
    except OSError as error:
        raise StorageFailed(f"cutting a log of database {directory} failed: {error}") from error


def _torn_at(data: bytes) -> int | None:
    """Find where the first record begins that is not whole; None if there is none, or if something whole follows."""
    at = begin = 0
    while (kind := _whole_fragment(data, at)) is not None:
        begin = at if kind in (_FULL, _FIRST) else begin
        at += _HEAD_BYTES + int.from_bytes(data[at + 4 : at + 6], "little")
        begin = at if kind in (_FULL, _LAST) else begin
        if _BLOCK_BYTES - at % _BLOCK_BYTES < _HEAD_BYTES:
            at += _BLOCK_BYTES - at % _BLOCK_BYTES
    following = range(at - at % _BLOCK_BYTES + _BLOCK_BYTES, len(data), _BLOCK_BYTES)
    is_last = begin < len(data) and all(_whole_fragment(data, each) is None for each in following)
    return begin if is_last else None


def _whole_fragment(data: bytes, at: int) -> int | None:
    """Give the kind of the fragment at an offset, None if it is not whole; checks its checksum, which takes a while."""
    head = data[at : at + _HEAD_BYTES]
    if len(head) < _HEAD_BYTES:
        return None
    length, kind = int.from_bytes(head[4:6], "little"), head[6]
    end = at + _HEAD_BYTES + length
    if not _FULL <= kind <= _LAST or end > len(data) or end - at > _BLOCK_BYTES - at % _BLOCK_BYTES:
        return None
    crc = _crc32c(data[at + 6 : end])
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return kind if masked == int.from_bytes(head[:4], "little") else None


def _crc32c(data: bytes) -> int:
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@cache
def _crc_table() -> tuple[int, ...]:
    """Make the table of CRC-32C (Castagnoli), which no library that we have knows."""
    table = []
    for each in range(256):
        for _ in range(8):
            each = each >> 1 ^ (0x82F63B78 if each & 1 else 0)
        table.append(each)
    return tuple(table)


def _check_logs(directory: Path, logs: list[int], last_sequence: int) -> None:
    following: int | None = None
    for log in logs:
        path = directory / f"{log:06d}.log"
        for record in _records(path.read_bytes()):
            sequence, count = int.from_bytes(record[:8], "little"), int.from_bytes(record[8:12], "little")
            fits = sequence <= last_sequence + 1 if following is None else sequence == following
            if not fits:
                expected = following or last_sequence + 1
                raise _damaged(path, f"a batch has number {sequence} where {expected} follows; the log is another's")
            following = sequence + count


def _read_manifest(path: Path) -> _Manifest:
    manifest = _Manifest()
    try:
        for record in _records(path.read_bytes()):
            _apply(record, manifest)
    except (IndexError, ValueError) as error:
        raise _damaged(path, "an entry does not decode") from error
    return manifest


def _apply(entry: bytes, manifest: _Manifest) -> None:
    """Take one entry in: tagged fields, of which the comparator and compaction pointers don't matter here."""
    at = 0
    while at < len(entry):
        tag, at = _varint(entry, at)
        if tag in (2, 3, 4, 9):  # Log, next file, last sequence, log before.
            value, at = _varint(entry, at)
            if tag == 2:
                manifest.log = value
            elif tag == 4:
                manifest.last_sequence = value
        elif tag == 1:  # Comparator.
            at = _skip(entry, at)
        elif tag == 5:  # Level, key from which a compaction goes on.
            at = _skip(entry, _varint(entry, at)[1])
        elif tag == 6:  # Level, table that is gone.
            number, at = _varint(entry, _varint(entry, at)[1])
            manifest.tables.pop(number, None)
        elif tag == 7:  # Level, new table: number, size, first and last key.
            number, at = _varint(entry, _varint(entry, at)[1])
            manifest.tables[number], at = _varint(entry, at)
            at = _skip(entry, _skip(entry, at))
        else:
            raise ValueError(f"tag {tag}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def _skip(data: bytes, at: int) -> int:
    length, at = _varint(data, at)
    return at + length


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a log until the first that is not whole; their checksums are LevelDB's to check."""
    at = 0
    parts: list[bytes] = []
    while at + _HEAD_BYTES <= len(data):
        room = _BLOCK_BYTES - at % _BLOCK_BYTES
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        end = at + _HEAD_BYTES + length
        if room < _HEAD_BYTES or kind == length == 0:  # A trailer, or zeros where nothing was written.
            at += room
            continue
        if end > len(data) or end - at > room:
            return
        parts = [] if kind in (_FULL, _FIRST) else parts
        parts.append(data[at + _HEAD_BYTES : end])
        if kind in (_FULL, _LAST):
            yield b"".join(parts)
        at = end


def _damaged(path: Path, what: str) -> DatabaseDamaged:
    return DatabaseDamaged(f"{path} is damaged: {what}; a start makes the database anew from the segments")
