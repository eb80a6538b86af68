"""Is what lies in a data directory what it should be?  Everything is derived again, from the genesis block on.

Nothing that the directory says is believed: its blocks are judged again, in order, by the committer's own rules, in a
scratch ledger beside it. Levels, each with what it checked and what it could not:

- *structure*: every record of the segments is whole, and is what the database says of it;
- *chain*: headers, data hashes and vBlock hashes, see `verify_chain`;
- *signatures*: orderer, creator and endorser signatures, policies and versions: every transaction gets the verdict that
  is stored, see `rejudging`;
- *state*: the changes of the valid transactions give the commit hash of every block, and in the end the state and the
  used ids on disk, entry by entry, and so the state hash;
- *checkpoint*: proofs and prune receipts, see `verify_checkpoints`.

Of a pruned block what is left is checked: `chain` says that its data hash is not, `signatures` that the verdicts on the
pruned transactions are not; the state is derived all the same. That of a ledger which was joined from a checkpoint is
taken from there instead, see `verify_joined`. The directory stays as it is, but for what every opening
does: a torn tail is cut, a pruning that was interrupted is finished.
"""

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ledger.core.checkpoint import CheckpointRoots
from ledger.core.errors import NotFound, StorageDamaged
from ledger.core.hashing import header_hash
from ledger.core.names import BlockNumber, ChannelId, Digest
from ledger.node.files import read
from ledger.node.ledgers import check_genesis
from ledger.node.rejudging import Rejudging
from ledger.node.rules import genesis_bundle, make_rules
from ledger.node.verify_chain import ChainCheck
from ledger.node.verify_checkpoints import CheckpointAudit
from ledger.node.verify_joined import JoinedStart
from ledger.node.verify_report import VerifyReport
from ledger.node.verify_state import check_state, state_root_on_disk
from ledger.storage.engine_leveldb import LevelDbEngine
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.ledger_values import BlockSummary, StoredBlock
from ledger.storage.scratch import ScratchLedger
from ledger.wire.block import decode_block

GROUP_BLOCKS = 16
"""Blocks that are held in memory at once."""

UNREADABLE = "behind a record that can't be read"
NOT_JUDGED = "behind a block that could not be judged"

Progress = Callable[[str, int, int | None], None]
"""Hears what is gone through, how much of it is done, and how much there is, where that is known."""

Read = tuple[StoredBlock, BlockSummary]
"""A block as the segments hold it, and what the database says of it."""


def verify(data: Path, genesis: Path, progress: Progress) -> VerifyReport:
    """Verify the ledger of a channel in a peer's data directory.  The peer must not be running.

    Args:
        data: The data directory.
        genesis: The channel's genesis block: the trust root.
        progress: Hears how far it is.

    Raises:
        NotFound: The directory holds no such channel, or no block of it.
        Conflict: A process has it open.
        InvalidBlock: The genesis block is another one.
        StorageFailed: The disk failed, which says nothing about the ledger.
    """
    genesis_bytes = read(genesis)
    bundle = genesis_bundle(genesis_bytes)
    channel = ChannelId(bundle.channel_id)
    if not (data / "channels" / channel).is_dir():
        raise NotFound(f"{data} holds no channel {channel}")
    report = VerifyReport(channel)
    try:
        store = LedgerStore.open(data, channel)
    except StorageDamaged as error:
        report.levels["structure"].fail(str(error))
        return report
    try:
        if store.height == 0:
            raise NotFound(
                f"the ledger of {channel} in {data} is empty"
                + (f"; {store.pending_count} blocks wait for the next start" if store.pending_count else "")
            )
        check_genesis(store, genesis_bytes)
        header = decode_block(genesis_bytes).header
        genesis_hash = header_hash(header.number, header.previous_hash, header.data_hash)
        with (
            tempfile.TemporaryDirectory(prefix="peerledger-verify-") as folder,
            ThreadPoolExecutor(2, "verify") as verifiers,
            ThreadPoolExecutor(2, "prepare") as workers,
        ):
            rules = make_rules(verifiers)
            chain = ChainCheck(channel, genesis_hash, rules, report.levels["chain"])
            scratch = ScratchLedger(LevelDbEngine(Path(folder) / "derived"))
            audit = CheckpointAudit(store, report.levels["checkpoint"])
            try:
                rejudging = Rejudging(
                    bundle, rules, workers, scratch, report.levels["signatures"], report.levels["state"]
                )
                start = None
                if store.joined_at is not None:
                    start = JoinedStart(store, report, rules, chain, rejudging, scratch, audit)
                Verification(store, report, chain, rejudging, scratch, audit, progress, start).run(Path(folder))
            finally:
                audit.close()
                scratch.close()
    finally:
        store.close()
    return report


