"""What peers say to each other, as messages of `ledger.v1`: hostile bytes end here, with the rule that they break."""

from typing import Any

import pytest

from ledger.core.checkpoint import SIGNATURES_MAX, Ask, CheckpointMessage, Hello, Notice, PeerSignature
from ledger.core.errors import MalformedMessage
from ledger.core.names import BlockNumber, ChannelId
from ledger.wire.checkpoint import NOTICE_BYTES_MAX, decode_notice, encode_notice
from ledger.wire.ledger_v1 import checkpointing_pb2
from tests.kit.checkpointing import organisations, proof, statement_at

pb: Any = checkpointing_pb2
FIRST, SECOND = (each.peer for each in organisations(2))
LIBRARIES = (("cryptography", "49.0"), ("plyvel", "1.5.1"))
MESSAGE = CheckpointMessage(statement_at(10), PeerSignature(b"identity", b"signature"), 10, LIBRARIES)


@pytest.mark.parametrize(
    "notice",
    [
        Hello(ChannelId("channel"), "peer0", 100, LIBRARIES, BlockNumber(300), BlockNumber(400)),
        Hello(ChannelId("channel"), "peer0", 100),
        Hello(ChannelId("channel"), "peer0", 100, (), BlockNumber(0), BlockNumber(0)),
        Hello(ChannelId("channel"), "peer0", 100, format=7),
        MESSAGE,
        proof(statement_at(10), SECOND, FIRST),
        Ask(BlockNumber(2**64 - 1)),
    ],
)
def test_notice_arrives_as_it_was_sent(notice: Notice) -> None:
    assert decode_notice(encode_notice(notice)) == notice


def message(**changes: Any) -> Any:
    """An honest CHECKPOINT message with something changed, by path."""
    notice = pb.Notice.FromString(encode_notice(MESSAGE))
    for path, value in changes.items():
        place = notice.message
        *groups, name = path.split("__")
        for group in groups:
            place = getattr(place, group)
        setattr(place, name, value)
    return notice.SerializeToString()


def crowd() -> bytes:
    notice = pb.Notice.FromString(encode_notice(proof(statement_at(10), FIRST)))
    for _ in range(SIGNATURES_MAX):
        notice.proof.signatures.add()
    return bytes(notice.SerializeToString())


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"\xff", "protobuf"),
        (b"", "content"),
        (message(format=2), "format version"),
        (message(format=0), "format version"),
        (message(statement__vblock_hash=bytes(31)), "length"),
        (message(statement__vledger_root=b""), "length"),
        (message(statement__state_hash=bytes(33)), "length"),
        (message(statement__channel="c" * 250), "length"),
        (message(signed__identity=bytes(16 * 1024 + 1)), "length"),
        (message(signed__signature=bytes(1025)), "length"),
        (encode_notice(Hello(ChannelId("c" * 250), "peer0", 100)), "length"),
        (encode_notice(Hello(ChannelId("channel"), "p" * 256, 100)), "length"),
        (encode_notice(Hello(ChannelId("c"), "p", 1, tuple((str(n), "1") for n in range(33)))), "length"),
        (encode_notice(Hello(ChannelId("c"), "p", 1, (("name", "v" * 252),))), "length"),
        (crowd(), "length"),
        (bytes(NOTICE_BYTES_MAX + 1), "length"),
    ],
)
def test_malformed_notice_is_refused(data: bytes, rule: str) -> None:
    with pytest.raises(MalformedMessage) as refused:
        decode_notice(data)
    assert refused.value.rule == rule
