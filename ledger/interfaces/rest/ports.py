"""What does the REST interface ask of the node?  The shape of a node and of a channel, as this door sees them.

Implemented by the node, which adapts its services to it, and by a small node of the tests. Nothing here waits for the
disk on the event loop: this door calls every plain method on its own pool of threads, and awaits the others.

Errors are those of `core.errors`, each translated in `problems`: `NotFound` what never was, `Pruned` what is gone,
`PruneRefused` what may not be pruned yet, `StorageFailed` a failing disk, `ChannelStopped` a channel that can't answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from ledger.core.checkpoint import PeerSignature, Statement
from ledger.core.errors import Fault
from ledger.core.names import BlockNumber, ChannelId, TxId, TxIndex
from ledger.core.ports import LedgerReader
from ledger.core.proofs import Proof
from ledger.core.pruning import PruneReceipt
from ledger.core.state import StateKey
from ledger.services.pruning import PrunePlan
from ledger.storage.backup import Manifest


class AdminAction(StrEnum):
    """What an admin token can be bound to; the word stands in the token and in `peerledger admin token`."""

    PRUNE = "prune"
    """Plan a prune, and apply it."""

    ABANDON = "abandon"
    """Give up a checkpoint that can't become valid."""

    BACKUP = "backup"
    """Begin a backup, and ask how far it has come."""


class ChannelState(StrEnum):
    """What a channel of this peer is doing."""

    OPENING = "opening"
    """Its ledger is being opened, and what a crash left is taken up."""

    FOLLOWING = "following"
    """Blocks are committed as the orderers deliver them."""

    PAUSED = "paused"
    """Nothing is committed at present; the reason says what it waits for."""

    STOPPED = "stopped"
    """Nothing is committed any more; the reason says why."""

    DIVERGED = "diverged"
    """A valid checkpoint differs from what this peer computed; it stopped and keeps the evidence."""

    FAILED = "failed"
    """The channel did not open; the reason names file and record."""


class CheckpointStatus(StrEnum):
    """How far a checkpoint has come."""

    PENDING = "pending"
    """Signatures are being collected."""

    VALID = "valid"
    """The global policy, and the local one where it is set, are satisfied."""

    LOCAL = "local"
    """Satisfies the local policy alone, which is enough for this peer's pruning only; joiners can't use it."""

    SUPERSEDED = "superseded"
    """A later checkpoint became valid first; nothing more is collected for this one."""

    ABANDONED = "abandoned"
    """An admin gave it up here; nothing more is collected for it."""

    DIVERGED = "diverged"
    """Others agreed on another statement than this peer computed."""


@dataclass(frozen=True, slots=True)
class ComponentHealth:
    """Whether one part of the node does useful work."""

    name: str
    """Name of the part; `orderer/mychannel`, `committer/mychannel`, `storage`."""

    ready: bool
    """Whether it does; a quiet network with no transactions stays ready."""

    reason: str = ""
    """Why not, or what it is doing, in one line."""


@dataclass(frozen=True, slots=True)
class ChannelSummary:
    """One line of the list of channels; also for a channel that did not open."""

    channel_id: ChannelId
    state: ChannelState
    reason: str = ""
    """Why it stopped or failed."""


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """What a channel is doing and by which settings."""

    state: ChannelState
    reason: str = ""
    """Which rule stopped it, and at which block."""

    checkpoint_interval_blocks: int = 100
    """CHK of this peer."""

    checkpoint_intervals_of_others: Mapping[str, int] = field(default_factory=dict)
    """CHK that other peers told, by peer; a difference is worth a warning."""

    latest_valid_checkpoint: BlockNumber | None = None
    """Highest height whose checkpoint is valid."""

    pruning_mode: str = "off"
    """`off`, `manual` or `auto`."""

    pruning_keep_blocks: int = 0
    """Least number of blocks that are kept whole."""

    pruning_reason: str = ""
    """Why nothing is pruned at present; empty if nothing holds it back."""

    global_policy: str = ""
    """The policy that makes a checkpoint valid for everybody, as text."""

    local_policy: str | None = None
    """This peer's own further policy, as text."""


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A checkpoint as this peer knows it."""

    statement: Statement
    """What is, or is to be, agreed on; in doubt what this peer computed."""

    status: CheckpointStatus

    signatures: tuple[PeerSignature, ...] = ()
    """Who signed; of a valid checkpoint its proof, in the order in which the policy is evaluated."""

    missing: tuple[str, ...] = ()
    """What the policies still ask for, in words; empty for a valid one."""


class Proofs(Protocol):
    """Proves what the ledger says; raises `NotFound` where no valid checkpoint covers it yet."""

    def transaction(self, tx_id: TxId, place: int, checkpoint: BlockNumber | None) -> Proof:
        """Prove what became of a transaction, by a checkpoint or the first that covers it."""
        ...

    def entry(self, key: StateKey, checkpoint: BlockNumber | None) -> Proof:
        """Prove a key's entry or its absence, at a checkpoint or the latest one."""
        ...

    def consistency(self, older: BlockNumber, newer: BlockNumber) -> Proof:
        """Prove that the ledger at one checkpoint is the beginning of that at another."""
        ...

    def checkpoint(self, number: BlockNumber) -> Proof:
        """Prove that a checkpoint is valid."""
        ...


