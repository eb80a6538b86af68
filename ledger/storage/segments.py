"""How do records of blocks lie in files, so that a torn one is seen and certificates are kept once?

A segment is an append-only file, named after the first block it is for:

    header      magic(8) | u64 first block | u64 end | u32 crc of these          blocks [first, end) may lie in it
    record      u8 kind | u64 block | u64 dictionary | u32 raw length | u32 length | payload(length) | u32 crc of these

Kind 1 is a block, kind 3 a block whose bodies of invalid transactions lie in another folder: its content compressed
with zstd. What repeats from block to block are certificates: when a block brings one that the segment has not met, a
record of kind 2 before it holds all certificates so far as a dictionary for zstd, and `dictionary` of the blocks behind
it is that record's offset (0: none). A reader needs two records at most.

One `SegmentFolder` keeps the segments of one kind. It appends through one open file; reading opens files anew, so that
a segment may be removed at any time.
"""

import struct
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import BinaryIO, NamedTuple
from zlib import crc32

import zstandard

from ledger.core.errors import StorageDamaged
from ledger.core.names import BlockNumber
from ledger.storage.files import AppendFile, Files

RECORD_BLOCK = 1
RECORD_DICTIONARY = 2
RECORD_BLOCK_WITH_BODIES = 3
DICTIONARY_BYTES_MAX = 32 << 10
COMPRESSION_LEVEL = 3
CONTENT_BYTES_MAX = 1 << 31
NO_END = 2**64 - 1

_HEADER = struct.Struct(">8sQQI")
HEADER_BYTES = _HEADER.size
"""Size of a segment without records."""

_FRAME = struct.Struct(">BQQII")
_CRC = struct.Struct(">I")
_DICTIONARIES_CACHED = 64
_BEGIN = b"-----BEGIN CERTIFICATE-----"
_END = b"-----END CERTIFICATE-----"
_CERTIFICATE_BYTES_MAX = 4096
_FINGERPRINT = slice(len(_BEGIN) + 1, len(_BEGIN) + 97)
"""The first 96 characters of a certificate: they hold its serial number."""


class Place(NamedTuple):
    """Where a record lies."""

    file: int
    """First block of its segment, which names the file."""

    offset: int
    length: int


class Position(NamedTuple):
    """How far a folder counts: the segment that is appended to, and its size."""

    file: int
    size: int


class Record(NamedTuple):
    """A record as a scan meets it, not yet decompressed."""

    place: Place
    kind: int
    number: BlockNumber
    dictionary: int
    raw_length: int
    payload: bytes


