"""How do joiners reach this peer?  `ledger.v1.Joining`, bytes in and bytes out, behind the mutual TLS of checkpointing.

Who asks must show a TLS certificate of an organisation of the channel, by its present configuration. What is answered
is true or not whoever asks: the joiner checks it.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Protocol

from ledger.core.joining import BlockHead, JoinOffer, StateChunk
from ledger.core.names import BlockNumber
from ledger.core.vblock import Leaf
from ledger.interfaces.grpc.answers import AnswerDoor, Configured, Read
from ledger.wire import joining as wire

SERVICE = "ledger.v1.Joining"


class Source(Protocol):
    """Who answers for a channel; `services.joining.JoinSource`."""

    def offer(self) -> JoinOffer:
        """Offer a checkpoint."""
        ...

    def config_block(self, number: BlockNumber) -> bytes:
        """Give a config block."""
        ...

    def checkpoint_block(self, number: BlockNumber) -> bytes:
        """Give the block at a checkpoint."""
        ...

    def heads(self, number: BlockNumber, last: BlockNumber) -> tuple[BlockHead, ...]:
        """Give heads of blocks."""
        ...

    def leaves(self, number: BlockNumber, last: BlockNumber) -> tuple[tuple[BlockNumber, tuple[Leaf, ...]], ...]:
        """Give leaves of blocks."""
        ...

    def chunk(self, checkpoint: BlockNumber, index: int) -> StateChunk:
        """Give a chunk."""
        ...


class JoiningDoor(AnswerDoor[Source]):
    """The service.

    Args:
        channels: The peer's channels by name, for their configurations.
        sources: Who answers for each of them.
        executor: Where they do.
    """

    def __init__(self, channels: Mapping[str, Configured], sources: Mapping[str, Source], executor: Executor) -> None:
        """Take the parts."""
        reads: dict[str, Read[Source]] = {
            "GetOffer": read_offer_question,
            "GetConfigBlock": read_config_question,
            "GetCheckpointBlock": read_checkpoint_question,
            "GetHeads": read_heads_question,
            "GetLeaves": read_leaves_question,
            "GetChunk": read_chunk_question,
        }
        super().__init__(SERVICE, reads, channels, sources, executor)


def read_offer_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for an offer; give its channel, and how it is answered."""
    return wire.decode_offer_question(request), lambda source: wire.encode_offer(source.offer())


def read_config_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for a config block."""
    asked = wire.decode_block_question(request)
    return asked.channel, lambda source: wire.encode_block_answer(source.config_block(asked.number))


def read_checkpoint_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for the block at a checkpoint."""
    asked = wire.decode_block_question(request)
    return asked.channel, lambda source: wire.encode_block_answer(source.checkpoint_block(asked.number))


def read_heads_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for heads."""
    asked = wire.decode_block_question(request)
    return asked.channel, lambda source: wire.encode_heads(source.heads(asked.number, asked.last))


def read_leaves_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for leaves."""
    asked = wire.decode_block_question(request)
    return asked.channel, lambda source: wire.encode_leaves(source.leaves(asked.number, asked.last))


def read_chunk_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for a chunk."""
    asked = wire.decode_chunk_question(request)
    return asked.channel, lambda source: wire.encode_chunk(source.chunk(asked.checkpoint, asked.chunk))
