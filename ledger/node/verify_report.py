"""What does a verification say?  Level by level: what was checked, what could not be, and the first failure."""

from collections import Counter
from dataclasses import dataclass, field

LEVELS = {
    "structure": "blocks",
    "chain": "blocks",
    "signatures": "transactions",
    "state": "blocks",
    "checkpoint": "proofs and receipts",
}
"""The levels in their order, and what each of them counts."""


@dataclass(slots=True)
class Level:
    """What one level found."""

    ok: bool = True
    """Whether nothing is wrong with what was checked."""

    checked: int = 0
    """Things that were checked in full."""

    not_checked: int = 0
    """Things that could not be checked, or not in full."""

    first_failure: str | None = None

    reasons: Counter[str] = field(default_factory=Counter)
    """Why how many things were not checked, in words."""

    def fail(self, reason: str) -> None:
        """Remember the first failure."""
        self.ok = False
        if self.first_failure is None:
            self.first_failure = reason

    def skip(self, count: int, reason: str) -> None:
        """Count what can't be checked."""
        if count:
            self.not_checked += count
            self.reasons[reason] += count

    def members(self) -> dict[str, object]:
        """Give the level as JSON members."""
        return {
            "ok": self.ok,
            "checked": self.checked,
            "not_checked": self.not_checked,
            "first_failure": self.first_failure,
        }


@dataclass(slots=True)
class VerifyReport:
    """What was proved of one channel's ledger."""

    channel: str
    height: int = 0
    """Number of blocks; 0 if the ledger can't even be opened."""

    prune_point: int | None = None
    checkpoint: int | None = None
    """Number of the latest valid checkpoint."""

    vblock_hash: str | None = None
    """As of the last block, as the ledger on disk has it."""

    state_hash: str | None = None
    """As of the last block, of the state on disk."""

    levels: dict[str, Level] = field(default_factory=lambda: {name: Level() for name in LEVELS})

    pending: int = 0
    """Whole blocks behind the last commit: a crash left them, and the next start of the peer commits them."""

    signers: tuple[str, ...] = ()
    """Who signed the latest valid checkpoint."""

    @property
    def ok(self) -> bool:
        """Whether no level failed."""
        return all(level.ok for level in self.levels.values())

    def members(self) -> dict[str, object]:
        """Give the report as JSON members."""
        return {
            "channel": self.channel,
            "height": self.height,
            "prune_point": self.prune_point,
            "checkpoint": self.checkpoint,
            "vblock_hash": self.vblock_hash,
            "state_hash": self.state_hash,
            "levels": {name: level.members() for name, level in self.levels.items()},
        }


__all__ = ["LEVELS", "Level", "VerifyReport"]
