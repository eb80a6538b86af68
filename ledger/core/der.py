"""What stands at this place of a DER encoding?  A strict reader of elements, as Go's cryptobyte reads them.

Lengths are definite and in their shortest form, tags have one byte, integers are minimal, booleans are 00 or FF.
Source: ITU-T X.690; golang.org/x/crypto/cryptobyte/asn1.go.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.core.errors import MalformedMessage

BOOLEAN, INTEGER, BIT_STRING, OCTET_STRING, OID = 0x01, 0x02, 0x03, 0x04, 0x06
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
SEQUENCE, SET = 0x30, 0x31


def malformed(what: str, found: object = None) -> MalformedMessage:
    """Make the error for bytes that are not DER."""
    return MalformedMessage("DER", rule=what, found=found)


@dataclass(frozen=True, slots=True)
class Element:
    """One element, with the bytes that it stands in."""

    data: bytes
    tag: int
    first: int
    """Where its tag stands."""

    start: int
    """Where its content begins."""

    end: int

    @property
    def raw(self) -> bytes:
        """Tag, length and content."""
        return self.data[self.first : self.end]

    @property
    def content(self) -> bytes:
        """The content alone."""
        return self.data[self.start : self.end]

    def inside(self) -> "Cursor":
        """Read what is in it."""
        return Cursor(self.data, self.start, self.end)

    def integer(self) -> int:
        """Take it as a minimal INTEGER."""
        raw = self.content
        if not raw or (len(raw) > 1 and ((raw[0] == 0 and raw[1] < 0x80) or (raw[0] == 0xFF and raw[1] >= 0x80))):
            raise malformed("integer", raw)
        return int.from_bytes(raw, "big", signed=True)

    def boolean(self) -> bool:
        """Take it as a BOOLEAN."""
        if self.content not in (b"\x00", b"\xff"):
            raise malformed("boolean", self.content)
        return self.content == b"\xff"

    def bits(self) -> bytes:
        """Take it as a BIT STRING; unused bits have to be zero."""
        raw = self.content
        if not raw or raw[0] > 7 or (raw[0] and (len(raw) == 1 or raw[-1] & ((1 << raw[0]) - 1))):
            raise malformed("bit string", raw)
        return raw[1:]

    def oid(self) -> str:
        """Take it as an OBJECT IDENTIFIER in dotted form."""
        raw = self.content
        if not raw or raw[-1] & 0x80:
            raise malformed("object identifier", raw)
        arcs: list[int] = []
        value, begins = 0, True
        for byte in raw:
            if begins and byte == 0x80:
                raise malformed("object identifier", raw)
            value, begins = value << 7 | byte & 0x7F, False
            if byte < 0x80:
                arcs.append(value)
                value, begins = 0, True
        root = min(arcs[0] // 40, 2)
        return ".".join(str(arc) for arc in (root, arcs[0] - 40 * root, *arcs[1:]))


class Cursor:
    """Reads elements one after the other, up to an end."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        """Stand before the first element."""
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end

    def __iter__(self) -> Iterator[Element]:
        """Yield the elements that are left."""
        while self.position < self.end:
            yield self.read()

    def peek(self) -> int | None:
        """Give the tag of the next element; None at the end."""
        return self.data[self.position] if self.position < self.end else None

    def read(self, tag: int | None = None) -> Element:
        """Read the next element.

        Args:
            tag: What it must be; None takes anything.

        Raises:
            MalformedMessage: It is not there, is another one, or runs over the end.
        """
        data, first = self.data, self.position
        if first + 2 > self.end:
            raise malformed("element", "the end")
        found = data[first]
        if tag is not None and found != tag:
            raise MalformedMessage("DER", rule="tag", expected=f"{tag:02x}", found=f"{found:02x}")
        if found & 0x1F == 0x1F:
            raise malformed("tag of several bytes", f"{found:02x}")
        length, start = data[first + 1], first + 2
        if length >= 0x80:
            count = length & 0x7F
            raw = data[start : start + count]
            length = int.from_bytes(raw, "big")
            if not 1 <= count <= 4 or len(raw) < count or raw[0] == 0 or length < 0x80:
                raise malformed("length", data[first : start + count])
            start += count
        if start + length > self.end:
            raise malformed("length", f"{length} of {self.end - start} bytes")
        self.position = start + length
        return Element(data, found, first, start, self.position)

    def optional(self, tag: int) -> Element | None:
        """Read the next element if it has a tag; else read nothing."""
        return self.read(tag) if self.peek() == tag else None


__all__ = [
    "BIT_STRING",
    "BOOLEAN",
    "GENERALIZED_TIME",
    "INTEGER",
    "OCTET_STRING",
    "OID",
    "SEQUENCE",
    "SET",
    "UTC_TIME",
    "Cursor",
    "Element",
    "malformed",
]
