"""Which bytes decode as a message?  Those that Go's decoder takes, whatever limits the library here has.

The library's parser decides first, at full speed. Only what it refuses is read again by our own reader of the wire
format: where the library is stricter than Go (unknown groups nested more than 100 deep, tags and lengths written with
more than five bytes), the bytes are rewritten in the shortest form, without groups, and parsed again. Messages that
contain themselves (signature policies) have a decoder of their own in `wire.policy`.

In one thing the library is laxer: it cuts varints of ten bytes to 64 bits, where Go refuses those that have more. So
what may hold such a varint is read by our own reader too. Whether it may is asked once for all parts of an envelope.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from ledger.core.encoding import uvarint
from ledger.core.errors import MalformedMessage
from ledger.wire.protowire import BYTES, START_GROUP, VARINT, fields

NESTING_MAX = 90
"""Embedded messages that are rewritten; deeper ones the library would refuse again."""

_FROM_STRING: dict[Any, Any] = {}
"""The parser of each message class: finding it on the class costs more than parsing a small message."""


_CLASSES = bytes(0x80 if byte >= 0x80 else byte >= 2 for byte in range(256))
"""What the bytes of a varint that is too large are told by: those that are followed by another, 0 and 1, the rest."""

_OVERFLOW = b"\x80" * 9 + b"\x01"

_has_no_overflow: ContextVar[bool] = ContextVar("has_no_overflow", default=False)


def may_overflow(data: bytes) -> bool:
    """Tell whether there may be a varint of more than 64 bits in some bytes; without one, there is none in any part."""
    classes = data.translate(_CLASSES)
    return _OVERFLOW in classes and (
        classes.startswith(_OVERFLOW) or b"\x00" + _OVERFLOW in classes or b"\x01" + _OVERFLOW in classes
    )


@contextmanager
def parts_of(data: bytes) -> Iterator[None]:
    """Read parts of some bytes; if none can hold a varint of more than 64 bits, `parse` does not look for any."""
    token = _has_no_overflow.set(not may_overflow(data))
    try:
        yield
    finally:
        _has_no_overflow.reset(token)


@contextmanager
def parsed_before() -> Iterator[None]:
    """Read what was parsed before and is known to be in order: `parse` looks for no varint of more than 64 bits."""
    token = _has_no_overflow.set(True)
    try:
        yield
    finally:
        _has_no_overflow.reset(token)


def parse(kind: Any, data: bytes, subject: str, *, looks_for_overflow: bool = True) -> Any:
    """Decode a message of the class `kind`.

    Args:
        kind: Message class.
        data: Its bytes.
        subject: What the bytes are, for the error.
        looks_for_overflow: Whether varints of more than 64 bits are looked for, unless `parts_of` has done so.

    Raises:
        MalformedMessage: Go's decoder would refuse the bytes.
    """
    from_string = _FROM_STRING.get(kind)
    if from_string is None:
        from_string = _FROM_STRING[kind] = kind.FromString
    message = None
    try:
        message = from_string(data)
    except DecodeError:
        pass
    else:
        if not looks_for_overflow or _has_no_overflow.get() or not may_overflow(data):
            return message
    try:
        shortest = plain(kind.DESCRIPTOR, data)
        return from_string(shortest) if message is None else message
    except (DecodeError, MalformedMessage) as error:
        raise MalformedMessage(subject, rule="protobuf", expected=f"a {subject} message", found=data) from error


def plain(descriptor: Any, data: bytes, nesting: int = 0) -> bytes:
    """Rewrite a message in the shortest form, without unknown groups.

    Raises:
        MalformedMessage: Go would refuse the bytes, or they are nested too deep for the library.
    """
    if nesting > NESTING_MAX:
        raise MalformedMessage("protobuf", rule="nesting", expected=f"at most {NESTING_MAX}", found="more")
    out = bytearray()
    for number, wire_type, value in walk(data):
        known = descriptor.fields_by_number.get(number)
        embedded = known is not None and known.type == FieldDescriptor.TYPE_MESSAGE and wire_type == BYTES
        if embedded and isinstance(value, bytes):
            value = plain(known.message_type, value, nesting + 1)
        out += written(number, wire_type, value)
    return bytes(out)


def walk(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield (number, wire type, value) of each field in order: numbers of varints, contents of others, no groups.

    Raises:
        MalformedMessage: Go would refuse the bytes.
    """
    for field in fields(data, 0, len(data), "protobuf"):
        if field.wire_type == VARINT:
            yield field.number, VARINT, field.value
        elif field.wire_type != START_GROUP:
            yield field.number, field.wire_type, data[field.value : field.end]


def written(number: int, wire_type: int, value: int | bytes) -> bytes:
    """Write one field in the shortest form."""
    tag = uvarint(number << 3 | wire_type)
    if isinstance(value, int):
        return tag + uvarint(value)
    if wire_type == BYTES:
        return tag + uvarint(len(value)) + value
    return tag + value


def merged(data: bytes, number: int) -> bytes | None:
    """Join all occurrences of an embedded message, which means the same as merging them; None if there is none.

    Raises:
        MalformedMessage: The message around it does not decode.
    """
    found = [value for each, wire_type, value in walk(data) if each == number and wire_type == BYTES]
    return b"".join(value for value in found if isinstance(value, bytes)) if found else None


__all__ = ["merged", "parse", "parsed_before", "parts_of", "walk", "written"]
