"""What does a joiner know on its way?  Where the config blocks lead, what was checked, and what is told in the end."""

from dataclasses import dataclass, field

from ledger.core.block import Block
from ledger.core.channel_config import Bundle
from ledger.core.checkpoint_proof import CountedSigner
from ledger.core.errors import Refused
from ledger.core.joining import JoinOffer
from ledger.core.names import BlockNumber
from ledger.node.join_blocks import Heads


class WrongHistory(Refused):
    """What the members signed is not the history that this peer was told to trust."""


@dataclass(frozen=True, slots=True)
class Trust:
    """A vBlock that is known to be true."""

    number: BlockNumber
    vblock_hash: bytes


@dataclass(frozen=True, slots=True)
class Trail:
    """Where the config blocks lead."""

    blocks: tuple[Block, ...]
    """The config blocks, genesis block first."""

    before: Bundle
    """The configuration before the last of them."""

    after: Bundle
    """The configuration after it."""

    @property
    def last(self) -> Block:
        """The last config block."""
        return self.blocks[-1]

    def bundle_before(self, number: BlockNumber) -> Bundle:
        """The configuration before the block at the checkpoint, which may itself be the last config block."""
        return self.before if self.last.number == number else self.after


@dataclass(frozen=True, slots=True)
class Checked:
    """A checkpoint of which steps 1 to 6 are done."""

    offer: JoinOffer
    trail: Trail
    signers: tuple[CountedSigner, ...]
    heads: Heads
    whole: Block
    """The block at the checkpoint."""

    floor: int
    """Newest height that is known: below it this peer signs nothing."""

    warnings: tuple[str, ...]


@dataclass(slots=True)
class JoinReport:
    """What was done."""

    channel: str
    checkpoint: int
    vblock_hash: str
    state_hash: str
    signers: tuple[str, ...]
    """Who signed the checkpoint."""

    warnings: tuple[str, ...]
    """What had to be trusted without a check."""

    sources: dict[str, str] = field(default_factory=dict)
    """Each source: how many answers it gave, or why it was dropped."""


__all__ = ["Checked", "JoinReport", "Trail", "Trust", "WrongHistory"]
