"""What did a simulation read and write, in the order that all endorsers use?

Endorsements of different peers combine only if their results are equal byte for byte, so order is a rule: namespaces,
keys and collections ascend by UTF-8 bytes (which is how Python compares text), range queries stand in the order of
their creation without repetitions, hashed entries ascend by the *plaintext* key.

Source: hyperledger/fabric v3.1.5, core/ledger/kvledger/txmgmt/rwsetutil/rwset_builder.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from ledger.chaincode.ranges import RangeScan
from ledger.core.rwset import (
    CollectionSet,
    HashedMetadataWrite,
    HashedRead,
    HashedWrite,
    MetadataWrite,
    NamespaceSet,
    RangeQuery,
    Read,
    ReadWriteSet,
    Write,
)
from ledger.core.state import Version
from ledger.wire.rwset import encode_kv

MetadataEntries = Mapping[str, bytes]
"""Metadata of one key by name."""


@dataclass(frozen=True, slots=True)
class PrivateWrite:
    """The last write of a private key."""

    value: bytes
    is_purge: bool = False

    @property
    def is_delete(self) -> bool:
        """Whether the key goes; an empty value can't be stored."""
        return not self.value


@dataclass(slots=True)
class CollectionBuilder:
    """Reads and writes in one collection, by plaintext key."""

    reads: dict[str, Version | None] = field(default_factory=dict)
    writes: dict[str, PrivateWrite] = field(default_factory=dict)
    metadata_writes: dict[str, MetadataEntries] = field(default_factory=dict)

    def build(self, name: str) -> CollectionSet:
        """Hash keys and values; the plaintext is in the hash of the private set only."""
        return CollectionSet(
            name,
            reads=tuple(HashedRead(hash_key(key), version) for key, version in sorted(self.reads.items())),
            writes=tuple(
                HashedWrite(
                    hash_key(key),
                    b"" if write.is_delete else sha256(write.value).digest(),
                    is_delete=write.is_delete,
                    is_purge=write.is_purge,
                )
                for key, write in sorted(self.writes.items(), key=_key)
            ),
            metadata_writes=tuple(
                HashedMetadataWrite(hash_key(key), tuple(sorted(entries.items())))
                for key, entries in sorted(self.metadata_writes.items(), key=_key)
            ),
            pvt_rwset_hash=self._private_hash(),
        )

    def _private_hash(self) -> bytes:
        """Hash the set of plaintext writes that peers pass on aside; metadata stands in it by key only."""
        if not self.writes and not self.metadata_writes:
            return b""
        writes = tuple(Write(key, w.value, w.is_delete) for key, w in sorted(self.writes.items(), key=_key))
        marks = tuple(MetadataWrite(key, ()) for key in sorted(self.metadata_writes))
        return sha256(encode_kv(NamespaceSet("", writes=writes, metadata_writes=marks))).digest()


@dataclass(slots=True)
class NamespaceBuilder:
    """Reads and writes in one namespace."""

    reads: dict[str, Version | None] = field(default_factory=dict)
    scans: list[RangeScan] = field(default_factory=list)
    writes: dict[str, bytes] = field(default_factory=dict)
    """Last value per key; an empty one is a delete."""

    metadata_writes: dict[str, MetadataEntries] = field(default_factory=dict)
    collections: dict[str, CollectionBuilder] = field(default_factory=dict)

    def collection(self, name: str) -> CollectionBuilder:
        """Return the builder of a collection."""
        return self.collections.setdefault(name, CollectionBuilder())

    def build(self, name: str) -> NamespaceSet:
        """Put everything in order."""
        return NamespaceSet(
            name,
            reads=tuple(Read(key, version) for key, version in sorted(self.reads.items(), key=_key)),
            range_queries=self._range_queries(),
            writes=tuple(Write(key, value, is_delete=not value) for key, value in sorted(self.writes.items())),
            metadata_writes=tuple(
                MetadataWrite(key, tuple(sorted(entries.items())))
                for key, entries in sorted(self.metadata_writes.items(), key=_key)
            ),
            collections=tuple(builder.build(coll) for coll, builder in sorted(self.collections.items(), key=_key)),
        )

    def _range_queries(self) -> tuple[RangeQuery, ...]:
        """Record the queries in the order of their creation, each (start, end, exhausted) once."""
        records: dict[tuple[str, str, bool], RangeQuery] = {}
        for scan in self.scans:
            record = scan.record()
            records.setdefault((record.start, record.end, record.exhausted), record)
        return tuple(records.values())


class RwsetBuilder:
    """Collects what one simulation does, over all namespaces."""

    def __init__(self) -> None:
        """Begin with nothing read and nothing written."""
        self._namespaces: dict[str, NamespaceBuilder] = {}

    def namespace(self, name: str) -> NamespaceBuilder:
        """Return the builder of a namespace, which from now on appears in the set."""
        return self._namespaces.setdefault(name, NamespaceBuilder())

    @property
    def names(self) -> tuple[str, ...]:
        """Namespaces touched, ascending."""
        return tuple(sorted(self._namespaces))

    def scans(self) -> list[RangeScan]:
        """Return all range queries."""
        return [scan for builder in self._namespaces.values() for scan in builder.scans]

    def build(self) -> ReadWriteSet:
        """Return the set in normative order."""
        return ReadWriteSet(tuple(builder.build(name) for name, builder in sorted(self._namespaces.items(), key=_key)))


def _key(item: tuple[str, object]) -> str:
    return item[0]


def hash_key(key: str) -> bytes:
    """Hash the plaintext of a private key."""
    return sha256(key.encode()).digest()
