"""How do peer and worker talk?  Frames over a socket pair: a kind and a list of byte strings, one request at a time.

    frame = u32(length of what follows) | u8(kind) | (u32(length) | bytes) ...

Numbers travel as eight bytes, text as UTF-8. The worker asks, the peer answers; only LOAD and EXECUTE come from the
peer unasked. So a frame is always the last one before the other side's turn.
"""

import socket
import struct
from enum import IntEnum

from ledger.chaincode.values import Timestamp, TransactionContext
from ledger.core.names import TxId

FRAME_BYTES_MAX = 100 << 20
"""A frame that is longer ends the conversation: Fabric's limit for messages of chaincode."""

_LENGTH = struct.Struct(">I")
_HEAD = struct.Struct(">IB")
_RECEIVE_BYTES = 1 << 16


class Kind(IntEnum):
    """What a frame says; the parts are given in brackets."""

    LOAD = 1
    """Peer: load contracts (memory limit, count of search folders, folders..., name, module:Class, ...)."""
    READY = 2
    """Worker: all contracts are loaded ()."""
    EXECUTE = 3
    """Peer: run a contract (name, transaction's parts, see `decode_transaction`)."""
    DONE = 4
    """Worker: the outermost contract answered (status, message, payload, event?, name, payload, writes...)."""
    FAILED = 5
    """Either: what was asked for failed (text)."""

    GET = 10
    """Worker: read a key (key)."""
    VALUE = 11
    """Peer: its value (value), () if the key is absent."""
    RANGE = 12
    """Worker: open a range query (start, end)."""
    PAGE = 13
    """Worker: query a page (start, end, size, bookmark)."""
    HISTORY = 14
    """Worker: open a history query (key)."""
    NEXT = 15
    """Worker: go on with a query (query number)."""
    RESULTS = 16
    """Peer: results (query number, more?, key, value, ...)."""
    PAGE_RESULTS = 17
    """Peer: a page (bookmark, key, value, ...)."""
    MODIFICATIONS = 18
    """Peer: past changes (query number, more?, transaction id, value, seconds, nanos, deleted?, ...)."""
    GET_PARAMETER = 19
    """Worker: read a key's own endorsement policy (key); answered by VALUE."""

    ENTER = 30
    """Worker: begin to run another contract (name, channel, writes of the caller so far...)."""
    ENTERED = 31
    """Peer: run it; what is asked from now on concerns its namespace ()."""
    LEAVE = 32
    """Worker: the contract that was entered answered (writes...)."""
    LEFT = 33
    """Peer: the caller's namespace again ()."""


class Write(IntEnum):
    """What one buffered write does; it travels as three parts (operation, key, value)."""

    PUT = 1
    DELETE = 2
    PARAMETER = 3


Frame = tuple[Kind, list[bytes]]


class StreamEnded(Exception):
    """The other side closed the connection or sent something that is no frame."""


class FrameStream:
    """One end of the connection.

    Args:
        connection: A connected stream socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        """Take over the socket."""
        self._connection = connection
        self._left = b""

    def send(self, kind: Kind, *parts: bytes) -> None:
        """Send one frame.

        Raises:
            StreamEnded: The other side is gone, or the frame is too long.
            TimeoutError: The time given to the socket is over.
        """
        body = b"".join([piece for part in parts for piece in (_LENGTH.pack(len(part)), part)])
        if len(body) >= FRAME_BYTES_MAX:
            raise StreamEnded(f"a message of {len(body)} bytes is longer than {FRAME_BYTES_MAX}")
        try:
            self._connection.sendall(_HEAD.pack(len(body) + 1, kind) + body)
        except TimeoutError:
            raise
        except OSError as error:
            raise StreamEnded("the other side is gone") from error

    def receive(self, timeout_s: float | None = None) -> Frame:
        """Wait for one frame.

        Args:
            timeout_s: Seconds to wait at most for the next bytes; None waits for ever.

        Raises:
            StreamEnded: The other side is gone or talks nonsense.
            TimeoutError: Nothing came in time.
        """
        self._connection.settimeout(timeout_s)
        data = self._left or self._some()
        while len(data) < _HEAD.size:
            data += self._some()
        length, kind = _HEAD.unpack_from(data)
        if not 1 <= length <= FRAME_BYTES_MAX:
            raise StreamEnded(f"a frame of {length} bytes")
        end = _LENGTH.size + length
        if len(data) < end:
            data = self._rest(data, end)
        self._left = data[end:]
        try:
            return Kind(kind), _parts(data, _HEAD.size, end)
        except ValueError as error:
            raise StreamEnded(str(error)) from error

    def close(self) -> None:
        """Close the socket."""
        self._connection.close()

    def _some(self) -> bytes:
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise StreamEnded("the other side is gone") from error
        if not data:
            raise StreamEnded("the other side is gone")
        return data

    def _rest(self, data: bytes, end: int) -> bytes:
        pieces = [data]
        count = len(data)
        while count < end:
            piece = self._some()
            pieces.append(piece)
            count += len(piece)
        return b"".join(pieces)


def number(value: int) -> bytes:
    """Encode a number as one part."""
    return value.to_bytes(8, "big", signed=True)


def number_in(part: bytes) -> int:
    """Decode a number."""
    return int.from_bytes(part, "big", signed=True)


def encode_transaction(transaction: TransactionContext) -> list[bytes]:
    """Encode what a contract may know of its transaction as parts of a frame."""
    transient = [part for name, value in transaction.transient.items() for part in (name.encode(), value)]
    return [
        transaction.tx_id.encode(),
        transaction.channel_id.encode(),
        transaction.creator,
        number(transaction.timestamp.seconds),
        number(transaction.timestamp.nanos),
        number(transaction.is_init),
        number(len(transient) // 2),
        *transient,
        *transaction.args,
    ]


def decode_transaction(parts: list[bytes]) -> TransactionContext:
    """Decode what `encode_transaction` wrote."""
    tx_id, channel_id, creator, seconds, nanos, is_init, transient_count, *rest = parts
    split = 2 * number_in(transient_count)
    return TransactionContext(
        TxId(tx_id.decode()),
        channel_id.decode(),
        creator,
        Timestamp(number_in(seconds), number_in(nanos)),
        args=tuple(rest[split:]),
        is_init=bool(number_in(is_init)),
        transient={name.decode(): value for name, value in zip(rest[:split:2], rest[1:split:2], strict=True)},
    )


def _parts(data: bytes, start: int, end: int) -> list[bytes]:
    parts = []
    while start < end:
        if start + _LENGTH.size > end:
            raise ValueError("a part without length")
        (length,) = _LENGTH.unpack_from(data, start)
        start += _LENGTH.size
        if start + length > end:
            raise ValueError("a part that is longer than its frame")
        parts.append(data[start : start + length])
        start += length
    return parts
