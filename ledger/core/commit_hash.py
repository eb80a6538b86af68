"""Which hash names what a block changed?  Fabric's commit hash, the check of state between peers.

`commit_hash(n)` = SHA-256(uvarint(length of the verdicts) | verdicts | updates | commit_hash(n-1)), from block 1 on;
the updates are a protobuf message (fabric: core/ledger/kvledger/txmgmt/txmgr/update_batch_bytes.go):

    Updates{ repeated KVWrite kvwrites = 1 }
    KVWrite{ namespace = 1, collection = 2, key = 3, isDelete = 4, value = 5, version_bytes = 6 }

Namespaces ascending, "" left out; in each the public keys, then the collections, ascending. A namespace or collection
is named in its first entry only. Metadata and expiries are not in it: the state root covers them.
"""

from collections.abc import Mapping
from hashlib import sha256

from ledger.core.encoding import opv, uvarint
from ledger.core.state import Entry, StateKey, Updates, Version


def commit_hash(
    verdicts: bytes,
    updates: Updates,
    deleted_by: Mapping[StateKey, Version],
    previous: bytes,
) -> bytes:
    """Hash what a block changed, chained to the block before.

    Args:
        verdicts: One validation code per transaction.
        updates: Net updates of the block.
        deleted_by: Version of the transaction that deleted each key whose update is None.
        previous: Commit hash of the block before; empty before block 1.
    """
    hasher = sha256(uvarint(len(verdicts)) + verdicts)
    hasher.update(updates_bytes(updates, deleted_by))
    hasher.update(previous)
    return hasher.digest()


def updates_bytes(updates: Updates, deleted_by: Mapping[StateKey, Version]) -> bytes:
    """Encode the net updates as Fabric hashes them."""
    parts: list[bytes] = []
    namespace = collection = ""
    for key in sorted(updates, key=lambda each: (each.namespace, each.collection, each.key)):
        if not key.namespace:
            continue
        head = b""
        if key.namespace != namespace:
            namespace, collection = key.namespace, ""
            head = octets(b"\x0a", namespace.encode())
        if key.collection != collection:
            collection = key.collection
            head += octets(b"\x12", collection.encode())
        write = head + write_bytes(key, updates[key], deleted_by)
        parts.append(octets(b"\x0a", write))
    return b"".join(parts)


def write_bytes(key: StateKey, entry: Entry | None, deleted_by: Mapping[StateKey, Version]) -> bytes:
    """Encode key, delete mark or value, and version of one update."""
    out = octets(b"\x1a", key.key) if key.key else b""
    if entry is None:
        return out + b"\x20\x01" + octets(b"\x32", version_bytes(deleted_by[key]))
    return out + octets(b"\x2a", entry.value) + octets(b"\x32", version_bytes(entry.version))


def version_bytes(version: Version) -> bytes:
    """Encode a version in Fabric's order-preserving form."""
    return opv(version.block) + opv(version.index)


def octets(tag: bytes, value: bytes) -> bytes:
    """Encode a protobuf field of counted bytes."""
    return tag + uvarint(len(value)) + value


__all__ = ["commit_hash", "version_bytes"]