class BackupState(StrEnum):
    """How far a backup has come."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BackupStatus:
    """The present backup of a channel, or the last one since the peer started."""

    state: BackupState
    path: str
    """The backup's folder on the peer's machine."""

    bytes_done: int = 0
    bytes_total: int = 0
    manifest: Manifest | None = None
    """What it holds, once it is done."""

    reason: str = ""
    """Why it failed."""


class ChannelView(Protocol):
    """One channel of the node."""

    @property
    def ledger(self) -> LedgerReader:
        """The ledger: safe to read while blocks are committed."""
        ...

    @property
    def proofs(self) -> Proofs:
        """Proofs of what it says."""
        ...

    def status(self) -> ChannelStatus:
        """Say what the channel is doing and by which settings."""
        ...

    def faults(self, number: BlockNumber) -> Mapping[TxIndex, Fault]:
        """Return why transactions of a block are invalid, by index; one without a known fault is absent."""
        ...

    def checkpoints(self) -> Sequence[CheckpointReport]:
        """List the checkpoints that this peer knows, newest first."""
        ...

    def checkpoint(self, number: BlockNumber) -> CheckpointReport:
        """Return one checkpoint.

        Raises:
            NotFound: None is known at this height.
        """
        ...

    def abandon(self, number: BlockNumber) -> CheckpointReport:
        """Give up a pending checkpoint; again is no change.

        Raises:
            NotFound: None is known at this height.
            AbandonRefused: It is valid, or its time is over.
            PeerUnreachable: Checkpointing is not running at present.
        """
        ...

    def divergence(self) -> Mapping[str, Any]:
        """Say where this peer differs from the others, as data.

        Raises:
            NotFound: It does not.
        """
        ...

    def prune_plan(self, to_block: BlockNumber | None) -> PrunePlan:
        """Say what pruning up to `to_block`, or as far as allowed, would do.

        Raises:
            PruneRefused: `to_block` is above what may be pruned.
        """
        ...

    def prune(self, to_block: BlockNumber | None) -> PruneReceipt | None:
        """Prune up to `to_block`, or as far as allowed; None if nothing was left to prune.

        Raises:
            PruneRefused: `to_block` is above what may be pruned.
        """
        ...

    def receipts(self) -> Sequence[PruneReceipt]:
        """List the receipts of what was pruned, oldest first."""
        ...

    def start_backup(self, to: str) -> BackupStatus:
        """Begin a backup in a folder below the peer's backup directory; returns at once.

        Raises:
            Refused: It is not below that directory, or there is none.
            Conflict: The folder is there already.
            Busy: Another backup is being made.
        """
        ...

    def backup_status(self) -> BackupStatus | None:
        """Say how far the present or the last backup has come; None if there was none."""
        ...

    async def wait_above(self, height: int) -> None:
        """Return once more than `height` blocks are committed; called on the event loop, ended by cancelling it."""
        ...


class NodeView(Protocol):
    """The node, as far as this door needs it."""

    def channels(self) -> Sequence[ChannelSummary]:
        """List the channels by name, also those that did not open."""
        ...

    def channel(self, channel_id: str) -> ChannelView:
        """Return a channel.

        Raises:
            NotFound: This peer is not in it.
            ChannelStopped: It is, but its ledger did not open.
        """
        ...

    def components(self) -> Sequence[ComponentHealth]:
        """Report on each part of the node; must answer at once, also when a part is stuck."""
        ...

    def authorize(self, token: str, channel_id: str, action: str) -> None:
        """Check an admin token against this peer, a channel, an action and the present time.

        Raises:
            MalformedMessage: It is no token.
            InvalidIdentity: Its signer is no valid member, or the signature is wrong.
            Forbidden: It is well signed but by no admin of this peer's organisation, for something else, or too old.
        """
        ...
