"""A node for tests of the REST interface: a recorded channel in memory, settable from outside, with real values.

Blocks, verdicts, commit hashes and ids are those of a real peer; vBlocks are hashed by the rules of `core.vblock`. What
a test wants to see (a pruned ledger, a stopped channel, a part that hangs) it sets on the fields.
"""

import asyncio
import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from fabric_protos.common import common_pb2
from google.protobuf.message import DecodeError

from ledger.core.block import SLOT_COMMIT_HASH, SLOT_VERDICTS, Block
from ledger.core.checkpoint import CheckpointProof, PeerSignature, Statement
from ledger.core.errors import (
    AbandonRefused,
    Busy,
    Fault,
    Forbidden,
    InvalidIdentity,
    NotFound,
    Pruned,
    PruneRefused,
    Refused,
)
from ledger.core.hashing import digest, header_hash
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId, Digest, TxId, TxIndex, Verdict
from ledger.core.proofs import Proof
from ledger.core.pruning import Limits, PruneReceipt, decide
from ledger.core.state import HistoryEntry, LedgerView, StateKey, TxPlace, Version
from ledger.core.vblock import Leaf, VBlock, VBlockHeader, tx_root, vblock_hash
from ledger.interfaces.rest.ports import (
    BackupState,
    BackupStatus,
    ChannelState,
    ChannelStatus,
    ChannelSummary,
    ChannelView,
    CheckpointReport,
    CheckpointStatus,
    ComponentHealth,
    Proofs,
)
from ledger.services.pruning import STILL_PROVABLE, PrunePlan
from ledger.wire.block import decode_block
from ledger.wire.rwset import decode_rwset
from ledger.wire.transaction import decode_transaction
from tests.kit.paths import VECTORS
from tests.kit.recorded import RecordedState, State, apply, taken_apart

CHANNEL = "minichannel"
"""Name under which the recorded channel is served."""

CHECKPOINT = BlockNumber(60)
"""Its latest valid checkpoint."""

INTERVAL = 20
"""Its CHK."""

GOOD_TOKEN = "an-admins-token"
MEMBER_TOKEN = "a-members-token"
FORGED_TOKEN = "a-forged-token"


class MemoryView(RecordedState):
    """The state after the last block; says when it is closed."""

    closed = False

    @property
    def commit_hash(self) -> bytes:
        return b""

    def has_transaction(self, tx_id: TxId) -> bool:
        return False

    def expiring(self, number: BlockNumber) -> Iterator[StateKey]:
        return iter(())

    def close(self) -> None:
        self.closed = True


@dataclass
class RecordedLedger:
    """A `LedgerReader` over recorded blocks; `height` and `prune_point` may be moved."""

    name: str
    raw: list[bytes] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    ids: list[list[TxId]] = field(default_factory=list)
    vblocks: list[VBlock] = field(default_factory=list)
    state: State = field(default_factory=dict)
    changes: dict[tuple[str, str], list[HistoryEntry]] = field(default_factory=dict)
    height: int = 0
    prune_point: int = -1
    fault: Exception | None = None
    """Raised by every read, where set."""

    before_read: Callable[[], None] = lambda: None
    """Called before every read."""

    @property
    def first_block(self) -> BlockNumber:
        return BlockNumber(self.prune_point + 1)

    @property
    def joined_at(self) -> BlockNumber | None:
        return None

    @property
    def block_hash(self) -> Digest:
        return self.vblocks[self.height - 1].header.block_hash

    @property
    def vblock_hash(self) -> Digest:
        return self.vblocks[self.height - 1].vblock_hash

    def view(self) -> LedgerView:
        self._check()
        return MemoryView(self.state)

    def block_bytes(self, number: BlockNumber) -> bytes:
        self._check(number)
        if number <= self.prune_point:
            raise Pruned(block=number, first_block=self.first_block)
        return self.raw[number]

    def config_block_bytes(self, number: BlockNumber) -> bytes:
        self._check(number)
        return self.raw[number]

    def vblock(self, number: BlockNumber) -> VBlock:
        self._check(number)
        return self.vblocks[number]

    def places(self, tx_id: TxId) -> tuple[TxPlace, ...]:
        self._check()
        return tuple(
            TxPlace(BlockNumber(number), TxIndex(index), self.verdicts(number)[index])
            for number in range(self.height)
            for index, claimed in enumerate(self.ids[number])
            if claimed == tx_id
        )

    def envelope(self, place: TxPlace) -> bytes:
        self._check(place.block)
        if place.verdict != Verdict.VALID and place.block <= self.prune_point:
            raise Pruned(block=place.block, first_block=self.first_block, index=place.index, verdict=place.verdict)
        return self.blocks[place.block].envelopes[place.index]

    def history(self, namespace: str, key: str) -> Iterator[HistoryEntry]:
        self._check()
        return reversed(self.changes.get((namespace, key), []))

    def verdicts(self, number: int) -> bytes:
        return self.blocks[number].metadata[SLOT_VERDICTS]

    def _check(self, number: int = 0) -> None:
        self.before_read()
        if self.fault is not None:
            raise self.fault
        if number >= self.height:
            raise NotFound(f"block {number} is not committed; the height is {self.height}")


