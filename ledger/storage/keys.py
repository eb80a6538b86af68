"""What stands in the database, under which key?  One letter for each table, then keys whose borders can't move.

| table | key | value |
| --- | --- | --- |
| `s` state | kind, lp(namespace), lp(collection), key | block, index, expiry, lp(metadata), value |
| `e` expiry | u64 expiry block, state key | empty; a stale one is told by the entry's own expiry |
| `x`, `y` ids | 32 bytes of a hex id; u32 length, any other id | its places: block, index, verdict each |
| `h` history | lp(namespace), lp(key), inverted block, inverted index | empty |
| `b` blocks | u64 block | `BlockRow` |
| `B` hashes | header hash | u64 block |
| `f` faults | u64 block | index, verdict, lp(rule), lp(detail) of each invalid transaction |
| `c` config | u64 block | digest of its envelope |
| `d` collections | lp(chaincode), inverted block | CollectionConfigPackage |
| `i` intervals | u64 first block | empty: changes from that block on keep their pre-images here |
| `p` pre-images | u64 interval, state key | the entry before, as in `s`; empty if it was absent |
| `q` page pre-images | u64 interval, page key | the page before; empty if it was absent |
| `n` pages | page key of `paged_tree` | the page |
| `l` log nodes | u8 level, u64 index | hash of a complete subtree of the VLedger |
| `C` captured | u64 block | flags of a captured checkpoint |
| `r` roots | u64 block | what was computed of it |
| `S` segments | `k` or `b` (kept, bodies), u64 first block | u64 size of a segment that is full |
| `m` meta | a name | savepoint, tree, format; u64 block of the checkpoint that was joined from |

Ascending keys of `s` are ordered by kind, then by *length* and bytes of namespace and collection, then by key.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ledger.core.encoding import Reader, lp, u8, u32, u64
from ledger.core.errors import Fault
from ledger.core.names import BlockNumber, Digest, TxId, TxIndex
from ledger.core.state import Entry, StateKey, TxPlace, Version
from ledger.storage.segments import Place, Position

FORMAT = 1
"""Version of this layout; a database of another one is made again from the segments."""

STATE, EXPIRY, HEX_ID, OTHER_ID, HISTORY = b"s", b"e", b"x", b"y", b"h"
BLOCK, BLOCK_HASH, FAULTS, CONFIG, COLLECTIONS = b"b", b"B", b"f", b"c", b"d"
INTERVAL, PRE_IMAGE, PAGE_PRE_IMAGE, PAGE, LOG_NODE = b"i", b"p", b"q", b"n", b"l"
CAPTURED, ROOTS, SEGMENT = b"C", b"r", b"S"
SAVEPOINT_KEY, TREE_KEY, JOINED_KEY = b"msavepoint", b"mtree", b"mjoined"

_ENTRY = struct.Struct(">QIQI")
_PLACE = struct.Struct(">QIB")
_U64_MAX = 2**64 - 1
_U32_MAX = 2**32 - 1
_PREFIXES: dict[tuple[int, str, str], bytes] = {}
_PREFIXES_MAX = 10_000


# State


def state_key(key: StateKey) -> bytes:
    """Name an entry in the database."""
    kind, namespace, collection, name = key
    prefix = _PREFIXES.get((kind, namespace, collection))
    if prefix is None:
        prefix = STATE + u8(kind) + lp(namespace) + lp(collection)
        if len(_PREFIXES) < _PREFIXES_MAX and len(prefix) < 256:
            _PREFIXES[(kind, namespace, collection)] = prefix
    return prefix + name


def state_key_of(raw: bytes) -> StateKey:
    """Read an entry's name back."""
    kind = raw[1]
    at = 6 + int.from_bytes(raw[2:6], "big")
    namespace = raw[6:at].decode()
    end = at + 4 + int.from_bytes(raw[at : at + 4], "big")
    return StateKey(kind, namespace, raw[at + 4 : end].decode(), raw[end:])


def entry_value(entry: Entry) -> bytes:
    """Write an entry."""
    value, (block, index), metadata, expiry = entry
    return _ENTRY.pack(block, index, expiry, len(metadata)) + metadata + value


def entry_of(raw: bytes) -> Entry:
    """Read an entry."""
    block, index, expiry, length = _ENTRY.unpack_from(raw)
    at = _ENTRY.size + length
    return Entry(raw[at:], Version(BlockNumber(block), TxIndex(index)), raw[_ENTRY.size : at], expiry)


def expiry_key(expiry: int, raw_state_key: bytes) -> bytes:
    """Name what expires in a block."""
    return EXPIRY + u64(expiry) + raw_state_key


# Transactions


def id_key(tx_id: TxId) -> bytes:
    """Name a claimed id: hex ones, as a rule all, take half the room."""
    if len(tx_id) == 64:
        try:
            raw = bytes.fromhex(tx_id)
        except ValueError:
            raw = b""
        if raw.hex() == tx_id:
            return HEX_ID + raw
    text = tx_id.encode()
    return OTHER_ID + u32(len(text)) + text


def id_of(raw: bytes) -> TxId:
    """Read a claimed id back."""
    return TxId(raw[1:].hex() if raw[:1] == HEX_ID else raw[5:].decode())


