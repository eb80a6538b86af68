"""What is the state after these writes?  Operations of one transaction on a key, merged as Fabric merges them.

Fabric (core/ledger/kvledger/txmgmt/validation/tx_ops.go) *adds* a number per operation to a flag of eight bits instead
of setting bits. Honest endorsers produce each operation once; a forged set can write a key several times, and what
becomes of it then is part of the commit hash (fabric-seen, items 25 and 26). With the sum at hand:

1. 8 in it: the key is deleted;
2. 1 in it together with 2 or 4: the value, and the metadata given;
3. nothing else than 1 (or nothing at all): the value, with the metadata that the key has;
4. else: the value that the key has, with the metadata given; nothing happens if the key is absent.
"""

from dataclasses import dataclass
from hashlib import sha256

from ledger.core.encoding import uvarint
from ledger.core.rwset import HashedWrite, ReadWriteSet
from ledger.core.state import HASHED, PUBLIC, Entry, StateKey, Version

VALUE, METADATA, CLEAR, DELETE = 1, 2, 4, 8

EMPTY_HASH = sha256(b"").digest()
"""Hash of the empty value: writing it is a delete."""


@dataclass(slots=True)
class Operation:
    """What a transaction does to one key."""

    flags: int = 0
    """Sum of the numbers of its operations, modulo 256."""

    value: bytes | None = None
    """Value of the last write."""

    metadata: bytes = b""
    """Metadata of the last metadata write that was no clear."""

    def write(self, value: bytes) -> None:
        """Add a value write."""
        self.flags = self.flags + VALUE & 0xFF
        self.value = value

    def delete(self) -> None:
        """Add a delete."""
        self.flags = self.flags + DELETE & 0xFF

    def describe(self, entries: tuple[tuple[str, bytes], ...], stored: bytes) -> None:
        """Add a metadata write; without entries it clears."""
        if not entries:
            self.flags = self.flags + CLEAR & 0xFF
            return
        self.flags = self.flags + METADATA & 0xFF
        self.metadata = stored or encode_metadata(entries)

    @property
    def needs_old(self) -> bool:
        """Whether the result depends on the entry that is there."""
        return not self.flags & DELETE and not (self.flags & VALUE and self.flags & (METADATA | CLEAR))


def operations(rwset: ReadWriteSet) -> dict[StateKey, Operation]:
    """Collect the operations of a transaction by key, in the order of the set."""
    found: dict[StateKey, Operation] = {}

    def at(key: StateKey) -> Operation:
        operation = found.get(key)
        if operation is None:
            operation = found[key] = Operation()
        return operation

    for namespace in rwset.namespaces:
        name = namespace.namespace
        for write in namespace.writes:
            operation = at(StateKey(PUBLIC, name, "", write.key.encode()))
            if write.deletes:
                operation.delete()
            else:
                operation.write(write.value)
        for metadata in namespace.metadata_writes:
            at(StateKey(PUBLIC, name, "", metadata.key.encode())).describe(metadata.entries, metadata.stored)
        for collection in namespace.collections:
            for hashed in collection.writes:
                operation = at(StateKey(HASHED, name, collection.collection, hashed.key_hash))
                if deletes(hashed):
                    operation.delete()
                else:
                    operation.write(hashed.value_hash)
            for described in collection.metadata_writes:
                key = StateKey(HASHED, name, collection.collection, described.key_hash)
                at(key).describe(described.entries, described.stored)
    return found


def deletes(write: HashedWrite) -> bool:
    """Tell whether commit treats a hashed write as a delete: marked, without hash, or with the hash of nothing."""
    return write.is_delete or not write.value_hash or write.value_hash == EMPTY_HASH


class Unchanged:
    """The answer of `merge` where nothing happens to the key."""


UNCHANGED = Unchanged()


def merge(operation: Operation, old: Entry | None, version: Version, expiry: int) -> Entry | Unchanged | None:
    """Merge a transaction's operation with the entry that is there (steps above).

    Args:
        operation: What the transaction does to the key.
        old: The entry as earlier transactions of the block, or else blocks, left it; not looked at unless
            `operation.needs_old`.
        version: Version of this transaction.
        expiry: Block in whose batch the new entry expires.

    Returns:
        The new entry, None if the key is deleted, `UNCHANGED` if nothing happens.
    """
    flags = operation.flags
    if flags & DELETE:
        return None
    if flags & VALUE and flags & (METADATA | CLEAR):
        value, metadata = operation.value, operation.metadata
    elif flags | VALUE == VALUE:
        value, metadata = operation.value, b"" if old is None else old.metadata
    elif old is None:
        return UNCHANGED
    else:
        value, metadata = old.value, operation.metadata
    if not value:  # 32 deletes of a key sum up to nothing at all; a value that is nothing can't be stored.
        return None
    return Entry(value, version, metadata, expiry)


def encode_metadata(entries: tuple[tuple[str, bytes], ...]) -> bytes:
    """Encode metadata as Fabric stores it: a KVMetadataWrite without key, of KVMetadataEntry each."""
    out = b""
    for name, value in entries:
        entry = octets(1, name.encode()) + octets(2, value)
        out += b"\x12" + uvarint(len(entry)) + entry
    return out


def octets(number: int, value: bytes) -> bytes:
    """Encode a protobuf field of bytes; an empty one is left out."""
    return bytes((number << 3 | 2,)) + uvarint(len(value)) + value if value else b""


__all__ = ["UNCHANGED", "Operation", "Unchanged", "encode_metadata", "merge", "operations"]
