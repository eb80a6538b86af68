"""What does Fabric's snapshot of this state look like, and does a recorded one hold the same?

Format (fabric: common/ledger/snapshot/file.go and the exporters named below): each file begins with the byte 1;
strings, bytes and messages follow as uvarint length and content, numbers as uvarint. Files, each a `.data` and a
`.metadata`, are there only if they hold something:

- `public_state`, `private_state_hashes` (core/ledger/kvledger/txmgmt/privacyenabledstate/snapshot.go): a SnapshotRecord
  of key, value, metadata, version each, in the order of namespace 00 key; as metadata the number of namespaces, then
  name and count of records of each. Namespaces of hashes are named `<namespace>$$h<collection>`.
- `txids` (common/ledger/blkstorage/blockindex.go): each id once, by (length, bytes); the count.
- `confighistory` (core/ledger/confighistory/mgr.go): `s lscc 00 <chaincode>~collection <2^64-1 - block>` and
  CollectionConfigPackage, in the order of the keys; the count.

`_snapshot_signable_metadata.json` names their hashes, `_snapshot_additional_metadata.json` the hash of that file.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from ledger.core.commit_hash import version_bytes
from ledger.core.encoding import Reader, u64, uvarint
from ledger.core.errors import InvalidSetting, MalformedMessage, StorageFailed, shown
from ledger.core.names import BlockNumber, TxId
from ledger.core.state import PUBLIC, Entry, StateKey
from ledger.storage.ledger_values import CollectionCommit

FORMAT = b"\x01"
SIGNABLE = "_snapshot_signable_metadata.json"
ADDITIONAL = "_snapshot_additional_metadata.json"
KINDS = ("public_state", "private_state_hashes", "txids", "confighistory")
"""Kinds of records; each has a data and a metadata file."""

BLOCK_MAX = 2**64 - 1


class SnapshotSource(Protocol):
    """What a snapshot is made from: a ledger as of its last block."""

    def iter_state(self) -> Iterator[tuple[StateKey, Entry]]:
        """Yield all live entries, in any order."""
        ...

    def iter_tx_ids(self) -> Iterator[TxId]:
        """Yield each distinct claimed id once, in any order."""
        ...

    def collection_commits(self) -> Iterator[CollectionCommit]:
        """Yield each commit of a definition that set collections, in any order."""
        ...


@dataclass(frozen=True, slots=True)
class ChannelPoint:
    """Which block of which channel a snapshot is of."""

    channel: str
    number: BlockNumber
    block_hash: bytes
    previous_hash: bytes
    commit_hash: bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """The first record that differs."""

    what: str
    """Kind of the record, one of `KINDS`, or the file compared."""

    key: str | None
    """The record: namespace and key, or id."""

    expected: str
    """What the recorded snapshot holds."""

    found: str
    """What the ledger holds."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a ledger's state compares with a recorded snapshot."""

    mismatches: int
    """Records that differ, are missing, or are too many; a file that differs though its records don't counts as one."""

    first: Difference | None

    files_equal: bool
    """Whether the rebuilt data and metadata files are the recorded ones, byte for byte."""


Records = list[tuple[bytes, bytes]]
"""Records of one kind in the order of the file: what names the record, and the item of the file, without length."""


def snapshot_records(source: SnapshotSource) -> dict[str, Records]:
    """List the records of each kind, in the order of the files."""
    public: Records = []
    hashes: Records = []
    for key, entry in source.iter_state():
        if key.kind == PUBLIC:
            public.append((key.namespace.encode() + b"\0" + key.key, record(key, entry)))
        else:
            namespace = f"{key.namespace}$$h{key.collection}"
            hashes.append((namespace.encode() + b"\0" + key.key, record(key, entry)))
    ids = sorted((tx_id.encode() for tx_id in source.iter_tx_ids()), key=lambda each: (len(each), each))
    commits = [
        (b"slscc\0" + each.namespace.encode() + b"~collection" + u64(BLOCK_MAX - each.block), each.package)
        for each in source.collection_commits()
    ]
    return {
        "public_state": sorted(public),
        "private_state_hashes": sorted(hashes),
        "txids": [(each, each) for each in ids],
        "confighistory": sorted(commits),
    }


