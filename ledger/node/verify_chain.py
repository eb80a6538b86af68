"""Do the blocks and vBlocks on disk make one chain, from the genesis block on?

For every block, in order:

1. its header names the one before it; that of block 0 is the header of the genesis block that the caller trusts;
2. its envelopes are well formed and have the data hash of its header, if all are there;
3. the hash of its vBlock, made again from leaves, header, commit hash and the vBlock before, is that of the database.

The digest in the leaf of a valid transaction is computed from the envelope when it is read, that of a body is compared
with its stub then. The VLedger root, which checkpoints sign, is made again on the way.
"""

from ledger.core.errors import InvalidBlock
from ledger.core.hashing import header_hash
from ledger.core.merkle import GrowingLog, leaf_hash
from ledger.core.names import ZERO_DIGEST, ChannelId, Digest
from ledger.core.vblock import VBlockHeader, tx_root, vblock_hash
from ledger.node.verify_report import Level
from ledger.services.committer import Rules
from ledger.storage.ledger_values import BlockSummary, StoredBlock

NO_DATA_HASH = "the data hash needs bodies that were pruned"


class ChainCheck:
    """Follows the chain of one channel.

    Args:
        channel: The channel.
        genesis_hash: Header hash of the genesis block that the caller trusts.
        rules: How blocks are judged.
        level: Where to say what was found; counts blocks.
    """

    def __init__(self, channel: ChannelId, genesis_hash: Digest, rules: Rules, level: Level) -> None:
        """Stand before block 0."""
        self.vblock_hash = ZERO_DIGEST
        """Of the last block."""
        self._channel = channel
        self._genesis_hash = genesis_hash
        self._rules = rules
        self._level = level
        self._block_hash: bytes = b""
        self._log = GrowingLog()

    def check(self, stored: StoredBlock, row: BlockSummary) -> None:
        """Check the next block; `row` is what the database says of it."""
        subject = f"block {stored.number}"

        # 1.
        header = stored.header
        block_hash = header_hash(header.number, header.previous_hash, header.data_hash)
        if stored.number == 0:
            self._same(subject, "genesis block", self._genesis_hash, block_hash)
        else:
            self._same(subject, "previous hash", self._block_hash, header.previous_hash)
        self._same(subject, "block hash in the database", block_hash, row.block_hash)
        self._block_hash = block_hash

        # 2.
        if stored.is_whole:
            self._level.checked += 1
            try:
                self._rules.check_well_formed(stored.block())
            except InvalidBlock as error:
                self._level.fail(str(error))
        else:
            self._level.skip(1, NO_DATA_HASH)

        # 3.
        root = tx_root(stored.leaves)
        self._same(subject, "transaction root", root, row.tx_root)
        self.vblock_hash = vblock_hash(
            self._channel,
            VBlockHeader(
                stored.number, self.vblock_hash, block_hash, len(stored.leaves), stored.verdicts.count(0), root,
                stored.commit_hash,
            ),
        )  # fmt: skip
        self._same(subject, "vBlock hash", self.vblock_hash, row.vblock_hash)
        self._log.append(leaf_hash(self.vblock_hash))

    def vledger_root(self) -> Digest:
        """Hash the log of all vBlocks so far (RFC 6962)."""
        return self._log.root()

    def _same(self, subject: str, what: str, expected: bytes, found: bytes) -> None:
        if expected != found:
            self._level.fail(f"{subject}: {what}: expected {expected.hex()}, found {found.hex() or 'nothing'}")


__all__ = ["ChainCheck"]