class SegmentFolder:
    """The segments of one kind of one channel.

    Args:
        files: The durable verbs.
        directory: Their folder; it is there.
        suffix: What their names end in.
        magic: Eight bytes that their files begin with.
    """

    def __init__(self, files: Files, directory: Path, *, suffix: str, magic: bytes) -> None:
        """Stand before any segment; `resume` or `begin` comes next."""
        assert len(magic) == 8
        self.directory = directory
        self._files = files
        self._suffix = suffix
        self._magic = magic
        self._file: AppendFile | None = None
        self._first = -1
        self.end = 0
        """Bound of the blocks that may go to the present segment."""
        self._dictionary = _Dictionary()
        self._dictionaries: OrderedDict[tuple[int, int], zstandard.ZstdCompressionDict] = OrderedDict()
        self._lock = Lock()

    # Appending: one thread.

    @property
    def position(self) -> Position | None:
        """How far is appended; None before the first segment."""
        return None if self._file is None else Position(self._first, self._file.size)

    def resume(self, position: Position | None) -> None:
        """Append behind a position, in a segment that is there."""
        self._close_file()
        if position is None:
            self.end = 0
            return
        path = self.path(position.file)
        self._first, self.end = position.file, self._bounds(path)[1]
        self._file = self._files.open(path, position.size)
        self._dictionary = _Dictionary()

    def begin(self, first: BlockNumber, end: int = NO_END) -> None:
        """Begin a new segment; the one before is synced and closed."""
        if self._file is not None:
            self._file.sync()
        self._close_file()
        header = _HEADER.pack(self._magic, first, end, 0)[:-4]
        self._file = self._files.create(self.path(first), header + _CRC.pack(crc32(header)))
        self._first, self.end = first, end
        self._dictionary = _Dictionary()

    def append(self, number: BlockNumber, content: bytes, kind: int = RECORD_BLOCK) -> Place:
        """Append a block's content; durable only after `sync`."""
        assert self._file is not None and len(content) < CONTENT_BYTES_MAX
        dictionary = self._dictionary
        if dictionary.learn(content):
            raw = dictionary.content
            payload = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compress(raw)
            frame = _frame(RECORD_DICTIONARY, number, 0, len(raw), payload)
            dictionary.offset = self._file.append(frame)
        payload = dictionary.compressor.compress(content)
        frame = _frame(kind, number, dictionary.offset, len(content), payload)
        return Place(self._first, self._file.append(frame), len(frame))

    def append_again(self, place: Place) -> None:
        """Write what is there already, from the present position to a record's end, once more.

        So the next sync covers it, the dictionary before it and the segment's header too, whatever sync failed before.
        """
        if self._file is None or self._first != place.file:
            self.sync()
            self.resume(Position(place.file, 0))
        assert self._file is not None
        end = place.offset + place.length
        self._file.append(self._files.read(self._file.path, self._file.size, end - self._file.size))
        assert self._file.size == end, "a scan found the record whole"

    def sync(self) -> None:
        """Make everything appended durable."""
        if self._file is not None:
            self._file.sync()

    def go_back(self, position: Position | None) -> None:
        """Cut off what was appended behind a position, segments begun since included."""
        self._close_file()
        for first in self.segments():
            if position is None or first > position.file:
                self._files.unlink(self.path(first))
        self._files.sync_directory(self.directory)
        self.resume(position)
        if self._file is not None and position is not None and self._files.size(self._file.path) > position.size:
            self._file.cut(position.size)

    def close(self) -> None:
        """Close the open file."""
        self._close_file()

    # Reading: any thread.

    def path(self, first: int) -> Path:
        """Name the file of the segment that begins with a block."""
        return self.directory / f"{first:012d}{self._suffix}"

    def segments(self) -> list[int]:
        """List the first blocks of all segments, ascending; files with other names are nobody's business."""
        suffix = self._suffix
        stems = [name.removesuffix(suffix) for name in self._files.names(self.directory) if name.endswith(suffix)]
        return sorted(int(stem) for stem in stems if stem.isdecimal() and stem == f"{int(stem):012d}")

    def size(self, first: int) -> int:
        """Return the size of a segment in bytes, -1 if it is not there."""
        return self._files.size(self.path(first))

    def bounds(self, first: int) -> tuple[int, int]:
        """Return the blocks `[first, end)` that a segment is for.

        Raises:
            StorageDamaged: Its header is not whole.
        """
        return self._bounds(self.path(first))

    def read(self, place: Place, number: BlockNumber) -> bytes:
        """Read a block's content.

        Raises:
            FileNotFoundError: The segment is gone.
            StorageDamaged: The record is not what was written.
        """
        return self.content(self.read_record(place, number))

    def read_record(self, place: Place, number: BlockNumber) -> Record:
        """Read a block's record and check its checksum and number."""
        path = self.path(place.file)
        record = _parse(self._files.read(path, place.offset, place.length), place.file, place.offset)
        if record is None or record.kind == RECORD_DICTIONARY or record.number != number:
            raise damaged(path, place.offset, f"no whole record of block {number}")
        return record

    def content(self, record: Record) -> bytes:
        """Decompress a record.

        Raises:
            StorageDamaged: It does not give what was written.
        """
        place = record.place
        dictionary = self._load_dictionary(place.file, record.dictionary) if record.dictionary else None
        decompressor = zstandard.ZstdDecompressor(dict_data=dictionary) if dictionary else _PLAIN()
        try:
            content = decompressor.decompress(record.payload, max_output_size=record.raw_length)
        except zstandard.ZstdError as error:
            raise damaged(self.path(place.file), place.offset, f"compression: {error}") from error
        if len(content) != record.raw_length:
            raise damaged(self.path(place.file), place.offset, f"{len(content)} bytes instead of {record.raw_length}")
        return bytes(content)

    def scan(self, first: int, offset: int = 0) -> Iterator[Record]:
        """Yield the whole records of blocks of a segment from an offset on; end quietly before the first torn one."""
        path = self.path(first)
        if self._header(path) is None:
            return
        with self._files.reader(path) as file:
            file.seek(max(offset, _HEADER.size))
            while (record := _next(file, first)) is not None:
                if record.kind != RECORD_DICTIONARY:
                    yield record

    def numbers_behind(self, first: int, offset: int) -> Iterator[BlockNumber]:
        """Yield the numbers of whole records behind a damaged one, as far as the lengths of records lead."""
        with self._files.reader(self.path(first)) as file:
            file.seek(max(offset, _HEADER.size))
            while len(head := file.read(_FRAME.size)) == _FRAME.size:
                at = file.tell() - _FRAME.size
                rest = file.read(min(_FRAME.unpack(head)[4], CONTENT_BYTES_MAX) + _CRC.size)
                record = _parse(head + rest, first, at)
                if record is not None:
                    yield record.number

    def header_size(self) -> int:
        """Size of a segment without records."""
        return _HEADER.size

    def has_whole_header(self, first: int) -> bool:
        """Tell whether a segment's header is whole; a crash may leave a file without one."""
        return self._header(self.path(first)) is not None

    def _header(self, path: Path) -> tuple[int, int] | None:
        raw = self._files.read(path, 0, _HEADER.size)
        if len(raw) < _HEADER.size:
            return None
        magic, first, end, crc = _HEADER.unpack(raw)
        return (first, end) if magic == self._magic and crc == crc32(raw[:-4]) else None

    def _bounds(self, path: Path) -> tuple[int, int]:
        bounds = self._header(path)
        if bounds is None:
            raise damaged(path, 0, "no whole header")
        return bounds

    def _load_dictionary(self, first: int, offset: int) -> zstandard.ZstdCompressionDict:
        with self._lock:
            found = self._dictionaries.get((first, offset))
            if found is not None:
                self._dictionaries.move_to_end((first, offset))
                return found
        path = self.path(first)
        head = self._files.read(path, offset, _FRAME.size)
        length = _FRAME.unpack(head)[4] if len(head) == _FRAME.size else 0
        record = _parse(self._files.read(path, offset, _FRAME.size + length + _CRC.size), first, offset)
        if record is None or record.kind != RECORD_DICTIONARY:
            raise damaged(path, offset, "no whole dictionary")
        raw = _PLAIN().decompress(record.payload, max_output_size=record.raw_length)
        dictionary = zstandard.ZstdCompressionDict(raw, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        with self._lock:
            self._dictionaries[(first, offset)] = dictionary
            while len(self._dictionaries) > _DICTIONARIES_CACHED:
                self._dictionaries.popitem(last=False)
        return dictionary

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


_PLAIN = zstandard.ZstdDecompressor


class _Dictionary:
    """The certificates that a segment has met, while it is appended to."""

    def __init__(self) -> None:
        self.content = b""
        self.offset = 0
        self.compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL)
        self._met: set[bytes] = set()

    def learn(self, content: bytes) -> bool:
        """Look for certificates that are new, and take them in; returns whether there are any."""
        new: list[bytes] = []
        room = DICTIONARY_BYTES_MAX - len(self.content)
        at = content.find(_BEGIN)
        while at >= 0 and room > 0:
            fingerprint = content[at + _FINGERPRINT.start : at + _FINGERPRINT.stop]
            if fingerprint not in self._met:
                end = content.find(_END, at, at + _CERTIFICATE_BYTES_MAX)
                if end < 0:
                    at = content.find(_BEGIN, at + len(_BEGIN))
                    continue
                self._met.add(fingerprint)
                new.append(content[at : end + len(_END)])
                room -= len(new[-1])
            at = content.find(_BEGIN, at + len(_BEGIN))
        if not new:
            return False
        self.content += b"".join(new)
        dictionary = zstandard.ZstdCompressionDict(self.content, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        dictionary.precompute_compress(level=COMPRESSION_LEVEL)
        self.compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, dict_data=dictionary)
        return True