@cache
def _loaded(name: str) -> RecordedLedger:
    ledger = RecordedLedger(name)
    with (VECTORS / name / "transactions.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    previous = ZERO_DIGEST
    for path in sorted((VECTORS / name / "blocks").glob("*.block")):
        block = decode_block(path.read_bytes())
        ledger.raw.append(path.read_bytes())
        ledger.blocks.append(block)
        ledger.ids.append([TxId(row["txid"]) for row in rows if int(row["block"]) == block.number])
        ledger.height += 1
        ledger.vblocks.append(_vblock(ledger, block, previous))
        previous = ledger.vblocks[-1].vblock_hash
        for index, verdict in enumerate(ledger.verdicts(block.number)):
            if verdict == Verdict.VALID:
                _apply(ledger, block, index)
    return ledger


def recorded_ledger(name: str = "mini") -> RecordedLedger:
    """Return a recorded channel whose height and prune point are the caller's own."""
    loaded = _loaded(name)
    return RecordedLedger(
        name, loaded.raw, loaded.blocks, loaded.ids, loaded.vblocks, loaded.state, loaded.changes, loaded.height
    )


def _vblock(ledger: RecordedLedger, block: Block, previous: Digest) -> VBlock:
    verdicts, ids = ledger.verdicts(block.number), ledger.ids[block.number]
    leaves = tuple(
        Leaf(TxIndex(index), verdicts[index], digest(envelope), ids[index])
        for index, envelope in enumerate(block.envelopes)
    )
    commit_hash = common_pb2.Metadata.FromString(block.metadata[SLOT_COMMIT_HASH]).value
    header = VBlockHeader(
        block.number,
        previous,
        header_hash(block.number, block.header.previous_hash, block.header.data_hash),
        len(leaves),
        verdicts.count(Verdict.VALID),
        tx_root(leaves),
        commit_hash,
    )
    valid = tuple((leaf.index, block.envelopes[leaf.index]) for leaf in leaves if leaf.verdict == Verdict.VALID)
    return VBlock(header, vblock_hash(ChannelId(CHANNEL), header), leaves, valid)


def _apply(ledger: RecordedLedger, block: Block, index: int) -> None:
    envelope = block.envelopes[index]
    apply(ledger.state, decode_transaction(envelope), Version(block.number, TxIndex(index)))
    try:
        found = taken_apart(envelope, block.number, index, 0, {(block.number, index): ""})
    except DecodeError:
        return
    for namespace in decode_rwset(found.results).namespaces if found is not None else ():
        for write in namespace.writes:
            changes = ledger.changes.setdefault((namespace.namespace, write.key), [])
            changes.append(HistoryEntry(block.number, TxIndex(index)))


class NoProofs:
    """Proofs of a channel that no valid checkpoint covers."""

    def transaction(self, tx_id: TxId, place: int = 0, checkpoint: BlockNumber | None = None) -> Proof:
        raise NotFound(f"transaction {tx_id} is in block 7, which no valid checkpoint covers yet")

    def entry(self, key: StateKey, checkpoint: BlockNumber | None = None) -> Proof:
        raise NotFound("no checkpoint is valid yet")

    def consistency(self, older: BlockNumber, newer: BlockNumber) -> Proof:
        raise NotFound("no checkpoint is valid yet")

    def checkpoint(self, number: BlockNumber) -> Proof:
        raise NotFound("no checkpoint is valid yet")


@dataclass
class MemoryChannel:
    """A channel over a recorded ledger; pruning follows the real rules of `core.pruning`."""

    ledger: RecordedLedger
    current: ChannelStatus
    reports: list[CheckpointReport]
    pins: tuple[str, ...] = ()
    done: list[PruneReceipt] = field(default_factory=list)
    committed: asyncio.Event = field(default_factory=asyncio.Event)
    before_read: Callable[[], None] = lambda: None
    backup: BackupStatus | None = None
    proofs: Proofs = field(default_factory=NoProofs)
    diverged: Mapping[str, Any] | None = None

    def status(self) -> ChannelStatus:
        self.before_read()
        return self.current

    def faults(self, number: BlockNumber) -> Mapping[TxIndex, Fault]:
        return {
            TxIndex(index): Fault(verdict, "recorded rule", f"expected by block {number}, found {verdict}")
            for index, verdict in enumerate(self.ledger.verdicts(number))
            if verdict != Verdict.VALID
        }

    def checkpoints(self) -> Sequence[CheckpointReport]:
        return self.reports

    def checkpoint(self, number: BlockNumber) -> CheckpointReport:
        for report in self.reports:
            if report.statement.number == number:
                return report
        raise NotFound(f"no checkpoint is known at block {number}")

    def abandon(self, number: BlockNumber) -> CheckpointReport:
        found = self.checkpoint(number)
        if found.status is not CheckpointStatus.PENDING:
            raise AbandonRefused(
                f"checkpoint {number}", rule="pending", expected="a pending checkpoint", found=found.status.value
            )
        given_up = replace(found, status=CheckpointStatus.ABANDONED)
        self.reports[self.reports.index(found)] = given_up
        return given_up

    def divergence(self) -> Mapping[str, Any]:
        if self.diverged is None:
            raise NotFound("this peer did not diverge")
        return self.diverged

    def prune_plan(self, to_block: BlockNumber | None) -> PrunePlan:
        ledger = self.ledger
        limits = Limits(ledger.height, ledger.first_block, INTERVAL, 0, self.current.latest_valid_checkpoint)
        decision = decide(limits, to_block)
        high = decision.to_block + 1 if decision.to_block is not None else ledger.first_block
        gone = [verdict for number in range(ledger.first_block, high) for verdict in ledger.verdicts(number) if verdict]
        counts = {verdict: gone.count(verdict) for verdict in gone}
        return PrunePlan(decision, counts, ("000000.prunable",), 4711, (self.current.global_policy,), STILL_PROVABLE)

    def prune(self, to_block: BlockNumber | None) -> PruneReceipt | None:
        if self.current.pruning_mode == "off":
            raise PruneRefused("pruning", rule="pruning mode", expected="manual or auto", found="off")
        plan = self.prune_plan(to_block)
        if plan.decision.to_block is None:
            return None
        report = self.checkpoint(CHECKPOINT)
        receipt = PruneReceipt(
            ChannelId(CHANNEL),
            len(self.done),
            ZERO_DIGEST,
            plan.decision.first_block,
            plan.decision.to_block,
            tuple(sorted(plan.transactions_by_verdict.items())),
            plan.bytes_freed,
            CheckpointProof(report.statement, report.signatures),
            (),
            1_796_000_000_000,
            report.signatures[0].identity,
            b"signature",
        )
        self.ledger.prune_point = plan.decision.to_block
        self.done.append(receipt)
        return receipt

    def receipts(self) -> Sequence[PruneReceipt]:
        return self.done

    def start_backup(self, to: str) -> BackupStatus:
        if ".." in to:
            raise Refused("backup", rule="backup directory", expected="a folder below /backups", found=to)
        if self.backup is not None:
            raise Busy("a backup is being made already")
        begun = self.backup = BackupStatus(BackupState.RUNNING, f"/backups/{to}", 1, 2)
        return begun

    def backup_status(self) -> BackupStatus | None:
        return self.backup

    async def wait_above(self, height: int) -> None:
        while self.ledger.height <= height:
            await self.committed.wait()
            self.committed.clear()


@dataclass
class MemoryNode:
    """A node with one channel that works and one that did not open."""

    channel_view: MemoryChannel
    failed: Exception | None = None
    """What asking for the channel `broken` raises."""

    health: list[ComponentHealth] = field(default_factory=lambda: [ComponentHealth("storage", ready=True)])
    before_health: Callable[[], None] = lambda: None
    asked_of: list[tuple[str, str, str]] = field(default_factory=list)
    """(token, channel, action) of every authorization."""

    def channels(self) -> Sequence[ChannelSummary]:
        return [
            ChannelSummary(ChannelId("broken"), ChannelState.FAILED, "segments/000001: record 7 is damaged"),
            ChannelSummary(ChannelId(CHANNEL), self.channel_view.current.state, self.channel_view.current.reason),
        ]

    def channel(self, channel_id: str) -> ChannelView:
        if channel_id == "broken" and self.failed is not None:
            raise self.failed
        if channel_id != CHANNEL:
            raise NotFound(f"this peer is not in channel {channel_id}")
        return self.channel_view

    def components(self) -> Sequence[ComponentHealth]:
        self.before_health()
        return self.health

    def authorize(self, token: str, channel_id: str, action: str) -> None:
        self.asked_of.append((token, channel_id, action))
        if token == FORGED_TOKEN:
            raise InvalidIdentity("admin token", rule="signature", expected="the signer's over the token")
        if token != GOOD_TOKEN:
            raise Forbidden("admin token", rule="admin", expected="an admin of Org1MSP", found="Org1MSP")


def make_node(recorded: str = "mini") -> MemoryNode:
    """Build a node whose channel has a valid checkpoint at 60 and a pending one at 80."""
    ledger = recorded_ledger(recorded)
    status = ChannelStatus(
        state=ChannelState.FOLLOWING,
        checkpoint_interval_blocks=INTERVAL,
        checkpoint_intervals_of_others={"peer0.org2.example.com": 25},
        latest_valid_checkpoint=CHECKPOINT,
        pruning_mode="manual",
        pruning_reason="waiting for 1 more signature from Org2MSP",
        global_policy="/Channel/Application/Endorsement",
    )
    signer = common_pb2.SignatureHeader.FromString(
        common_pb2.Metadata.FromString(ledger.blocks[1].metadata[0]).signatures[0].signature_header
    ).creator
    reports = [
        _report(ledger, 80, CheckpointStatus.PENDING, signer, ("1 signature of Org2MSP",)),
        _report(ledger, CHECKPOINT, CheckpointStatus.VALID, signer, ()),
    ]
    return MemoryNode(MemoryChannel(ledger, status, reports))


def _report(
    ledger: RecordedLedger, number: int, status: CheckpointStatus, signer: bytes, missing: tuple[str, ...]
) -> CheckpointReport:
    statement = Statement(
        ChannelId(CHANNEL),
        BlockNumber(number),
        ledger.vblocks[number].vblock_hash,
        digest(b"vledger root"),
        digest(b"state hash"),
    )
    return CheckpointReport(statement, status, (PeerSignature(signer, b"signature"),), missing)
