"""What stands in this PEM text?  Blocks as Go's decoder finds them, which is more generous than most (encoding/pem).

Text before and behind a block, CRLF line ends, blanks at the end of lines, header lines and any type of block are
taken. The first block that is well formed counts:

1. find the first line that begins with END, and before it the last line that begins with BEGIN;
2. the lines behind BEGIN that hold a colon are headers and are passed over;
3. END names the same type as BEGIN, and nothing stands behind it on its line;
4. what lies between is base64 with its padding; line ends, blanks and tabs are passed over.

Where one fails, the search goes on behind that END.
"""

import base64
import binascii
import re
from typing import NamedTuple

BEGIN, END, DASHES = b"-----BEGIN ", b"\n-----END ", b"-----"
_BASE64 = re.compile(rb"[A-Za-z0-9+/]*={0,2}")


class Block(NamedTuple):
    """One block of PEM text."""

    kind: bytes
    """What its first line names, `CERTIFICATE` for instance."""

    content: bytes
    """The bytes in it."""


def first_block(text: bytes) -> Block | None:
    """Find the first well-formed block of a text, None if there is none."""
    start = 0
    while (end := text.find(END, start)) >= 0:
        begin = text.rfind(BEGIN, start, end)
        if begin == start or (begin > start and text[begin - 1] == 0x0A):
            block = _block(text, begin + len(BEGIN), end)
            if block is not None:
                return block
        start = end + len(END)
    return None


def _block(text: bytes, start: int, end: int) -> Block | None:
    """Read the block between the word BEGIN and the line of END (steps 2 to 4)."""
    first, body = _line(text, start)
    if not first.endswith(DASHES):
        return None
    kind, has_headers = first[: -len(DASHES)], False
    while body < len(text):
        line, following = _line(text, body)
        if b":" not in line:
            break
        body, has_headers = following, True
    if has_headers and body > end:
        return None
    last, _ = _line(text, end + len(END))
    if last != kind + DASHES:
        return None
    content = _decoded(text[body:end]) if body < end else b""
    return None if content is None else Block(kind, content)


def _line(text: bytes, start: int) -> tuple[bytes, int]:
    """Give the line that begins at `start`, without what ends it, and where the next one begins."""
    at = text.find(b"\n", start)
    if at < 0:
        return text[start:].rstrip(b" \t"), len(text)
    return text[start:at].removesuffix(b"\r").rstrip(b" \t"), at + 1


def _decoded(body: bytes) -> bytes | None:
    """Decode base64 as strictly as Go does: padded, and nothing else in it than line ends, blanks and tabs."""
    packed = body.translate(None, b"\r\n \t")
    if len(packed) % 4 or not _BASE64.fullmatch(packed):
        return None
    try:
        return base64.b64decode(packed)
    except binascii.Error:
        return None


def to_pem(der: bytes) -> bytes:
    """Write a certificate as PEM the way Fabric's nodes do: 64 columns, a newline at the end."""
    text = base64.b64encode(der)
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return b"-----BEGIN CERTIFICATE-----\n" + b"\n".join(lines) + b"\n-----END CERTIFICATE-----\n"


__all__ = ["Block", "first_block", "to_pem"]