def damaged(path: Path, offset: int, what: str) -> StorageDamaged:
    """Say which record of which file is not what was written, and what to do about it."""
    return StorageDamaged(
        f"{path} is damaged: record at {offset}: {what}; stop the peer and run `peerledger rebuild --cut`, which cuts"
        " to the last whole block and fetches the rest"
    )


def _frame(kind: int, number: BlockNumber, dictionary: int, raw_length: int, payload: bytes) -> bytes:
    head = _FRAME.pack(kind, number, dictionary, raw_length, len(payload))
    return b"".join((head, payload, _CRC.pack(crc32(payload, crc32(head)))))


def _parse(frame: bytes, first: int, offset: int) -> Record | None:
    """Read one record; None if it is not whole."""
    if len(frame) < _FRAME.size + _CRC.size:
        return None
    kind, number, dictionary, raw_length, length = _FRAME.unpack_from(frame)
    end = _FRAME.size + length
    if len(frame) != end + _CRC.size or crc32(frame[:end]) != _CRC.unpack_from(frame, end)[0]:
        return None
    return Record(
        Place(first, offset, len(frame)), kind, BlockNumber(number), dictionary, raw_length, frame[_FRAME.size : end]
    )


def _next(file: BinaryIO, first: int) -> Record | None:
    """Read the next record of a file; None at the end, or before a torn one."""
    offset = file.tell()
    head = file.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    length = _FRAME.unpack(head)[4]
    if length > CONTENT_BYTES_MAX:
        return None
    return _parse(head + file.read(length + _CRC.size), first, offset)
