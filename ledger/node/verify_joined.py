"""What can be verified of a ledger that was joined from a checkpoint?  All but what needs bodies it never had.

Its state can't be derived from the genesis block: the valid transactions below the checkpoint are not there. It rests
on what was signed, so the walk has two parts. Up to the *base*, the newest valid checkpoint whose state is still kept:

1. The config blocks, whole, make a trail: each is signed under the configuration before it, and its update leads to it.
2. Blocks that came from the orderers are signed; the block at the checkpoint of the joining names the trail's last
   config block.
3. Used ids and verdicts are those of the leaves, which the chain holds together.
4. At the base the signed state hash is that of the kept state, and whoever signed was entitled to by the trail.

From the state of the base on, every block is judged again as in any other ledger. Where no checkpointed state is kept,
nothing is, and the report says so.
"""

from ledger.core.block import Block
from ledger.core.checkpoint import CheckpointRoots
from ledger.core.errors import InvalidBlock, NotFound, Refused
from ledger.core.names import BlockNumber
from ledger.core.orderer_signatures import check_last_config
from ledger.node.rejudging import Rejudging
from ledger.node.verify_chain import ChainCheck
from ledger.node.verify_checkpoints import CheckpointAudit
from ledger.node.verify_report import VerifyReport
from ledger.services.committer import Rules
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.ledger_values import StoredBlock
from ledger.storage.scratch import ScratchLedger
from ledger.wire.codec import CODEC
from ledger.wire.config import config_payload, next_bundle
from ledger.wire.orderer_metadata import orderer_metadata

NEVER_HERE = "below the checkpoint that this ledger was joined from: bodies were never here"
NO_STATE_BEFORE = "up to the checkpoint that the state is taken from: the state before them is not here"
NO_STATE_KEPT = "no checkpointed state is kept to judge them from"


class JoinedStart:
    """Goes through the blocks of a joined ledger up to its base.

    Args:
        store: The ledger on disk, a joined one.
        report: Where to say what was found.
        rules: How blocks are judged.
        chain: Follows the chain, and has seen each block before it comes here.
        rejudging: Whose configuration is moved on, and who goes on behind the base.
        scratch: The ledger that gets the state of the base.
        audit: Checks checkpoints at their heights.
    """

    def __init__(
        self,
        store: LedgerStore,
        report: VerifyReport,
        rules: Rules,
        chain: ChainCheck,
        rejudging: Rejudging,
        scratch: ScratchLedger,
        audit: CheckpointAudit,
    ) -> None:
        """Find the base."""
        assert store.joined_at is not None
        self._store = store
        self._joined_at = store.joined_at
        self._report = report
        self._rules = rules
        self._chain = chain
        self._rejudging = rejudging
        self._scratch = scratch
        self._audit = audit
        self.base = next(
            (number for number in audit.proved() if number >= self._joined_at and self._kept(number)), None
        )
        """Block of the checkpoint from whose state on blocks are judged; None if none is kept."""

    def _kept(self, number: BlockNumber) -> bool:
        try:
            self._store.checkpoint_view(number).close()
        except NotFound:
            return False
        return True

    def covers(self, number: BlockNumber) -> bool:
        """Tell whether a block is up to the base, or whether there is none."""
        return self.base is None or number <= self.base

    def check(self, stored: StoredBlock, due: frozenset[int]) -> None:
        """Check the next block; `due` are the heights of checkpoints."""
        signatures, state = self._report.levels["signatures"], self._report.levels["state"]
        number = stored.number

        # 1. and 2.
        try:
            self._check_signed(stored)
        except Refused as error:
            signatures.fail(str(error))
        reason = NEVER_HERE if number < self._joined_at else NO_STATE_BEFORE if self.base is not None else NO_STATE_KEPT
        signatures.skip(len(stored.verdicts) - stored.is_config, reason)
        signatures.checked += stored.is_config
        state.skip(1, reason)

        # 3.
        self._scratch.take_ids(stored.leaves, number, stored.commit_hash)
        self._audit.saw(number, stored.verdicts)

        # 4.
        if number == self.base:
            with self._store.checkpoint_view(number) as view:
                self._scratch.take_state(view.entries())
            root = self._scratch.flush()
            roots = CheckpointRoots(
                number, self._chain.vblock_hash, self._chain.vledger_root(), root, *self._rejudging.config
            )
            self._audit.check_at(roots, self._rejudging.bundle, self._scratch.iter_state())
        elif number in due:
            self._audit.check_signed_at(
                number, self._chain.vblock_hash, self._chain.vledger_root(), self._rejudging.bundle
            )

    def _check_signed(self, stored: StoredBlock) -> None:
        """Check a block's orderer signatures, where they are here, and follow the configuration."""
        number, rejudging = stored.number, self._rejudging
        before = rejudging.bundle
        remaining = Block(stored.header, (), stored.metadata)
        if stored.is_config:
            rejudging.config = number, stored.leaves[0].envelope_digest
        if number > 0 and (stored.is_config or number >= self._joined_at):
            self._rules.check_signatures(remaining, before)
        if number == self._joined_at:
            check_last_config(remaining, orderer_metadata(remaining, before), rejudging.config[0])
        if stored.is_config and number > 0:
            block = stored.block()
            if block.number != number or not self._rules.is_config(block):
                raise InvalidBlock(f"block {number}", rule="config block", expected="one CONFIG envelope")
            rejudging.bundle = next_bundle(before, config_payload(block.envelopes[0])[1], CODEC)


__all__ = ["JoinedStart"]
