"""What does a peer do with its disk?  One channel's ledger, checkpoints and pruning, with nobody to talk to.

The parts are the node's own: the committer with the real rules, the store, the records of checkpoints, the pruning
service with an archive. Only the others are missing: blocks come from a list, and the second organisation's signature
is made here. What the services of a running peer do in which order, `agree` does in the same order:

1. blocks are committed, alone and in groups, one group longer than an interval between checkpoints;
2. at each captured height the roots are computed, our statement is recorded, then the proof, then the states that
   nobody needs any more are let go, then everything below is archived and pruned;
3. now and then the peer is closed and opened again.

`live` goes on from whatever is on the disk, so the same call is a first start, and a start after any fault.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import CheckpointMessage, CheckpointProof
from ledger.core.checkpoint_proof import Scope
from ledger.core.names import BlockNumber, ChannelId
from ledger.core.outcome import Outcome
from ledger.node.ledgers import Rejudge, bundle_of, check_genesis, open_ledger
from ledger.node.rules import genesis_bundle, make_rules
from ledger.services.committer import Committer, Rules
from ledger.services.pruning import PruningMode, PruningService, PruningSettings
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.engine import OpenEngine
from ledger.storage.engine_leveldb import LevelDbEngine
from ledger.storage.files import Files
from ledger.storage.ledger_store import LedgerStore
from ledger.wire.block import encode_block
from tests.kit.channel import CHANNEL
from tests.kit.peer_folder import CHK, HEIGHT, honest_proof, life

GROUP_ENDS = (0, 1, 3, 4, 5, 10, 12, 13, 14)
"""Last blocks of the groups that are committed together: the group 6 to 10 passes a checkpoint."""

RESTARTS = (3, 5, 10, 13)
"""Blocks after which the peer is closed and opened again."""

Tell = Callable[..., None]
"""Hears what the peer tells the world: an event and its data. What it hears must never be untrue afterwards."""


@cache
def blocks() -> tuple[bytes, ...]:
    """Give the channel's blocks."""
    return tuple(encode_block(outcome.block) for outcome in life().outcomes)


class Proofs:
    """What pruning rests on: what the records say."""

    stopped = ""

    def __init__(self, records: CheckpointStore) -> None:
        self._records = records

    def proof_for_pruning(self) -> CheckpointProof | None:
        return self._records.latest_valid

    def policies(self) -> tuple[str, ...]:
        return ()

    def waiting_for(self) -> str:
        return ""


