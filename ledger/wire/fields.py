"""Which fields does a protobuf message hold?  Our own reader of the wire format, with Go's limits.

For what the library's parser refuses though Go takes it, and for messages whose nesting it does not follow. Iterative:
groups may be nested as deep as Go allows (google.golang.org/protobuf/encoding/protowire: 10,000), varints may be
written with up to ten bytes.
"""

from collections.abc import Iterator

from ledger.core.encoding import uvarint
from ledger.core.errors import MalformedMessage

DEPTH_MAX = 10_000
"""Nested messages and groups that Go's decoder follows."""

VARINT, FIXED64, LENGTH, GROUP, GROUP_END, FIXED32 = range(6)

NUMBER_MAX = 2**29 - 1
"""Largest field number."""


def read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Read a varint of at most 64 bits; return it and the offset behind it.

    Raises:
        MalformedMessage: It does not end, or has more bits.
    """
    value = shift = 0
    for position in range(offset, min(offset + 10, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 2**64:
                break
            return value, position + 1
        shift += 7
    raise MalformedMessage(
        "protobuf", rule="varint", expected="at most 64 bits that end", found=data[offset : offset + 10]
    )


def read_tag(data: bytes, offset: int) -> tuple[int, int, int]:
    """Read a field's tag; return its number, wire type and the offset behind it.

    Raises:
        MalformedMessage: The number is out of range.
    """
    tag, offset = read_varint(data, offset)
    number = tag >> 3
    if not 1 <= number <= NUMBER_MAX:
        raise MalformedMessage("protobuf", rule="field number", expected=f"1 to {NUMBER_MAX}", found=number)
    return number, tag & 7, offset


def skip_group(data: bytes, offset: int, number: int) -> int:
    """Read over a group that began with field `number`; return the offset behind its end.

    Raises:
        MalformedMessage: It does not end, ends with another number, or is nested too deep.
    """
    open_numbers = [number]
    while open_numbers:
        number, wire_type, offset = read_tag(data, offset)
        if wire_type == GROUP:
            open_numbers.append(number)
            if len(open_numbers) > DEPTH_MAX:
                raise MalformedMessage("protobuf", rule="nesting", expected=f"at most {DEPTH_MAX}", found="more")
        elif wire_type == GROUP_END:
            if open_numbers.pop() != number:
                raise MalformedMessage("protobuf", rule="group end", found=number)
        else:
            offset = value_end(data, offset, wire_type)
    return offset


def value_end(data: bytes, offset: int, wire_type: int) -> int:
    """Find the end of a value that is no group.

    Raises:
        MalformedMessage: It runs over the end, or its wire type is unknown.
    """
    match wire_type:
        case 0:
            return read_varint(data, offset)[1]
        case 1:
            end = offset + 8
        case 2:
            length, offset = read_varint(data, offset)
            end = offset + length
        case 5:
            end = offset + 4
        case _:
            raise MalformedMessage("protobuf", rule="wire type", found=wire_type)
    if end > len(data):
        raise MalformedMessage("protobuf", rule="length", expected=f"{end - offset} bytes", found=len(data) - offset)
    return end


def walk(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield (number, wire type, value) of each field in order; groups are read over and left out.

    Values are numbers for varints, the counted bytes for lengths, the plain bytes for fixed ones.

    Raises:
        MalformedMessage: Go would refuse the bytes.
    """
    offset = 0
    while offset < len(data):
        number, wire_type, offset = read_tag(data, offset)
        if wire_type == GROUP:
            offset = skip_group(data, offset, number)
            continue
        end = value_end(data, offset, wire_type)
        if wire_type == VARINT:
            yield number, wire_type, read_varint(data, offset)[0]
        elif wire_type == LENGTH:
            yield number, wire_type, data[read_varint(data, offset)[1] : end]
        else:
            yield number, wire_type, data[offset:end]
        offset = end


def field(number: int, wire_type: int, value: int | bytes) -> bytes:
    """Write one field in the shortest form."""
    tag = uvarint(number << 3 | wire_type)
    if isinstance(value, int):
        return tag + uvarint(value)
    if wire_type == LENGTH:
        return tag + uvarint(len(value)) + value
    return tag + value


def merged(data: bytes, number: int) -> bytes | None:
    """Join all occurrences of an embedded message, which means the same as merging them; None if there is none.

    Raises:
        MalformedMessage: The message around it does not decode.
    """
    found = [value for each, wire_type, value in walk(data) if each == number and wire_type == LENGTH]
    return b"".join(value for value in found if isinstance(value, bytes)) if found else None


__all__ = ["DEPTH_MAX", "LENGTH", "VARINT", "field", "merged", "walk"]
