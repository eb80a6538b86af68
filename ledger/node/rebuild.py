"""How is the database of a stopped peer made again?  From its segments, by re-applying what was judged, or judging.

*Re-applying* takes verdicts as they stand: the records are checksummed, the commit hash of every block is derived again
and compared, and so is the state with the newest checkpoint that other peers signed. Signatures were checked when the
blocks were committed, so checking them again would find nothing that these comparisons don't. *Judging* (`check`) does
check them, and policies and versions: for the day on which one does not trust what this peer judged.

Why a transaction is invalid, in words, stands in the database alone. Judging finds the words again where the bodies are
still there; else those that the old database can still tell are kept.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ledger.core.block import Block, block_hash
from ledger.core.channel_config import Bundle
from ledger.core.errors import Fault, InvalidBlock, MalformedMessage, StorageDamaged
from ledger.core.names import ChannelId, TxIndex
from ledger.core.outcome import Outcome
from ledger.core.state import LedgerView
from ledger.core.transition import Prepared, Transition
from ledger.core.validation import NOBODY, PreparedTransaction
from ledger.core.vblock import Leaf
from ledger.node.files import read
from ledger.node.rejudging import PRUNED, gone, prepare_stored
from ledger.node.rules import genesis_bundle, make_rules
from ledger.services.committer import Rules
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.ledger_values import StoredBlock
from ledger.storage.rebuilding import Progress, Reasons, Rebuilt
from ledger.storage.rebuilding import rebuild as rebuild_database
from ledger.wire.block import decode_block
from ledger.wire.codec import CODEC
from ledger.wire.config import next_bundle
from ledger.wire.judging import make_transition
from ledger.wire.messages import parsed_before
from ledger.wire.stored_transaction import decode_stored


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What was done."""

    channel: ChannelId
    rebuilt: Rebuilt
    checked: bool
    """Whether everything was judged again."""

    def members(self) -> dict[str, object]:
        """Give the report as JSON members."""
        made = self.rebuilt
        return {
            "channel": self.channel,
            "height": made.height,
            "prune_point": made.prune_point if made.prune_point >= 0 else None,
            "vblock_hash": made.vblock_hash.hex(),
            "state_hash": made.state_hash.hex(),
            "judged_again": self.checked,
            "compared_with_checkpoint": made.anchor,
            "blocks_cut": made.cut_blocks,
            "bytes_cut": made.cut_bytes,
        }


def rebuild(
    data: Path,
    genesis: bytes,
    *,
    check: bool = False,
    may_cut: bool = False,
    chk: int | None = None,
    progress: Progress,
) -> RebuildReport:
    """Make the database of a stopped peer's channel again.

    Args:
        data: Its data directory.
        genesis: The channel's genesis block: the trust root.
        check: Whether to judge everything again.
        may_cut: Whether the ledger may become shorter, where blocks are damaged.
        chk: Blocks between checkpoints, where the caller knows it; else it is found on the disk.
        progress: Hears how many blocks are done.

    Raises:
        InvalidBlock: The directory holds a channel of that name with another genesis block.
        NotFound, Conflict, StorageDamaged, StorageFailed: See `storage.rebuilding.rebuild`.

    Durability: the old database counts until the new one does.
    """
    bundle = genesis_bundle(genesis)
    channel = ChannelId(bundle.channel_id)
    with ExitStack() as stack:
        rules = make_rules(stack.enter_context(ThreadPoolExecutor(2, "verify")) if check else None)
        rebuilt = rebuild_database(
            data,
            channel,
            lambda reasons: Remake(genesis, Judge(bundle, rules, reasons) if check else Reapply(reasons)),
            with_bodies=check,
            may_cut=may_cut,
            chk=chk,
            progress=progress,
        )
    with CheckpointStore(data / "channels" / channel / "records", channel) as records:
        records.resolve_divergence()  # The next start compares afresh.
    return RebuildReport(channel, rebuilt, check)


