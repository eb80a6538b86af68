"""What is checkpointing told, and what does it say of itself?"""

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.core.names import BlockNumber, ChannelId


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
    """The policy that makes a checkpoint valid for everybody, as text; empty before the first one is computed."""

    local_policy: str | None
    """This peer's own further policy, as text."""

    connected: tuple[str, ...]
    """Names of the peers we talk to."""

    received: Mapping[str, int]
    """Messages received, by what became of them: `counted`, or the rule by which they were dropped."""


__all__ = ["CheckpointingSettings", "CheckpointingStatus"]
