"""What is a vBlock, and how is it hashed?  One per block, empty ones included (design, section 3).

The vBlock's content is its valid transactions, whole, and a stub for each invalid one. The index of a transaction is
its index in the ordered block, never renumbered: it is half of a key's version.
"""

from dataclasses import dataclass

from ledger.core.names import BlockNumber, Digest, TxId, TxIndex


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a vBlock's tree says of one ordered transaction."""

    index: TxIndex
    verdict: int
    envelope_digest: Digest
    tx_id: TxId
    """Claimed id as indexed; "" if it could not be decoded."""


@dataclass(frozen=True, slots=True)
class VBlockHeader:
    """What is hashed for block `number`."""

    number: BlockNumber
    previous_hash: Digest
    """vBlockHash(n-1); 32 zero bytes for block 0."""

    block_hash: Digest
    """Header hash of the ordered block."""

    transaction_count: int
    valid_count: int
    tx_root: Digest
    """RFC 6962 tree hash over the leaves of all the block's transactions."""

    commit_hash: bytes
    """Commit hash of block n; empty for block 0."""


@dataclass(frozen=True, slots=True)
class VBlock:
    """A block as the validated ledger keeps it."""

    header: VBlockHeader
    vblock_hash: Digest
    leaves: tuple[Leaf, ...]
    """One for every ordered transaction; those with another verdict than 0 are the stubs."""

    valid_envelopes: tuple[tuple[TxIndex, bytes], ...]
    """Whole envelopes of the valid transactions, with their index in the ordered block."""