class Reapply:
    """Re-applies stored blocks, in order.

    Args:
        reasons: What is still known of why transactions are invalid.
    """

    def __init__(self, reasons: Reasons) -> None:
        """Take the rules that are needed."""
        self._reasons = reasons
        self._transition: Transition = make_transition(CODEC, lambda bundle, config: next_bundle(bundle, config, CODEC))

    def __call__(self, stored: StoredBlock, view: LedgerView) -> Outcome:
        """Say what one block does in the state before it.

        Raises:
            StorageDamaged: A transaction that was valid can't be read.
        """
        try:
            with parsed_before():
                transactions = tuple(map(applied, stored.leaves, stored.envelopes))
        except MalformedMessage as error:
            raise StorageDamaged(f"block {stored.number}: a transaction stored as valid is none: {error}") from error
        outcome = self._transition.reapply(Prepared(whole(stored), 0, transactions), view)
        known = self._reasons(stored.number)
        faults = tuple((index, known[index]) for index, fault in outcome.faults if fits(known.get(index), fault))
        return replace(outcome, faults=faults)


def applied(leaf: Leaf, envelope: bytes | None) -> PreparedTransaction:
    """Prepare a transaction to be re-applied, if it was valid; raises `MalformedMessage`."""
    if leaf.verdict or envelope is None:
        return gone(leaf)
    return PreparedTransaction(decode_stored(envelope, leaf.tx_id), None, NOBODY)


def whole(stored: StoredBlock) -> Block:
    """Give a stored block the shape of a whole one; what is gone of it is empty."""
    return Block(stored.header, tuple([envelope or b"" for envelope in stored.envelopes]), stored.metadata)


def fits(known: Fault | None, fault: Fault) -> bool:
    """Tell whether what the old database says of a transaction is about the verdict that it has."""
    return known is not None and known.verdict == fault.verdict


class Judge:
    """Judges stored blocks again, in order; of what was pruned the old database's reasons are kept.

    Args:
        bundle: The configuration of the genesis block.
        rules: How blocks are judged.
        reasons: What is still known of why transactions are invalid.
    """

    def __init__(self, bundle: Bundle, rules: Rules, reasons: Reasons) -> None:
        """Stand before block 0."""
        self._bundle = bundle
        self._rules = rules
        self._reasons = reasons

    def __call__(self, stored: StoredBlock, view: LedgerView) -> Outcome:
        """Judge one block in the state before it.

        Raises:
            StorageDamaged: It is none that an orderer of the channel made.
        """
        prepared = prepare_stored(stored, self._bundle, self._rules)
        try:
            if stored.is_whole:
                self._rules.check_well_formed(stored.block())
            if prepared.unsigned is not None:
                raise prepared.unsigned
        except InvalidBlock as error:
            raise StorageDamaged(f"a stored block is none of the channel: {error}") from error
        outcome = self._rules.judge(prepared.prepared, view, self._bundle)
        self._bundle = self._rules.bundle_after(outcome, self._bundle)
        known = self._reasons(stored.number)

        def best(index: TxIndex, fault: Fault) -> Fault:
            return known[index] if fault.rule == PRUNED and fits(known.get(index), fault) else fault

        return replace(outcome, faults=tuple((index, best(index, fault)) for index, fault in outcome.faults))


class Remake:
    """Sees that block 0 is the genesis block, and that something can be made of every block.

    Args:
        genesis: The trust root.
        following: What is done with each block.
    """

    def __init__(self, genesis: bytes, following: "Judge | Reapply") -> None:
        """Look at the genesis block."""
        self._expected = block_hash(decode_block(genesis))
        self._following = following

    def __call__(self, stored: StoredBlock, view: LedgerView) -> Outcome:
        """Make the outcome of a block again."""
        if stored.number == 0 and (found := block_hash(whole(stored))) != self._expected:
            raise InvalidBlock("block 0", rule="genesis block", expected=self._expected, found=found)
        if stored.lacks_valid:
            raise StorageDamaged(
                f"the ledger was joined from a checkpoint: valid transactions of block {stored.number} are not here,"
                " and no state can be made without them; nothing was changed. Let the peer join again"
            )
        return self._following(stored, view)


def rebuild_from_file(data: Path, genesis: Path, *, check: bool, may_cut: bool, progress: Progress) -> RebuildReport:
    """Rebuild with the genesis block of a file; see `rebuild`."""
    return rebuild(data, read(genesis), check=check, may_cut=may_cut, progress=progress)


__all__ = ["RebuildReport", "Reapply", "rebuild", "rebuild_from_file"]
