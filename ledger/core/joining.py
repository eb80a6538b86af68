"""What does a joiner take from others, and how does it know that it is true?  Values and checks (design, section 7).

Nothing is believed because of who sent it. The trust root is the genesis block: from it the *trail* of config blocks
leads to those who may sign; they signed the checkpoint; under the checkpoint's hashes stands everything else:

    statement at n ── vLedgerRoot, vBlockHash(n) ── heads of blocks 0..n ── leaves of each block
                   └─ stateHash ── stateRoot ── chunks of the state
                                └─ number and digest of the last config block

A *chunk* of the state holds the entries whose paths begin with the same bits: chunk *i* of 2^b. It comes with the way
from the root down to it, so each chunk is checked by itself, whoever sent the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.core.block import Block, block_hash, check_data_hash
from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import CheckpointProof, CheckpointRoots, Statement
from ledger.core.checkpoint_proof import CheckpointRules, CountedSigner, check_proof
from ledger.core.errors import InvalidBlock, InvalidCheckpoint, InvalidProof
from ledger.core.hashing import digest, header_hash
from ledger.core.merkle import GrowingLog
from ledger.core.merkle import leaf_hash as log_leaf
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId, Digest
from ledger.core.orderer_signatures import OrdererMetadata, check_last_config, check_orderer_signatures
from ledger.core.state import Entry, StateKey
from ledger.core.state_tree import StateProof, bit_at, leaf_hash, node_hash, path_of, slow_subtree, value_hash
from ledger.core.vblock import Leaf, VBlockHeader, tx_root, vblock_hash

CHUNK_BITS_MAX = 16
"""Chunks of a state are at most 2^16."""

ENTRIES_PER_CHUNK, BYTES_PER_CHUNK = 2_000, 1 << 20
"""Mean size of a chunk; paths are hashes, so chunks differ little but for the size of single values."""


@dataclass(frozen=True, slots=True)
class JoinOffer:
    """What a peer offers to joiners: its latest valid checkpoint."""

    channel: ChannelId
    proof: CheckpointProof
    state_root: Digest
    """Root of the state at the checkpoint; with the last config block it makes the statement's state hash."""

    config_numbers: tuple[BlockNumber, ...]
    """Config blocks up to the checkpoint, ascending, block 0 first."""

    chunk_bits: int
    """The state comes in 2^bits chunks."""

    interval_blocks: int
    """CHK of the peer."""

    @property
    def number(self) -> BlockNumber:
        """Block of the checkpoint."""
        return self.proof.statement.number


@dataclass(frozen=True, slots=True)
class BlockHead:
    """What the VLedger's hashes need of a block besides the block before it."""

    number: BlockNumber
    previous_hash: bytes
    data_hash: bytes
    transaction_count: int
    valid_count: int
    tx_root: Digest
    commit_hash: bytes

    @property
    def block_hash(self) -> Digest:
        """Header hash of the ordered block."""
        return header_hash(self.number, self.previous_hash, self.data_hash)


@dataclass(frozen=True, slots=True)
class StateChunk:
    """The entries of a state whose paths begin with the same bits."""

    index: int
    entries: tuple[tuple[StateKey, Entry], ...]
    proof: StateProof
    """The way from the root to the chunk; ends early, with the leaf there, where the tree is shallower."""


def check_offer(
    offer: JoinOffer, channel_id: ChannelId, bundle: Bundle, config_digest: Digest, rules: CheckpointRules
) -> tuple[CountedSigner, ...]:
    """Check that an offer is a valid checkpoint, under the configuration that the trail leads to.

    1. It is of the channel.
    2. Its proof holds under the configuration after the block, and this joiner's own policy, if it has one.
    3. Its state root and the trail's last config block make the state hash that was signed.

    Args:
        offer: The offer.
        channel_id: The channel to join.
        bundle: The configuration after the last config block of the trail.
        config_digest: SHA-256 of that block's envelope.
        rules: This joiner's own policy.

    Returns:
        Who signed.

    Raises:
        InvalidCheckpoint, PolicyNotSatisfied: A step fails.
    """
    statement = offer.proof.statement
    subject = f"checkpoint {statement.number}"
    if statement.channel != channel_id:
        raise InvalidCheckpoint(subject, rule="channel", expected=channel_id, found=statement.channel)
    signers = check_proof(offer.proof, bundle, rules)
    expected = CheckpointRoots(
        statement.number, statement.vblock_hash, statement.vledger_root, offer.state_root, offer.config_numbers[-1],
        config_digest,
    ).state_hash  # fmt: skip
    if expected != statement.state_hash:
        raise InvalidCheckpoint(subject, rule="state hash", expected=statement.state_hash, found=expected)
    return signers


