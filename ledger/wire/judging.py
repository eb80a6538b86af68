"""How do the rules get at bytes?  The decoders of this room, put together for `core.transition`."""

from collections.abc import Callable
from functools import partial

from ledger.core.channel_config import Bundle
from ledger.core.ports import Codec
from ledger.core.transition import Decoders, Transition
from ledger.wire.lifecycle import decode_definition
from ledger.wire.rwset import decode_metadata
from ledger.wire.transaction import decode_transaction

VALIDATION_PARAMETER = "VALIDATION_PARAMETER"
"""Name of the metadata entry that holds a key's policy."""


def validation_parameter(metadata: bytes) -> bytes:
    """Take the key-level parameter out of stored metadata: the last of that name; empty for none.

    Raises:
        MalformedMessage: The metadata does not decode, which is nobody's transaction's fault.
    """
    return dict(decode_metadata(metadata)).get(VALIDATION_PARAMETER, b"")


def make_transition(codec: Codec, apply_config: Callable[[Bundle, bytes], object]) -> Transition:
    """Make the rules of a channel.

    Args:
        codec: Decodes policies.
        apply_config: Checks that a ConfigEnvelope follows from a configuration and can be used; raises `Refused`.
    """
    definition = partial(decode_definition, codec=codec)
    return Transition(Decoders(decode_transaction, definition, validation_parameter, codec), apply_config)


__all__ = ["make_transition", "validation_parameter"]