def place_value(block: int, index: int, verdict: int) -> bytes:
    """Write a place of an id; places are added at the end."""
    return _PLACE.pack(block, index, verdict)


def places_of(raw: bytes) -> tuple[TxPlace, ...]:
    """Read all places of an id."""
    return tuple(
        TxPlace(BlockNumber(block), TxIndex(index), verdict) for block, index, verdict in _PLACE.iter_unpack(raw)
    )


def history_prefix(namespace: str, key: str) -> bytes:
    """Begin of the history of a public key."""
    return HISTORY + lp(namespace) + lp(key)


def history_suffix(block: int, index: int) -> bytes:
    """End of a history key: the newest come first."""
    return u64(_U64_MAX - block) + u32(_U32_MAX - index)


def history_place(raw: bytes) -> tuple[BlockNumber, TxIndex]:
    """Read block and index of a history key."""
    block, index = int.from_bytes(raw[-12:-4], "big"), int.from_bytes(raw[-4:], "big")
    return BlockNumber(_U64_MAX - block), TxIndex(_U32_MAX - index)


# Blocks


class BlockRow(NamedTuple):
    """What the database says of a block."""

    block_hash: Digest
    vblock_hash: Digest
    tx_root: Digest
    is_config: bool
    last_config: BlockNumber
    kept: Place
    """Where its kept record lies."""

    bodies: Place | None
    """Where the bodies of its invalid transactions lie, or lay; None if it has none."""

    commit_hash: bytes
    verdicts: bytes


_ROW = struct.Struct(">32s32s32sBQQQIQQI")


def block_key(number: int) -> bytes:
    """Name a block's row."""
    return BLOCK + u64(number)


def row_value(row: BlockRow) -> bytes:
    """Write a block's row."""
    bodies = row.bodies or Place(0, 0, 0)
    return (
        _ROW.pack(row.block_hash, row.vblock_hash, row.tx_root, row.is_config, row.last_config, *row.kept, *bodies)
        + lp(row.commit_hash)
        + row.verdicts
    )


def row_of(raw: bytes) -> BlockRow:
    """Read a block's row."""
    block_hash, vblock_hash, tx_root, is_config, last_config, *places = _ROW.unpack_from(raw)
    at = _ROW.size + 4
    end = at + int.from_bytes(raw[_ROW.size : at], "big")
    return BlockRow(
        Digest(block_hash),
        Digest(vblock_hash),
        Digest(tx_root),
        bool(is_config),
        BlockNumber(last_config),
        Place(*places[:3]),
        Place(*places[3:]) if places[5] else None,
        raw[at:end],
        raw[end:],
    )


def faults_value(faults: Iterable[tuple[TxIndex, Fault]]) -> bytes:
    """Write why transactions are invalid."""
    return b"".join([u32(index) + u8(fault.verdict) + lp(fault.rule) + lp(fault.detail) for index, fault in faults])


def faults_of(raw: bytes) -> Iterator[tuple[TxIndex, Fault]]:
    """Read why transactions are invalid."""
    reader = Reader(raw, "faults")
    while reader.offset < len(raw):
        yield TxIndex(reader.u32()), Fault(reader.u8(), reader.text(), reader.text())


def collections_key(namespace: str, block: int) -> bytes:
    """Name a commit of collections: per chaincode, the newest first."""
    return COLLECTIONS + lp(namespace) + u64(_U64_MAX - block)


def collections_of(raw: bytes) -> tuple[str, BlockNumber]:
    """Read chaincode and block of a commit of collections."""
    return raw[5:-8].decode(), BlockNumber(_U64_MAX - int.from_bytes(raw[-8:], "big"))


# The savepoint


class Savepoint(NamedTuple):
    """The last block that counts, and how far each file does."""

    height: int
    """Number of blocks committed."""

    kept: Position | None
    bodies: Position | None
    block_hash: Digest
    vblock_hash: Digest
    commit_hash: bytes
    last_config: BlockNumber
    interval: BlockNumber
    """First block of the interval that pre-images go to."""


_SAVEPOINT = struct.Struct(">IQ?QQ?QQ32s32sQQ")


def savepoint_value(savepoint: Savepoint) -> bytes:
    """Write the savepoint."""
    none = Position(0, 0)
    return (
        _SAVEPOINT.pack(
            FORMAT,
            savepoint.height,
            savepoint.kept is not None,
            *(savepoint.kept or none),
            savepoint.bodies is not None,
            *(savepoint.bodies or none),
            savepoint.block_hash,
            savepoint.vblock_hash,
            savepoint.last_config,
            savepoint.interval,
        )
        + savepoint.commit_hash
    )


def savepoint_format(raw: bytes) -> int:
    """Read the version of the layout that a database was written with."""
    return int.from_bytes(raw[:4], "big")


def savepoint_of(raw: bytes) -> Savepoint:
    """Read the savepoint."""
    _, height, has_kept, kept_file, kept_size, has_bodies, bodies_file, bodies_size, *rest = _SAVEPOINT.unpack_from(raw)
    return Savepoint(
        height,
        Position(kept_file, kept_size) if has_kept else None,
        Position(bodies_file, bodies_size) if has_bodies else None,
        Digest(rest[0]),
        Digest(rest[1]),
        raw[_SAVEPOINT.size :],
        BlockNumber(rest[2]),
        BlockNumber(rest[3]),
    )