def record(key: StateKey, entry: Entry) -> bytes:
    """Encode a SnapshotRecord: key 1, value 2, metadata 3, version 4."""
    parts = [
        (b"\x0a", key.key),
        (b"\x12", entry.value),
        (b"\x1a", entry.metadata),
        (b"\x22", version_bytes(entry.version)),
    ]
    return b"".join(tag + item(content) for tag, content in parts if content)


def item(content: bytes) -> bytes:
    """Write counted bytes."""
    return uvarint(len(content)) + content


def snapshot_files(source: SnapshotSource) -> dict[str, bytes]:
    """Make the data and metadata files of a ledger's snapshot, by name."""
    return {name: data for kind, records in snapshot_records(source).items() for name, data in files_of(kind, records)}


def files_of(kind: str, records: Records) -> Iterator[tuple[str, bytes]]:
    """Make the two files of a kind; none where there are no records."""
    if not records:
        return
    if kind == "confighistory":
        content = b"".join(item(key) + item(value) for key, value in records)
    else:
        content = b"".join(item(value) for _, value in records)
    yield f"{kind}.data", FORMAT + content
    if kind in ("txids", "confighistory"):
        yield f"{kind}.metadata", FORMAT + uvarint(len(records))
        return
    counts: dict[bytes, int] = {}
    for key, _ in records:
        namespace = key.partition(b"\0")[0]
        counts[namespace] = counts.get(namespace, 0) + 1
    names = b"".join(item(name) + uvarint(count) for name, count in counts.items())
    yield f"{kind}.metadata", FORMAT + uvarint(len(counts)) + names


def signable_json(point: ChannelPoint, files: Mapping[str, bytes]) -> bytes:
    """Write the metadata that peers of a channel agree on."""
    members = {
        "channel_name": point.channel,
        "last_block_number": point.number,
        "last_block_hash": point.block_hash.hex(),
        "previous_block_hash": point.previous_hash.hex(),
        "snapshot_files_raw_hashes": {name: sha256(files[name]).hexdigest() for name in sorted(files)},
        "state_db_type": "SimpleKeyValueDB",
    }
    return json.dumps(members, indent=4).encode()


def additional_json(point: ChannelPoint, signable: bytes) -> bytes:
    """Write the metadata that holds the hash of the other."""
    members = {"snapshot_hash": sha256(signable).hexdigest(), "last_block_commit_hash": point.commit_hash.hex()}
    return json.dumps(members, indent=4).encode()


def write_snapshot(source: SnapshotSource, point: ChannelPoint, directory: Path) -> bytes:
    """Write a snapshot in Fabric's format.

    Args:
        source: The ledger.
        point: Its last block.
        directory: An empty directory.

    Returns:
        The snapshot hash.

    Raises:
        StorageFailed: A file can't be written.

    Durability: none; whoever needs it syncs the directory.
    """
    files = snapshot_files(source)
    signable = signable_json(point, files)
    try:
        for name, data in {**files, SIGNABLE: signable, ADDITIONAL: additional_json(point, signable)}.items():
            (directory / name).write_bytes(data)
    except OSError as error:
        raise StorageFailed(f"{directory}: {error}") from error
    return sha256(signable).digest()


def compare_snapshot(source: SnapshotSource, directory: Path) -> Comparison:
    """Compare the state of a ledger with a recorded snapshot, record by record and byte for byte.

    Args:
        source: The ledger as of the block that the snapshot is of.
        directory: The recorded snapshot.

    Raises:
        InvalidSetting: The directory holds no snapshot.
        MalformedMessage: A file of it does not decode.
        StorageFailed: A file of it can't be read.
    """
    recorded = read_files(directory)
    if not recorded:
        raise InvalidSetting(f"{directory}", rule="snapshot directory", expected="files of a snapshot", found="none")
    mismatches = 0
    first: Difference | None = None
    files_equal = True
    for kind, records in snapshot_records(source).items():
        ours = dict(files_of(kind, records))
        theirs = {name: data for name, data in recorded.items() if name.split(".")[0] == kind}
        if ours == theirs:
            continue
        files_equal = False
        differences = list(compare_records(kind, parsed(kind, theirs), records))
        if not differences:  # The same records in another order, or other counts.
            differences = [Difference(f"{kind} files", None, hashes(theirs), hashes(ours))]
        mismatches += len(differences)
        first = first or differences[0]
    return Comparison(mismatches, first, files_equal)


