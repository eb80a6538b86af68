"""How is a protobuf message taken apart without a parser's stack?  The wire format, a field at a time.

For messages that nest deeper than the library's parser goes (it stops at 100 levels, Go at 10,000) and whose verdict
must be Go's. Source: protobuf encoding specification; google.golang.org/protobuf, encoding/protowire.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ledger.core.errors import MalformedMessage

VARINT = 0
FIXED64 = 1
BYTES = 2
START_GROUP = 3
END_GROUP = 4
FIXED32 = 5

DEPTH_MAX = 10_000
"""Nested messages that Go's decoder follows, the outermost counted."""

GROUP_DEPTH_MAX = DEPTH_MAX + 1
"""Unknown groups in each other that Go's decoder passes over."""

FIELD_NUMBER_MAX = 2**29 - 1

FIELD_NUMBER_IN_GROUP_MAX = 2**31 - 1
"""In what it passes over, Go does not ask for a number that a field may have."""


class Field(NamedTuple):
    """One field as it stands on the wire."""

    number: int
    wire_type: int
    value: int
    """The number of a varint; start of the content of a byte string; 0 for what is skipped."""

    end: int
    """End of the content of a byte string."""


def malformed(subject: str, rule: str, found: object = None) -> MalformedMessage:
    """Make the error for bytes that do not decode."""
    return MalformedMessage(subject, rule=rule, found=found)


def read_varint(data: bytes, position: int, end: int, subject: str) -> tuple[int, int]:
    """Read a varint of at most 64 bits; give it and where it ends."""
    value = 0
    for count in range(10):
        if position >= end:
            raise malformed(subject, "truncated varint")
        byte = data[position]
        position += 1
        if count == 9 and byte > 1:
            break
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position
    raise malformed(subject, "varint of more than 64 bits")


def fields(data: bytes, start: int, end: int, subject: str) -> Iterator[Field]:
    """Yield the fields of a message in order; groups are passed over whole.

    Raises:
        MalformedMessage: The bytes are no sequence of fields.
    """
    position = start
    while position < end:
        tag, position = read_varint(data, position, end, subject)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= FIELD_NUMBER_MAX:
            raise malformed(subject, "field number", number)
        if wire_type == START_GROUP:
            position = _skip_group(data, position, end, number, subject)
            yield Field(number, wire_type, 0, position)
            continue
        value, low, position = _content(data, position, end, wire_type, subject)
        yield Field(number, wire_type, value if wire_type == VARINT else low, position)


def _content(data: bytes, position: int, end: int, wire_type: int, subject: str) -> tuple[int, int, int]:
    """Read one field's content: (varint value, start of the content, end)."""
    if wire_type == VARINT:
        value, after = read_varint(data, position, end, subject)
        return value, position, after
    if wire_type == BYTES:
        length, position = read_varint(data, position, end, subject)
    elif wire_type == FIXED32:
        length = 4
    elif wire_type == FIXED64:
        length = 8
    else:
        raise malformed(subject, "wire type", wire_type)
    if length > end - position:
        raise malformed(subject, "truncated field", f"{end - position} of {length} bytes")
    return 0, position, position + length


def _skip_group(data: bytes, position: int, end: int, number: int, subject: str) -> int:
    """Pass over a group and the groups in it."""
    open_groups = [number]
    while open_groups:
        if len(open_groups) > GROUP_DEPTH_MAX:
            raise malformed(subject, "nesting depth", len(open_groups))
        tag, position = read_varint(data, position, end, subject)
        inner, wire_type = tag >> 3, tag & 7
        if not 1 <= inner <= FIELD_NUMBER_IN_GROUP_MAX:
            raise malformed(subject, "field number", inner)
        if wire_type == START_GROUP:
            open_groups.append(inner)
        elif wire_type == END_GROUP:
            if open_groups.pop() != inner:
                raise malformed(subject, "group end", inner)
        else:
            _, _, position = _content(data, position, end, wire_type, subject)
    return position


def int32(value: int) -> int:
    """Take a varint as int32, as Go does: the low 32 bits, signed."""
    value &= 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def text(data: bytes, field: Field, subject: str) -> str:
    """Take a byte string as text.

    Raises:
        MalformedMessage: It is not UTF-8.
    """
    raw = data[field.value : field.end]
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise malformed(subject, "UTF-8", raw) from error
