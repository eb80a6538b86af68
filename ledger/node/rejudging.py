"""How is a stored block judged again, also where the bodies of its invalid transactions were pruned?

A pruned block keeps its header, the orderer's signatures, all verdicts and ids, and its valid transactions whole. That
is enough to derive what it did to the state, and to check again that its valid transactions are valid. Of the gone ones
only id and verdict are taken, as they stand on disk: an invalid transaction changes no state, and where it hinders a
later one of its block (by its id, or by a key-level parameter that it tried to set), the later one is invalid too.

What a pruned block can't tell any more: whether its data hash is that of its envelopes, and whether the verdicts on the
gone transactions were right. The checkpoint that pruning rests on vouches for these.
"""

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from ledger.core.block import Block
from ledger.core.channel_config import Bundle
from ledger.core.errors import ChannelStopped, Fault, InvalidBlock, Refused
from ledger.core.names import ZERO_DIGEST, BlockNumber, Digest, verdict_name
from ledger.core.outcome import Outcome
from ledger.core.transaction import Stage, Transaction
from ledger.core.transition import Prepared
from ledger.core.validation import NOBODY, PreparedTransaction
from ledger.core.vblock import Leaf
from ledger.node.verify_report import Level
from ledger.services.committer import Rules
from ledger.storage.ledger_values import StoredBlock
from ledger.storage.scratch import ScratchLedger

NO_BODY = "invalid ones whose bodies were pruned"

PRUNED = "pruned"
"""Rule that stands for the one that made a transaction invalid, where that is not known any more."""


@dataclass(frozen=True, slots=True)
class PreparedBlock:
    """A stored block, ready to be judged."""

    prepared: Prepared

    unsigned: InvalidBlock | None
    """Why its orderer signatures are not what the channel asks for, if so."""


def prepare_stored(stored: StoredBlock, bundle: Bundle, rules: Rules) -> PreparedBlock:
    """Do all of a stored block's work that needs no state.  Thread-safe.

    1. The orderers signed its header, as the channel asks for (the genesis block is trusted as it is).
    2. Every transaction that is there is decoded and its signatures are checked; for a gone one stands its stub.

    Args:
        stored: The block as the segments hold it.
        bundle: The configuration in force at it.
        rules: How blocks are judged.
    """
    there = tuple(envelope for envelope in stored.envelopes if envelope is not None)
    remaining = Block(stored.header, there, stored.metadata)

    # 1.
    unsigned = None
    if stored.number > 0:
        try:
            rules.check_signatures(remaining, bundle)
        except InvalidBlock as error:
            unsigned = error

    # 2.
    checked = iter(rules.prepare(remaining, bundle).transactions if there else ())
    transactions = tuple(
        gone(leaf) if envelope is None else next(checked)
        for leaf, envelope in zip(stored.leaves, stored.envelopes, strict=True)
    )
    block = Block(stored.header, tuple(envelope or b"" for envelope in stored.envelopes), stored.metadata)
    return PreparedBlock(Prepared(block, bundle.sequence, transactions), unsigned)


def gone(leaf: Leaf) -> PreparedTransaction:
    """Stand in for a transaction whose body was pruned: it is as invalid as its stub says."""
    fault = Fault(leaf.verdict, PRUNED)
    nothing = Transaction(leaf.tx_id, -1, "", b"", b"", b"", b"", None, fault, Stage.HEADER)
    return PreparedTransaction(nothing, fault, NOBODY)


class Rejudging:
    """Judges stored blocks again, in order, in a scratch ledger.

    Args:
        bundle: The configuration of the genesis block.
        rules: How blocks are judged.
        workers: Where blocks are prepared ahead.
        scratch: The ledger that is made.
        signatures: The level that hears of verdicts and signatures; counts transactions.
        state: The level that hears of commit hashes; counts blocks.
    """

    def __init__(
        self, bundle: Bundle, rules: Rules, workers: Executor, scratch: ScratchLedger, signatures: Level, state: Level
    ) -> None:
        """Stand before block 0."""
        self.bundle = bundle
        """The configuration in force after the last block."""
        self.config: tuple[BlockNumber, Digest] = (BlockNumber(0), ZERO_DIGEST)
        """Number of the last config block, and the digest of its envelope."""
        self.stopped = False
        """Whether a block could not be judged: what stands behind it is not either."""
        self._rules = rules
        self._workers = workers
        self._scratch = scratch
        self._signatures = signatures
        self._state = state

    def ends_group(self, stored: StoredBlock) -> bool:
        """Tell whether a block may bring another configuration: what stands behind it is prepared later."""
        return len(stored.envelopes) == 1 and stored.is_whole and self._rules.is_config(stored.block())

    def prepare(self, group: Sequence[StoredBlock]) -> "list[Future[PreparedBlock]]":
        """Begin to prepare blocks that are all under the configuration in force."""
        return [self._workers.submit(prepare_stored, stored, self.bundle, self._rules) for stored in group]

    def judge(self, stored: StoredBlock, ready: "Future[PreparedBlock]") -> None:
        """Judge the next block; take it into the scratch ledger, and compare with what is stored of it."""
        prepared = ready.result()
        if prepared.unsigned is not None:
            self._signatures.fail(str(prepared.unsigned))
        try:
            outcome = self._rules.judge(prepared.prepared, self._scratch.view(), self.bundle)
        except (ChannelStopped, Refused) as error:
            self._signatures.fail(str(error))
            self.stopped = True
            return
        self._compare(stored, outcome)
        self._scratch.take(outcome)
        if outcome.is_config and outcome.verdicts == b"\0":
            self.config = stored.number, stored.leaves[0].envelope_digest
            if stored.number > 0:
                self.bundle = self._rules.bundle_after(outcome, self.bundle)

    def _compare(self, stored: StoredBlock, outcome: Outcome) -> None:
        """Compare a block's stored verdicts and commit hash with ours."""
        faults = dict(outcome.faults)
        for leaf, envelope, expected in zip(stored.leaves, stored.envelopes, outcome.verdicts, strict=True):
            if envelope is None:
                self._signatures.skip(1, NO_BODY)
                continue
            self._signatures.checked += 1
            if leaf.verdict != expected:
                fault = faults.get(leaf.index)
                why = "" if fault is None else f" ({fault.rule}{': ' if fault.detail else ''}{fault.detail})"
                self._signatures.fail(
                    f"block {stored.number}, transaction {leaf.index}: verdict: expected {verdict_name(expected)}"
                    f"{why}, found {verdict_name(leaf.verdict)}"
                )
        self._state.checked += 1
        if stored.commit_hash != outcome.commit_hash:
            self._state.fail(
                f"block {stored.number}: commit hash: expected {outcome.commit_hash.hex()}, "
                f"found {stored.commit_hash.hex()}"
            )


__all__ = ["PreparedBlock", "Rejudging", "prepare_stored"]
