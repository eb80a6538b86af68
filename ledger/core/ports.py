"""What do rules and services need from outside?  Protocols with more than one implementation."""

from collections.abc import Iterator
from typing import Protocol

from ledger.core.names import BlockNumber, Digest, TxId
from ledger.core.policy.ast import ApplicationPolicy, SignaturePolicy
from ledger.core.state import HistoryEntry, LedgerView, TxPlace
from ledger.core.vblock import VBlock


class Codec(Protocol):
    """Decodes messages that stand inside identities and state; implemented by `wire.codec`.

    Every method raises `MalformedMessage` for bytes that Fabric's decoder would refuse.
    """

    def serialized_identity(self, data: bytes) -> tuple[str, bytes]:
        """Decode SerializedIdentity to (MSP ID, PEM or other id bytes)."""
        ...

    def signature_policy(self, data: bytes) -> SignaturePolicy:
        """Decode SignaturePolicyEnvelope, to any depth that Go decodes."""
        ...

    def application_policy(self, data: bytes) -> ApplicationPolicy:
        """Decode ApplicationPolicy."""
        ...


class Signer(Protocol):
    """An identity that can sign: a node's own."""

    @property
    def serialized(self) -> bytes:
        """SerializedIdentity."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Sign a message by Fabric's rules."""
        ...


class LedgerReader(Protocol):
    """Reads a channel's ledger; every method is safe to call while blocks are committed.

    What was pruned raises `Pruned`, what never was raises `NotFound`, a failing disk raises `StorageFailed`.
    """

    @property
    def height(self) -> int:
        """Number of blocks committed."""
        ...

    @property
    def first_block(self) -> BlockNumber:
        """First block that is held whole: prune point + 1."""
        ...

    @property
    def joined_at(self) -> BlockNumber | None:
        """Block of the checkpoint that this ledger was joined from: below it there are leaves, and no envelopes."""
        ...

    @property
    def block_hash(self) -> Digest:
        """Header hash of the last block."""
        ...

    @property
    def vblock_hash(self) -> Digest:
        """VBlock hash of the last block."""
        ...

    def view(self) -> LedgerView:
        """Return a consistent view as of the last committed block; close it where it has `close`."""
        ...

    def block_bytes(self, number: BlockNumber) -> bytes:
        """Return the serialized `common.Block` with this peer's slots 2 and 4, byte for byte as received otherwise."""
        ...

    def config_block_bytes(self, number: BlockNumber) -> bytes:
        """Return a serialized config block, below the prune point too."""
        ...

    def vblock(self, number: BlockNumber) -> VBlock:
        """Return a vBlock with its leaves and valid envelopes."""
        ...

    def places(self, tx_id: TxId) -> tuple[TxPlace, ...]:
        """Return all places of a claimed id in order; empty if it was never seen. Pruning changes no answer."""
        ...

    def envelope(self, place: TxPlace) -> bytes:
        """Return an envelope; one that was pruned, or that a joined peer never had, raises `Pruned`."""
        ...

    def history(self, namespace: str, key: str) -> Iterator[HistoryEntry]:
        """Yield the changes of a public key, newest first; raises `BeforeJoining` where they are not all known."""
        ...
