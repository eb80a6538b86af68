"""Which messages make a block?  Fabric's rule (orderer/common/blockcutter), as a pure machine.

A message larger than the preferred size goes alone, behind whatever waits; one that would make the waiting ones too
large cuts them first; as many as the count allows are cut at once. Time is the caller's: it cuts what waits when the
batch time-out has passed since the first waiting message.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from ledger.core.channel_config import BatchSize

Message = TypeVar("Message")


@dataclass(frozen=True, slots=True)
class Waiting(Generic[Message]):
    """Messages that wait for their block."""

    messages: tuple[Message, ...] = ()
    size_bytes: int = 0


def add(
    waiting: Waiting[Message], message: Message, size_bytes: int, limits: BatchSize
) -> tuple[tuple[tuple[Message, ...], ...], Waiting[Message]]:
    """Take one more message.

    Args:
        waiting: What waits; left as it was.
        message: The message.
        size_bytes: Its payload and signature.
        limits: Count and sizes of the channel's configuration.

    Returns:
        The batches to be made blocks now, in order (none, one or two), and what waits then.
    """
    cut: list[tuple[Message, ...]] = []
    if waiting.messages and (
        size_bytes > limits.preferred_max_bytes or waiting.size_bytes + size_bytes > limits.preferred_max_bytes
    ):
        cut.append(waiting.messages)
        waiting = Waiting()
    if size_bytes > limits.preferred_max_bytes:
        return (*cut, (message,)), waiting
    waiting = Waiting((*waiting.messages, message), waiting.size_bytes + size_bytes)
    if len(waiting.messages) >= limits.max_message_count:
        cut.append(waiting.messages)
        waiting = Waiting()
    return tuple(cut), waiting