class LonePeer:
    """A peer of one channel.

    Args:
        folder: Where `data` and `archive` lie.
        tell: Hears what is acknowledged, once it is durable.
        files: The durable verbs.
        open_engine: Opens the database.
    """

    def __init__(
        self, folder: Path, tell: Tell, *, files: Files | None = None, open_engine: OpenEngine = LevelDbEngine
    ) -> None:
        """Open nothing yet."""
        self.data, self.archive = folder / "data", folder / "archive"
        self._tell, self._files, self._open_engine = tell, files, open_engine
        self._store: LedgerStore | None = None
        self._records: CheckpointStore | None = None

    @property
    def store(self) -> LedgerStore:
        assert self._store is not None, "the peer is open"
        return self._store

    @property
    def records(self) -> CheckpointStore:
        assert self._records is not None, "the peer is open"
        return self._records

    def live(self, until: int = HEIGHT) -> None:
        """Start, do all that is left to do up to a height, and end."""
        with ThreadPoolExecutor(2) as verifiers, ThreadPoolExecutor(2) as preparers:
            self._preparers, self._verifiers = preparers, verifiers
            try:
                self.start()
                while self.store.height < until:
                    height = self.store.height
                    end = next(each for each in GROUP_ENDS if each >= height)
                    self._tell("step", name="commit")
                    self.committer.commit(blocks()[height : end + 1])
                    self.agree()
                    if end in RESTARTS:
                        self.close()
                        self.start()
            finally:
                self.close()

    def start(self) -> None:
        """Open everything, and do what a start does."""
        self._tell("step", name="open")
        rules = make_rules(self._verifiers)
        if self._files is None and self._open_engine is LevelDbEngine:
            ledger = open_ledger(self.data, blocks()[0], rules, chk=CHK)
            store, bundle = ledger.store, ledger.bundle
        else:
            store, bundle = self._watched(rules)
        self._store = store
        self.committer = Committer(store, bundle, rules, workers=self._preparers, on_committed=self._committed)
        self._records = CheckpointStore(store.records_directory, ChannelId(CHANNEL), self._files)
        settings = PruningSettings(PruningMode.AUTO, CHK, archive_directory=self.archive)
        self.pruning = PruningService(
            store, Proofs(self._records), life().channel.peers[0], settings, now_ms=lambda: 1_800_000_000_000
        )
        if store.height:
            self._tell("committed", number=store.height - 1, vblock_hash=store.vblock_hash.hex())
        latest = self.records.latest_valid
        self._settle()
        if latest is not None:
            self._prune(latest.statement.number)
        self.agree()

    def _watched(self, rules: Rules) -> tuple[LedgerStore, Bundle]:
        """Open the ledger as a node does, on files and a database that a test watches."""
        first = genesis_bundle(blocks()[0])
        store = LedgerStore.open(
            self.data, ChannelId(CHANNEL), chk=CHK, open_engine=self._open_engine, files=self._files
        )
        try:
            check_genesis(store, blocks()[0])
            if store.pending_count:
                store.recommit(Rejudge(bundle_of(store, first), rules))
            return store, bundle_of(store, first)
        except BaseException:
            store.close()
            raise

    def agree(self) -> None:
        """Make every captured checkpoint valid that is above the latest valid one."""
        for number in self.store.captured():
            latest = self.records.latest_valid
            if latest is not None and number <= latest.statement.number:
                continue
            self._tell("step", name="checkpoint")
            statement = self.store.compute_checkpoint(number).statement(ChannelId(CHANNEL))
            proof = honest_proof(statement, life().channel.peers)
            self._tell("step", name="sign")
            self.records.record_signed(CheckpointMessage(statement, proof.signatures[0], CHK, ()))
            self._tell("signed", number=number, statement=statement.encoded.hex())
            self._tell("step", name="valid")
            self.records.record_valid(proof, Scope.FULL)
            self._tell("valid", number=number, statement=statement.encoded.hex())
            self._settle()
            self._prune(number)

    def _settle(self) -> None:
        """Keep the state of the latest valid checkpoint, let go of those below."""
        latest = self.records.latest_valid
        if latest is None:
            return
        self._tell("step", name="settle")
        for number in self.store.captured():
            if number == latest.statement.number:
                self.store.keep_checkpoint(number)
            elif number < latest.statement.number:
                self.store.release(number)

    def _prune(self, number: BlockNumber) -> None:
        self._tell("step", name="prune")
        receipt = self.pruning.checkpoint_valid(number)
        if receipt is not None:
            self._tell("pruned", to=receipt.to_block, receipt=receipt.receipt_hash.hex())

    def _committed(self, outcomes: tuple[Outcome, ...]) -> None:
        for outcome in outcomes:
            number = outcome.block.number
            vblock_hash = self.store.summary(number).vblock_hash
            self._tell("committed", number=number, vblock_hash=vblock_hash.hex())

    def close(self) -> None:
        """Close everything; twice is harmless."""
        records, self._records = self._records, None
        store, self._store = self._store, None
        if records is not None:
            records.close()
        if store is not None:
            store.close()


@contextmanager
def opened(folder: Path) -> Iterator[tuple[LedgerStore, CheckpointStore]]:
    """Look at what a peer left."""
    store = LedgerStore.open(folder / "data", ChannelId(CHANNEL), chk=CHK)
    try:
        with CheckpointStore(store.records_directory, ChannelId(CHANNEL)) as records:
            yield store, records
    finally:
        store.close()


__all__ = ["GROUP_ENDS", "RESTARTS", "LonePeer", "Tell", "blocks", "opened"]