class HeadChain:
    """Follows the heads of the blocks up to a checkpoint, one by one, in little memory.

    1. There is one for each block, in order.
    2. Each names the block before it; the first is that of the genesis block.
    3. The vBlock hash of the last one, and the root of the log of all of them, are those that were signed.

    Nothing is proved of any head before `finish`: the signatures are on the end of the chain.

    Args:
        statement: What was signed.
        genesis_hash: Header hash of the genesis block.
    """

    def __init__(self, statement: Statement, genesis_hash: Digest) -> None:
        """Stand before block 0."""
        self.count = 0
        """Heads so far."""
        self._statement = statement
        self._expected = genesis_hash
        self._previous = ZERO_DIGEST
        self._named = b""
        self._log = GrowingLog()

    def add(self, head: BlockHead) -> Digest:
        """Take the next head; give the hash of its vBlock.

        Raises:
            InvalidBlock: Step 1 or 2 fails.
        """
        # 1.
        subject = f"head {self.count}"
        if head.number != self.count:
            raise InvalidBlock(subject, rule="block number", expected=self.count, found=head.number)

        # 2.
        if head.previous_hash != self._named:
            raise InvalidBlock(subject, rule="previous hash", expected=self._named, found=head.previous_hash)
        self._named = head.block_hash
        if head.number == 0 and self._named != self._expected:
            raise InvalidBlock(subject, rule="genesis block", expected=self._expected, found=self._named)
        self._previous = vblock_hash(
            self._statement.channel,
            VBlockHeader(
                head.number, self._previous, Digest(self._named), head.transaction_count, head.valid_count,
                head.tx_root, head.commit_hash,
            ),
        )  # fmt: skip
        self._log.append(log_leaf(self._previous))
        self.count += 1
        return self._previous

    def finish(self) -> None:
        """Compare the end with what was signed (steps 1 and 3).

        Raises:
            InvalidBlock: It is something else.
        """
        statement = self._statement
        subject = f"heads of {statement.channel}"
        if self.count != statement.number + 1:
            raise InvalidBlock(subject, rule="block count", expected=statement.number + 1, found=self.count)
        if self._previous != statement.vblock_hash:
            raise InvalidBlock(subject, rule="vBlock hash", expected=statement.vblock_hash, found=self._previous)
        root = self._log.root()
        if root != statement.vledger_root:
            raise InvalidBlock(subject, rule="VLedger root", expected=statement.vledger_root, found=root)


def check_is_of(block: Block, head: BlockHead) -> None:
    """Check that a whole block is the one that a head stands for.

    Raises:
        InvalidBlock: It is another one.
    """
    found = block_hash(block)
    if found != head.block_hash:
        raise InvalidBlock(f"block {head.number}", rule="block hash", expected=head.block_hash, found=found)


def check_leaves(head: BlockHead, leaves: Sequence[Leaf], whole: Block | None = None) -> None:
    """Check the leaves of one block.

    1. There are as many as its head says, numbered from 0, and as many valid ones.
    2. Their tree has the root of its head.
    3. Where the block is known whole, they are those of its envelopes.

    Raises:
        InvalidBlock: A step fails.
    """
    # 1.
    subject = f"leaves of block {head.number}"
    valid = sum(leaf.verdict == 0 for leaf in leaves)
    found_counts, expected_counts = (len(leaves), valid), (head.transaction_count, head.valid_count)
    if found_counts != expected_counts or any(leaf.index != index for index, leaf in enumerate(leaves)):
        raise InvalidBlock(subject, rule="leaf count", expected=expected_counts, found=found_counts)

    # 2.
    found = tx_root(leaves)
    if found != head.tx_root:
        raise InvalidBlock(subject, rule="transaction root", expected=head.tx_root, found=found)

    # 3.
    if whole is not None and [digest(envelope) for envelope in whole.envelopes] != [
        leaf.envelope_digest for leaf in leaves
    ]:
        raise InvalidBlock(subject, rule="envelope digests", expected="those of the block's envelopes")


