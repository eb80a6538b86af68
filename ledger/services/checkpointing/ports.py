"""What does checkpointing need of others?  The ledger, the peer's identity, ways to other peers, and who is told."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import CheckpointProof, CheckpointRoots, Notice
from ledger.core.names import BlockNumber


class CheckpointSource(Protocol):
    """What checkpointing needs of the ledger, called in the executor; the ledger store has all but `bundle_at`."""

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
        """Let go of a captured height, kept or not."""
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
        """Connect; raises `PeerUnreachable`, here or at the first use of the line."""
        ...


class PeerSigner(Protocol):
    """The peer's own identity."""

    @property
    def serialized(self) -> bytes:
        """SerializedIdentity."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Sign a message with the identity's key."""
        ...


OnValid = Callable[[CheckpointProof], object]
"""Hears of a checkpoint that pruning may rest on, in the executor; may wait for the disk."""

OnDiverged = Callable[[str], None]
"""Hears that this peer diverged, on the event loop; must not block."""

NewestOrdered = Callable[[], Awaitable[int]]
"""Asks the orderers for the number of their newest block; raises `WorldFailed`."""

__all__ = ["CheckpointSource", "Line", "Link", "NewestOrdered", "OnDiverged", "OnValid", "PeerSigner"]
