"""What did a transaction read and write?  Values of Fabric's read-write set (ledger/rwset/*.proto).

Orders are those of the message: validation follows the order of the set, sorted or not; `chaincode/` builds sets in
the normative order. Keys are text here, as in the message; `state.public_key` makes entries' names of them.
"""

from dataclasses import dataclass, field

from ledger.core.state import Version


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a public key."""

    key: str
    version: Version | None
    """Version that was seen, None if the key was absent."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write or delete of a public key."""

    key: str
    value: bytes
    is_delete: bool = False

    @property
    def deletes(self) -> bool:
        """Whether commit treats it as a delete: marked, or without value."""
        return self.is_delete or not self.value


@dataclass(frozen=True, slots=True)
class MetadataWrite:
    """A write of a public key's metadata; no entries clear it."""

    key: str
    entries: tuple[tuple[str, bytes], ...]

    stored: bytes = field(default=b"", compare=False)
    """The entries as they are stored, when they came in a message: what Go re-encodes, unknown fields included."""


@dataclass(frozen=True, slots=True)
class MerkleSummary:
    """Summary of a long range result: the hashes of the top level of its tree."""

    max_degree: int
    max_level: int
    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """A range query and what it saw, as raw reads (None: not given) or as Merkle summary (None: not given)."""

    start: str
    end: str
    exhausted: bool
    raw_reads: tuple[Read, ...] | None = None
    merkle: MerkleSummary | None = None


@dataclass(frozen=True, slots=True)
class HashedRead:
    """A read of the hash of a private key."""

    key_hash: bytes
    version: Version | None


@dataclass(frozen=True, slots=True)
class HashedWrite:
    """A write of the hash of a private value."""

    key_hash: bytes
    value_hash: bytes
    is_delete: bool = False
    is_purge: bool = False


@dataclass(frozen=True, slots=True)
class HashedMetadataWrite:
    """A write of the metadata of a private key's hash."""

    key_hash: bytes
    entries: tuple[tuple[str, bytes], ...]

    stored: bytes = field(default=b"", compare=False)
    """As with `MetadataWrite`."""


@dataclass(frozen=True, slots=True)
class CollectionSet:
    """Hashed reads and writes in one collection."""

    collection: str
    reads: tuple[HashedRead, ...] = ()
    writes: tuple[HashedWrite, ...] = ()
    metadata_writes: tuple[HashedMetadataWrite, ...] = ()
    pvt_rwset_hash: bytes = b""


@dataclass(frozen=True, slots=True)
class NamespaceSet:
    """Reads and writes in one namespace."""

    namespace: str
    reads: tuple[Read, ...] = ()
    range_queries: tuple[RangeQuery, ...] = ()
    writes: tuple[Write, ...] = ()
    metadata_writes: tuple[MetadataWrite, ...] = ()
    collections: tuple[CollectionSet, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadWriteSet:
    """All reads and writes of one transaction."""

    namespaces: tuple[NamespaceSet, ...] = ()
