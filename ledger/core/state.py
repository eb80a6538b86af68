"""What is the state?  Versioned entries by (kind, namespace, collection, key), and the view that rules read it through.

Kinds: public entries, whose key is the UTF-8 key that chaincode uses; and hashed private entries, whose key is the
32-byte (or, in forged sets, other) hash of the key and whose value is the hash of the value.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from ledger.core.names import NEVER, BlockNumber, Digest, TxId, TxIndex

PUBLIC = 0
"""Kind of a public entry."""

HASHED = 1
"""Kind of an entry of hashed private data."""

CONFIG_KEY = "CHANNEL_CONFIG_ENV_BYTES"
"""Key, in namespace "", under which the channel's ConfigEnvelope is state."""


class Version(NamedTuple):
    """Which transaction wrote an entry last."""

    block: BlockNumber
    """Number of its block."""

    index: TxIndex  # type: ignore[assignment]  # Hides tuple.index, which nobody asks of it.
    """Its index in that block as ordered."""


class StateKey(NamedTuple):
    """Full, length-safe name of an entry."""

    kind: int
    """`PUBLIC` or `HASHED`."""

    namespace: str
    """Chaincode, or "" for the channel configuration."""

    collection: str
    """Private data collection; "" for public entries."""

    key: bytes
    """UTF-8 key of a public entry, key hash of a hashed one."""


class Entry(NamedTuple):
    """A live entry of the state."""

    value: bytes
    """The value; of a hashed entry the hash of the value."""

    version: Version
    """Its last writer."""

    metadata: bytes = b""
    """Serialized `KVMetadataWrite{entries}` without key, as Fabric stores it; empty for none."""

    expiry: int = NEVER
    """Block in whose batch the entry expires, `NEVER` for public entries and collections that keep values."""


Updates = Mapping[StateKey, Entry | None]
"""Net changes of one block: the new entry of a key, or None where it was deleted (also if it was absent before)."""


class StateView(Protocol):
    """Reads the state as of one block, unaffected by later commits."""

    def get(self, key: StateKey) -> Entry | None:
        """Return the live entry, or None."""
        ...

    def range(self, namespace: str, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, Entry]]:
        """Yield the public entries of a namespace with `start <= key < end`, ascending; `end` None is unbounded."""
        ...


class LedgerView(StateView, Protocol):
    """What judging a block may ask of the ledger below it."""

    def has_transaction(self, tx_id: TxId) -> bool:
        """Tell whether a block committed before holds this claimed id, valid or not."""
        ...

    def expiring(self, number: BlockNumber) -> Iterator[StateKey]:
        """Yield the keys whose entries expire in the batch of block `number`."""
        ...

    @property
    def commit_hash(self) -> bytes:
        """The commit hash of the last block; empty before block 1."""
        ...


def public_key(namespace: str, key: str) -> StateKey:
    """Name a public entry."""
    return StateKey(PUBLIC, namespace, "", key.encode())


def hashed_key(namespace: str, collection: str, key_hash: bytes) -> StateKey:
    """Name an entry of hashed private data."""
    return StateKey(HASHED, namespace, collection, key_hash)


class TxPlace(NamedTuple):
    """Where a claimed id stands in the ledger, and what was said of that transaction."""

    block: BlockNumber
    index: TxIndex  # type: ignore[assignment]  # Hides tuple.index, which nobody asks of it.
    verdict: int


class HistoryEntry(NamedTuple):
    """One change of a public key by a valid transaction."""

    block: BlockNumber
    index: TxIndex  # type: ignore[assignment]  # Hides tuple.index, which nobody asks of it.


__all__ = [
    "CONFIG_KEY",
    "HASHED",
    "PUBLIC",
    "Digest",
    "Entry",
    "HistoryEntry",
    "LedgerView",
    "StateKey",
    "StateView",
    "TxPlace",
    "Updates",
    "Version",
    "hashed_key",
    "public_key",
]