def read_files(directory: Path) -> dict[str, bytes]:
    """Read the data and metadata files of a recorded snapshot.

    Raises:
        StorageFailed: One can't be read.
    """
    names = [f"{kind}.{suffix}" for kind in KINDS for suffix in ("data", "metadata")]
    try:
        return {name: (directory / name).read_bytes() for name in names if (directory / name).exists()}
    except OSError as error:
        raise StorageFailed(f"{directory}: {error}") from error


def parsed(kind: str, files: Mapping[str, bytes]) -> Records:
    """Take a recorded data file apart, with its metadata file for what the records are named by.

    Raises:
        MalformedMessage: It does not follow the format.
    """
    data = opened(f"{kind}.data", files)
    if kind == "confighistory":
        records: Records = []
        while data.offset < len(data.data):
            records.append((data.take(data.uvarint()), data.take(data.uvarint())))
        return records
    contents: list[bytes] = []
    while data.offset < len(data.data):
        contents.append(data.take(data.uvarint()))
    if kind == "txids":
        return [(each, each) for each in contents]
    namespaces = namespaces_of(opened(f"{kind}.metadata", files))
    if len(namespaces) != len(contents):
        raise MalformedMessage(f"{kind}.data", rule="record count", expected=len(namespaces), found=len(contents))
    return [
        (namespace + b"\0" + key_of(content), content) for namespace, content in zip(namespaces, contents, strict=True)
    ]


def opened(name: str, files: Mapping[str, bytes]) -> Reader:
    """Stand behind the format byte of a file; a file that is not there is an empty one.

    Raises:
        MalformedMessage: It has another format.
    """
    reader = Reader(files.get(name, FORMAT), name)
    if reader.take(1) != FORMAT:
        raise MalformedMessage(name, rule="snapshot format", expected=FORMAT, found=files[name][:1])
    return reader


def namespaces_of(metadata: Reader) -> list[bytes]:
    """List the namespace of each record."""
    found: list[bytes] = []
    if metadata.offset < len(metadata.data):
        for _ in range(metadata.uvarint()):
            name = metadata.take(metadata.uvarint())
            found += [name] * metadata.uvarint()
    return found


def key_of(content: bytes) -> bytes:
    """Take the key out of a SnapshotRecord; an empty one is left out there."""
    reader = Reader(content, "SnapshotRecord")
    if not content or reader.u8() != 0x0A:
        return b""
    return reader.take(reader.uvarint())


def compare_records(kind: str, theirs: Records, ours: Records) -> Iterator[Difference]:
    """Pair recorded and own records by what names them, and yield those that differ, in the order of the names."""
    expected, found = dict(theirs), dict(ours)
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            contents = (shown(expected.get(name, "absent")), shown(found.get(name, "absent")))
            yield Difference(kind, shown(text(name)), *contents)


def text(key: bytes) -> str:
    """Show a key: as text where it is some."""
    try:
        return ascii(key.decode())[1:-1]
    except UnicodeDecodeError:
        return key.hex()


def hashes(files: Mapping[str, bytes]) -> str:
    """Show the hashes of files."""
    return ", ".join(f"{name} {sha256(data).hexdigest()}" for name, data in sorted(files.items())) or "none"


__all__ = [
    "ChannelPoint",
    "Comparison",
    "Difference",
    "SnapshotSource",
    "compare_snapshot",
    "snapshot_files",
    "write_snapshot",
]
