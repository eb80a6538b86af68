"""How do the peers of a channel come to agree on checkpoints?  The driver of the tally in `core.checkpoint_tally`.

Interface first; the body follows.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import CheckpointProof, CheckpointRoots, Notice, PeerSignature, Statement
from ledger.core.names import BlockNumber, ChannelId


class CheckpointState(StrEnum):
    """How far a checkpoint has come."""

    PENDING = "pending"
    """Signatures are being collected."""

    VALID = "valid"
    """The global policy, and the local one where it is set, are satisfied."""

    LOCAL = "local"
    """Good enough for this peer's pruning only; joiners can't use it."""

    SUPERSEDED = "superseded"
    """A later checkpoint became valid first."""

    DIVERGED = "diverged"
    """Others agreed on another statement than this peer computed."""


@dataclass(frozen=True, slots=True)
class SignerStatus:
    """Who signed, for people."""

    msp_id: str
    name: str
    """Common name in the certificate; "" if it has none."""

    certificate_digest: bytes
    """SHA-256 of the sanitised certificate: with the MSP ID, who it is."""

    signed: PeerSignature


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """One checkpoint as this peer knows it."""

    number: BlockNumber
    state: CheckpointState
    statement: Statement
    """What this peer computed; where only a proof is left, what the proof says."""

    signers: tuple[SignerStatus, ...]
    """Of a valid checkpoint its proof, in order; of a pending one those who count so far."""

    missing: tuple[str, ...]
    """What the policies still ask for, in words: `1 more signature: Org2MSP`."""

    signed_here: bool
    """Whether this peer signed it."""


@dataclass(frozen=True, slots=True)
class CheckpointingStatus:
    """The whole of it."""

    channel: ChannelId
    interval_blocks: int
    """CHK of this peer."""

    intervals_of_others: Mapping[str, int]
    """CHK that other peers told, by peer; a difference is worth a warning."""

    libraries_of_others: Mapping[str, Mapping[str, str]]
    """Versions of other peers' libraries that differ from ours, by peer."""

    latest_valid: BlockNumber | None
    latest_local: BlockNumber | None
    """Latest checkpoint good enough for this peer's pruning; above `latest_valid` only where LCVP *or* GCVP is set."""

    newest_computed: BlockNumber | None
    diverged: str
    """Where and how this peer differs from what others agreed on; empty if it doesn't."""

    silent: str
    """Why this peer signs nothing at present; empty if it signs."""

    failed: str
    """Why the newest checkpoint could not be computed; empty if it could."""

    global_policy: str
    """The policy that makes a checkpoint valid for everybody, as text."""

    local_policy: str | None
    """This peer's own further policy, as text."""

    connected: tuple[str, ...]
    """Names of the peers we talk to."""

    received: Mapping[str, int]
    """Messages received, by what became of them: `counted`, or the rule by which they were dropped."""


@dataclass(frozen=True, slots=True)
class CheckpointingSettings:
    """The peer's settings for one channel."""

    peer_name: str
    interval_blocks: int = 100
    """CHK."""

    local_policy: str | None = None
    """LCVP as text."""

    either_policy_prunes: bool = False
    """LCVP *or* GCVP is enough for this peer's own pruning (and for nothing else)."""

    libraries: tuple[tuple[str, str], ...] = ()
    """Our own library versions, told to others."""

    signs: bool = True
    """False for a peer that may not sign yet (it did not validate the blocks itself)."""

    reconnect_delay_s_max: float = 10.0
    """Longest wait between attempts to reach another peer."""

    repeat_interval_s: float = 5.0
    """Time after which a pending checkpoint is asked for again."""


class CheckpointSource(Protocol):
    """What checkpointing needs of the ledger; the store has all but `bundle_at`. Called in the executor."""

    def captured(self) -> tuple[BlockNumber, ...]:
        """List the heights whose checkpoint can be computed, ascending; survives restarts."""
        ...

    def compute_checkpoint(self, number: BlockNumber) -> CheckpointRoots:
        """Compute the roots at a captured height; what was computed before costs nothing."""
        ...

    def keep_checkpoint(self, number: BlockNumber) -> None:
        """Keep the state at a height until it is released."""
        ...

    def release(self, number: BlockNumber) -> None:
        """Let go of a height that was kept."""
        ...

    def release_before(self, number: BlockNumber) -> None:
        """Let go of every captured height below one that nobody keeps."""
        ...

    def bundle_at(self, number: BlockNumber) -> Bundle:
        """Return the channel's configuration in force after a block."""
        ...


class Line(Protocol):
    """A conversation with one other peer, as messages."""

    @property
    def source(self) -> str:
        """Whose messages these are, for quotas: the organisation that the TLS certificate shows, or our own link."""
        ...

    async def read(self) -> Notice | None:
        """Wait for the next notice; None at the end.

        Raises:
            MalformedMessage: The other side sent something that is no notice.
            PeerUnreachable: The connection broke.
        """
        ...

    async def write(self, notice: Notice) -> None:
        """Send a notice.

        Raises:
            PeerUnreachable: The connection broke.
        """
        ...


class Link(Protocol):
    """A way to one other peer."""

    @property
    def name(self) -> str:
        """Address, for people."""
        ...

    def open(self) -> AbstractAsyncContextManager[Line]:
        """Connect; raises `PeerUnreachable`."""
        ...


OnValid = Callable[[CheckpointProof], None]
"""Hears of a checkpoint that pruning may rest on, in the executor; may wait for the disk."""

OnDiverged = Callable[[str], None]
"""Hears that this peer diverged, on the event loop; must not block."""

NewestOrdered = Callable[[], Awaitable[int]]
"""Asks the orderers for the number of their newest block."""
