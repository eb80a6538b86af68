"""Which bytes decode as a message?  Those that Go's decoder takes, whatever limits the library here has.

The library's parser decides first, at full speed. Only what it refuses is read again by our own reader, which knows
where it is stricter than Go: unknown groups nested more than 100 deep, and tags or lengths written with more than five
bytes. Such bytes are rewritten in the shortest form, without unknown groups, and parsed again.
"""

from typing import Any

from google.protobuf.message import DecodeError

from ledger.core.errors import MalformedMessage


def parse(kind: Any, data: bytes, subject: str) -> Any:
    """Decode a message of the class `kind`.

    Args:
        kind: Message class.
        data: Its bytes.
        subject: What the bytes are, for the error.

    Raises:
        MalformedMessage: Go's decoder would refuse the bytes.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedMessage(subject, rule="protobuf", expected=f"a {subject} message", found=data) from error


__all__ = ["parse"]
