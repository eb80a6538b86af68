"""What is a vBlock, and how is it hashed?  One per block, empty ones included (design, section 3).

The vBlock's content is its valid transactions, whole, and a stub for each invalid one. The index of a transaction is
its index in the ordered block, never renumbered: it is half of a key's version.

    leaf(i)         = H(00 | u32(i) | u8(verdict_i) | H(envelope_i) | lp(txid_i))    for every transaction of block n
    txRoot(n)       = RFC 6962 tree hash over all the leaves
    vBlockHash(n)   = H(lp("peerledger/vblock/v1") | lp(channel) | u64(n) | vBlockHash(n-1) | blockHash(n)
                        | u32(transactions) | u32(valid ones) | txRoot(n) | lp(commitHash(n)))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from ledger.core.encoding import lp, u32, u64
from ledger.core.merkle import tree_hash
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId, Digest, TxId, TxIndex
from ledger.core.outcome import Outcome

VBLOCK_TAG = lp("peerledger/vblock/v1")


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

    @property
    def lacks_envelopes(self) -> bool:
        """Whether valid envelopes are not here: below the checkpoint that it joined from, a peer has leaves alone."""
        return len(self.valid_envelopes) < self.header.valid_count


def leaf_hash(leaf: Leaf) -> Digest:
    """Hash a leaf; it is RFC 6962's leaf hash already."""
    tx_id = leaf.tx_id.encode()
    head = b"\x00" + leaf.index.to_bytes(4, "big") + bytes((leaf.verdict,))
    return Digest(sha256(head + leaf.envelope_digest + len(tx_id).to_bytes(4, "big") + tx_id).digest())


def tx_root(leaves: Sequence[Leaf]) -> Digest:
    """Hash the tree over all transactions of a block."""
    return tree_hash([leaf_hash(leaf) for leaf in leaves])


def vblock_hash(channel_id: ChannelId, header: VBlockHeader) -> Digest:
    """Hash a vBlock's header: the vBlock's name, and the next one's `previous_hash`."""
    return Digest(
        sha256(
            VBLOCK_TAG
            + lp(channel_id)
            + u64(header.number)
            + header.previous_hash
            + header.block_hash
            + u32(header.transaction_count)
            + u32(header.valid_count)
            + header.tx_root
            + lp(header.commit_hash)
        ).digest()
    )


def leaves_of(outcome: Outcome) -> tuple[Leaf, ...]:
    """Say of each transaction what the vBlock's tree keeps."""
    return tuple(
        Leaf(TxIndex(index), verdict, Digest(sha256(envelope).digest()), tx_id)
        for index, (verdict, envelope, tx_id) in enumerate(
            zip(outcome.verdicts, outcome.block.envelopes, outcome.tx_ids, strict=True)
        )
    )


def build_vblock(channel_id: ChannelId, outcome: Outcome, previous: Digest = ZERO_DIGEST) -> VBlock:
    """Make the vBlock of a judged block.

    Args:
        channel_id: The channel.
        outcome: The block with its verdicts and commit hash.
        previous: vBlockHash(n-1); zero bytes for block 0.
    """
    leaves = leaves_of(outcome)
    header = header_of(outcome, leaves, previous)
    valid = tuple(
        (leaf.index, envelope)
        for leaf, envelope in zip(leaves, outcome.block.envelopes, strict=True)
        if leaf.verdict == 0
    )
    return VBlock(header, vblock_hash(channel_id, header), leaves, valid)


def header_of(outcome: Outcome, leaves: Sequence[Leaf], previous: Digest) -> VBlockHeader:
    """Put together what is hashed for a judged block whose leaves are known."""
    return VBlockHeader(
        number=outcome.block.number,
        previous_hash=previous,
        block_hash=outcome.block_hash,
        transaction_count=len(leaves),
        valid_count=outcome.verdicts.count(0),
        tx_root=tx_root(leaves),
        commit_hash=outcome.commit_hash,
    )
