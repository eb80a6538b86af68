"""How does a peer that diverged ask this one where they differ?  `ledger.v1.Comparing`, beside joining."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Protocol

from ledger.core.divergence import LogAnswer, StateOffer
from ledger.core.names import BlockNumber
from ledger.core.state import Entry, StateKey
from ledger.core.tree_descent import Place, Subtree
from ledger.interfaces.grpc.answers import Allowance, AnswerDoor, Configured, Read
from ledger.wire import comparing as wire

SERVICE = "ledger.v1.Comparing"

QUESTIONS_PER_SECOND, QUESTIONS_AT_ONCE = 20.0, 200
"""What one organisation may ask: a comparison takes some dozens of questions."""


class Source(Protocol):
    """Who answers for a channel; `services.checkpointing.CompareSource`."""

    def log_entry(self, checkpoint: BlockNumber, number: BlockNumber) -> LogAnswer:
        """Give a vBlock."""
        ...

    def state(self, checkpoint: BlockNumber) -> StateOffer:
        """Offer a state."""
        ...

    def subtrees(self, checkpoint: BlockNumber, places: tuple[Place, ...]) -> tuple[Subtree, ...]:
        """Show subtrees."""
        ...

    def entries(
        self, checkpoint: BlockNumber, keys: tuple[StateKey, ...], paths: tuple[bytes, ...]
    ) -> tuple[tuple[StateKey, Entry], ...]:
        """Show entries."""
        ...


class ComparingDoor(AnswerDoor[Source]):
    """The service.

    Args:
        channels: The peer's channels by name, for their configurations.
        sources: Who answers for each of them.
        executor: Where they do.
    """

    def __init__(self, channels: Mapping[str, Configured], sources: Mapping[str, Source], executor: Executor) -> None:
        """Take the parts."""
        reads: dict[str, Read[Source]] = {
            "GetLogEntry": read_log_question,
            "GetStateOffer": read_state_question,
            "GetSubtrees": read_subtrees_question,
            "GetEntries": read_entries_question,
        }
        allowance = Allowance(QUESTIONS_PER_SECOND, QUESTIONS_AT_ONCE)
        super().__init__(SERVICE, reads, channels, sources, executor, allowance)


def read_log_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for a vBlock; give its channel, and how it is answered."""
    asked = wire.decode_log_question(request)
    return asked.channel, lambda source: wire.encode_log_answer(source.log_entry(asked.checkpoint, asked.number))


def read_state_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for a state."""
    asked = wire.decode_state_question(request)
    return asked.channel, lambda source: wire.encode_state_offer(source.state(asked.checkpoint))


def read_subtrees_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for subtrees."""
    asked = wire.decode_subtrees_question(request)
    return asked.channel, lambda source: wire.encode_subtrees(source.subtrees(asked.checkpoint, asked.places))


def read_entries_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for entries."""
    asked = wire.decode_entries_question(request)
    return asked.channel, lambda source: wire.encode_entries(source.entries(asked.checkpoint, asked.keys, asked.paths))


__all__ = ["ComparingDoor"]