class Verification:
    """One walk over all blocks of a ledger, and a look at the state that is left.

    Args:
        store: The ledger on disk.
        report: Where to say what was found.
        chain: Follows the chain.
        rejudging: Judges the blocks again.
        scratch: The ledger that comes of that.
        audit: Checks checkpoints at their heights.
        progress: Hears how far it is.
        start: Goes through the first blocks of a joined ledger; None for one that has all from the genesis block on.
    """

    def __init__(
        self,
        store: LedgerStore,
        report: VerifyReport,
        chain: ChainCheck,
        rejudging: Rejudging,
        scratch: ScratchLedger,
        audit: CheckpointAudit,
        progress: Progress,
        start: JoinedStart | None = None,
    ) -> None:
        """Stand before block 0."""
        self._store = store
        self._report = report
        self._chain = chain
        self._rejudging = rejudging
        self._scratch = scratch
        self._audit = audit
        self._progress = progress
        self._start = start

    def run(self, folder: Path) -> None:
        """Check everything and fill in the report; `folder` is for what does not fit into memory."""
        store, report = self._store, self._report
        report.height, report.pending = store.height, store.pending_count
        report.prune_point = store.prune_point if store.prune_point >= 0 else None
        report.checkpoint = self._audit.latest
        report.vblock_hash = store.vblock_hash.hex()
        due = self._audit.heights()
        for group in self._groups():
            self._check_group(group, due)
        if report.levels["structure"].ok and store.vblock_hash != self._chain.vblock_hash:
            report.levels["chain"].fail(
                f"vBlock hash of the last block: expected {self._chain.vblock_hash.hex()}, "
                f"found {store.vblock_hash.hex()}"
            )
        self._audit.finish()
        report.signers = tuple(f"{each.identity.msp_id} {each.name}" for each in self._audit.signers)
        report.state_hash = self._check_state(folder).hex()

    # -- structure

    def _groups(self) -> Iterator[list[Read]]:
        """Read the blocks, some at a time, a block that may bring another configuration last."""
        group: list[Read] = []
        for stored, row in self._readable():
            group.append((stored, row))
            is_base = self._start is not None and stored.number == self._start.base
            if len(group) == GROUP_BLOCKS or is_base or self._rejudging.ends_group(stored):
                yield group
                group = []
        if group:
            yield group

    def _readable(self) -> Iterator[Read]:
        """Yield the blocks up to the first that can't be read; look at the records of all."""
        structure, height = self._report.levels["structure"], self._store.height
        is_whole = True
        for number in map(BlockNumber, range(height)):
            self._progress("blocks", number, height)
            structure.checked += 1
            try:
                row = self._store.summary(number)
                stored = self._store.stored_block(number)
            except (StorageDamaged, NotFound) as error:
                structure.fail(f"block {number}: {error}")
                if is_whole:
                    self._skip("chain", height - number, UNREADABLE)
                    self._skip("state", height - number, UNREADABLE)
                is_whole = False
            else:
                self._check_record(stored, row)
                if is_whole:
                    yield stored, row
            if not is_whole:
                self._skip("signatures", self._transactions(number), UNREADABLE)
        self._progress("blocks", height, height)

    def _check_record(self, stored: StoredBlock, row: BlockSummary) -> None:
        """Check that a record is what the database says of it, and has its bodies unless they were pruned."""
        structure, subject = self._report.levels["structure"], f"block {stored.number}"
        for what, in_segment, in_database in (
            ("verdicts", stored.verdicts.hex(), row.verdicts.hex()),
            ("commit hash", stored.commit_hash.hex(), row.commit_hash.hex()),
            ("config block", stored.is_config, row.is_config),
        ):
            if in_segment != in_database:
                structure.fail(f"{subject}: {what}: {in_segment} in the segment, {in_database} in the database")
        if not stored.is_whole and stored.number > self._store.prune_point:
            structure.fail(
                f"{subject}: bodies of invalid transactions are gone, though "
                + (
                    f"only blocks up to {self._store.prune_point} were"
                    if self._store.prune_point >= 0
                    else "nothing was"
                )
                + " pruned"
            )

    def _transactions(self, number: BlockNumber) -> int:
        """Count the transactions of a block, if the database knows it."""
        try:
            return len(self._store.summary(number).verdicts)
        except NotFound:
            return 0

    def _skip(self, level: str, count: int, reason: str) -> None:
        self._report.levels[level].skip(count, reason)

    # -- the other levels

    def _check_group(self, group: list[Read], due: frozenset[int]) -> None:
        """Check some blocks, all under one configuration."""
        if self._start is not None and self._start.covers(group[0][0].number):
            for stored, row in group:
                self._chain.check(stored, row)
                self._start.check(stored, due)
            self._scratch.flush()
            return
        rejudging = self._rejudging
        waiting = [] if rejudging.stopped else rejudging.prepare([stored for stored, _ in group])
        for at, (stored, row) in enumerate(group):
            self._chain.check(stored, row)
            if not rejudging.stopped:
                rejudging.judge(stored, waiting[at])
            if rejudging.stopped:
                self._skip("signatures", len(stored.verdicts), NOT_JUDGED)
                self._skip("state", 1, NOT_JUDGED)
                continue
            self._audit.saw(stored.number, stored.verdicts)
            if stored.number in due:
                self._audit.check_at(self._roots(), rejudging.bundle, self._scratch.iter_state())
        for future in waiting:
            future.cancel()
        self._scratch.flush()

    def _roots(self) -> CheckpointRoots:
        """Give what the ledger comes to after the last block that was judged."""
        number = BlockNumber(self._scratch.height - 1)
        return CheckpointRoots(
            number, self._chain.vblock_hash, self._chain.vledger_root(), self._scratch.flush(), *self._rejudging.config
        )

    def _check_state(self, folder: Path) -> Digest:
        """Compare the end state; give the hash of the one on disk."""
        store, level = self._store, self._report.levels["state"]
        if self._scratch.height == store.height and (self._start is None or self._start.base is not None):
            roots = self._roots()
            if check_state(store, self._scratch, roots, level, lambda done: self._progress("state", done, None)):
                return roots.state_hash
        number = BlockNumber(store.height - 1)
        config = store.last_config(number)
        root = state_root_on_disk(store, folder / "found")
        return CheckpointRoots(
            number, store.vblock_hash, self._chain.vledger_root(), root, config.number, config.envelope_digest
        ).state_hash


__all__ = ["Progress", "VerifyReport", "verify"]
