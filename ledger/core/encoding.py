"""How are numbers and byte strings written where bytes are hashed?

`u8`, `u32`, `u64` are big-endian, `lp(x)` is `u32(len(x)) + x` (design, section 3). `opv` and `uvarint` are Fabric's
(fabric: common/ledger/util, Go's encoding/binary), `der_header` is the DER sequence that Fabric hashes as block header.
"""

from ledger.core.errors import MalformedMessage


def u8(value: int) -> bytes:
    """Encode `value` in one byte."""
    return value.to_bytes(1, "big")


def u32(value: int) -> bytes:
    """Encode `value` in four bytes, big-endian."""
    return value.to_bytes(4, "big")


def u64(value: int) -> bytes:
    """Encode `value` in eight bytes, big-endian."""
    return value.to_bytes(8, "big")


def lp(value: bytes | str) -> bytes:
    """Prefix a byte string (or UTF-8 text) with its length, so that borders can't move."""
    raw = value.encode() if isinstance(value, str) else value
    return len(raw).to_bytes(4, "big") + raw


def uvarint(value: int) -> bytes:
    """Encode an unsigned number as base-128 varint, least significant group first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def opv(value: int) -> bytes:
    """Encode a number in Fabric's order-preserving form: one length byte, then the minimal big-endian bytes."""
    size = (value.bit_length() + 7) // 8
    return bytes((size,)) + value.to_bytes(size, "big")


def der_integer(value: int) -> bytes:
    """Encode a non-negative number as minimal DER INTEGER of at most 127 content bytes."""
    raw = value.to_bytes(value.bit_length() // 8 + 1, "big")
    return b"\x02" + bytes((len(raw),)) + raw


def der_octets(value: bytes) -> bytes:
    """Encode a byte string as DER OCTET STRING."""
    return b"\x04" + der_length(len(value)) + value


def der_length(length: int) -> bytes:
    """Encode a DER length."""
    if length < 0x80:
        return bytes((length,))
    raw = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((0x80 | len(raw),)) + raw


class Reader:
    """Reads what the functions of this module wrote, refusing to run over the end.

    Args:
        data: The bytes to read from the start.
        subject: What the bytes are, for error messages.
    """

    __slots__ = ("data", "offset", "subject")

    def __init__(self, data: bytes | memoryview, subject: str) -> None:
        """Stand at the first byte."""
        self.data = data
        self.subject = subject
        self.offset = 0

    def take(self, length: int) -> bytes:
        """Read exactly `length` bytes.

        Raises:
            MalformedMessage: Fewer bytes are left.
        """
        end = self.offset + length
        if end > len(self.data):
            raise MalformedMessage(
                self.subject,
                rule="length",
                expected=f"{length} bytes at {self.offset}",
                found=f"{len(self.data) - self.offset} bytes",
            )
        raw = bytes(self.data[self.offset : end])
        self.offset = end
        return raw

    def u8(self) -> int:
        """Read one byte as a number."""
        return self.take(1)[0]

    def u32(self) -> int:
        """Read a four-byte number."""
        return int.from_bytes(self.take(4), "big")

    def u64(self) -> int:
        """Read an eight-byte number."""
        return int.from_bytes(self.take(8), "big")

    def lp(self) -> bytes:
        """Read a length-prefixed byte string."""
        return self.take(self.u32())

    def text(self) -> str:
        """Read a length-prefixed UTF-8 string.

        Raises:
            MalformedMessage: The bytes are not UTF-8.
        """
        raw = self.lp()
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise MalformedMessage(self.subject, rule="UTF-8", found=raw) from error

    def uvarint(self) -> int:
        """Read a varint of at most 64 bits.

        Raises:
            MalformedMessage: It does not end, or has more than 64 bits.
        """
        value = 0
        for shift in range(0, 70, 7):
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 2**64:
                    break
                return value
        raise MalformedMessage(self.subject, rule="varint", expected="at most 64 bits")

    def opv(self) -> int:
        """Read a number in Fabric's order-preserving form."""
        size = self.u8()
        if size > 8:
            raise MalformedMessage(self.subject, rule="order-preserving varint", expected="at most 8 bytes", found=size)
        return int.from_bytes(self.take(size), "big")

    def done(self) -> None:
        """Assert that everything was read.

        Raises:
            MalformedMessage: Bytes are left.
        """
        if self.offset != len(self.data):
            raise MalformedMessage(self.subject, rule="trailing bytes", found=len(self.data) - self.offset)