def check_checkpoint_block(
    block: Block, head: BlockHead, metadata: OrdererMetadata, before: Bundle, last_config: BlockNumber
) -> None:
    """Check the block at the checkpoint, which a joiner gets whole.

    1. It is the block of its head.
    2. Its envelopes are those of its header.
    3. The orderers of the configuration before it signed it.
    4. The last config block that they name is the trail's: so none was left out.

    Raises:
        InvalidBlock: A step fails.
    """
    check_is_of(block, head)
    check_data_hash(block)
    if block.number > 0:
        check_orderer_signatures(block, metadata, before)
        check_last_config(block, metadata, last_config)


# -- chunks


def chunk_bits(entry_count: int, size_bytes: int) -> int:
    """Choose into how many chunks a state is cut: 2^bits, so that they have about the wanted size each."""
    bits = 0
    while bits < CHUNK_BITS_MAX and (entry_count >> bits > ENTRIES_PER_CHUNK or size_bytes >> bits > BYTES_PER_CHUNK):
        bits += 1
    return bits


def chunk_of(path: bytes, bits: int) -> int:
    """Give the index of the chunk that a path belongs to."""
    return int.from_bytes(path[:4], "big") >> (32 - bits)


def chunk_path(index: int, bits: int) -> bytes:
    """Give the lowest path of a chunk."""
    return (index << (32 - bits)).to_bytes(4, "big") + bytes(28)


def chunk_proof(whole: StateProof, bits: int) -> StateProof:
    """Cut the proof of a chunk's lowest path down to the way to the chunk."""
    if len(whole.siblings) < bits:
        return whole
    return StateProof(whole.siblings[:bits], None)


def check_chunk(chunk: StateChunk, bits: int, state_root: Digest) -> None:
    """Check a chunk against the state root: these entries, and no others, stand there.

    1. Every entry belongs to the chunk, and none comes twice.
    2. The subtree that they make, with the way down to it, makes the root. Where the way ends above the chunk, one leaf
       stands there at most: it is the chunk's only entry, or the chunk is empty and it is another's.

    Raises:
        InvalidProof: A step fails.
    """
    subject = f"chunk {chunk.index} of the state"
    leaves = [(path_of(key), value_hash(entry)) for key, entry in chunk.entries]
    paths = {path for path, _ in leaves}
    if len(paths) != len(leaves) or any(chunk_of(path, bits) != chunk.index for path in paths):
        raise InvalidProof(subject, rule="chunk of an entry", expected="each entry once, in its chunk")
    depth, way = len(chunk.proof.siblings), chunk_path(chunk.index, bits)
    if depth > bits:
        raise InvalidProof(subject, rule="proof length", expected=f"at most {bits}", found=depth)
    if depth == bits:
        value = slow_subtree(leaves, depth)
    else:
        value = _early_end(chunk, leaves, bits, depth)
    for level in range(depth - 1, -1, -1):
        sibling = chunk.proof.siblings[level]
        value = node_hash(sibling, value) if bit_at(way, level) else node_hash(value, sibling)
    if value != state_root:
        raise InvalidProof(subject, rule="state root", expected=state_root, found=value)


def _early_end(chunk: StateChunk, leaves: Sequence[tuple[bytes, Digest]], bits: int, depth: int) -> Digest:
    """Hash the subtree at the end of a way that is shorter than the chunk is deep."""
    subject, end = f"chunk {chunk.index} of the state", chunk.proof.leaf
    expected: list[tuple[bytes, Digest]] = []
    if end is not None:
        way = chunk_path(chunk.index, bits)
        if len(end.path) != len(way) or any(bit_at(end.path, level) != bit_at(way, level) for level in range(depth)):
            raise InvalidProof(subject, rule="shared bits", expected=f"the first {depth} bits of {way.hex()}",
                               found=end.path)  # fmt: skip
        if chunk_of(end.path, bits) == chunk.index:
            expected = [(end.path, end.value_hash)]
    if list(leaves) != expected:
        raise InvalidProof(subject, rule="entries at the end of the way", expected=len(expected), found=len(leaves))
    return ZERO_DIGEST if end is None else leaf_hash(end.path, end.value_hash)


__all__ = [
    "BlockHead",
    "HeadChain",
    "JoinOffer",
    "StateChunk",
    "check_checkpoint_block",
    "check_chunk",
    "check_is_of",
    "check_leaves",
    "check_offer",
    "chunk_bits",
    "chunk_of",
    "chunk_path",
    "chunk_proof",
]
