"""Which bytes decode: those that Go's decoder takes, where the library here is stricter and where it is laxer."""

from dataclasses import replace

import pytest
from fabric_protos.common import common_pb2
from fabric_protos.peer import transaction_pb2
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.encoding import uvarint
from ledger.core.errors import MalformedMessage
from ledger.core.names import Verdict
from ledger.wire.codec import CODEC
from ledger.wire.messages import may_overflow, parse, parts_of
from ledger.wire.protowire import read_varint
from ledger.wire.transaction import decode_transaction
from tests.kit.channel import Channel

CHANNEL_HEADER = common_pb2.ChannelHeader
HIGH = b"\x80" * 9


def decoded(data: bytes) -> tuple[int, int, str] | None:
    """Type, epoch and channel of a ChannelHeader; None if it does not decode."""
    try:
        message = parse(CHANNEL_HEADER, data, "ChannelHeader")
    except MalformedMessage as refusal:
        assert refusal.rule == "protobuf"
        return None
    return message.type, message.epoch, message.channel_id


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x08\x83\x80\x80\x00", (3, 0, "")),  # A number with bytes more than needed.
        (b"\x30" + HIGH + b"\x01", (0, 2**63, "")),
        (b"\x30" + HIGH + b"\x00", (0, 0, "")),
        (b"\x08" + b"\xff" * 9 + b"\x01", (-1, 0, "")),
        (b"\x88\x80\x80\x80\x80\x00\x03", (3, 0, "")),  # A tag of six bytes.
        (b"\x22\x83\x80\x80\x80\x80\x00abc", (0, 0, "abc")),  # A length of six bytes.
        (b"\x08\x01\x08\x02", (2, 0, "")),
        (b"\x22\x01a\x22\x01b", (0, 0, "b")),
        (b"\x0a\x01a\x08\x02", (2, 0, "")),  # A known number as another type is an unknown field.
        (b"\xa2\x1f\x02ab\x08\x02", (2, 0, "")),
        (b"\x1b\x08" + HIGH + b"\x01\x1c\x08\x02", (2, 0, "")),
    ],
)
def test_odd_spellings_that_go_reads_are_read(data: bytes, expected: tuple[int, int, str]) -> None:
    assert decoded(data) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"\x30" + HIGH + b"\x02",
        b"\x30" + HIGH + b"\x7f",
        b"\x78" + HIGH + b"\x7f",  # In a field that nobody knows.
        b"\xf8\x07" + HIGH + b"\x03",
        b"\x1b\x08" + HIGH + b"\x02\x1c",
        b"\x22\x83" + b"\x80" * 8 + b"\x02abc",  # As a length.
        b"\x88" + b"\x80" * 8 + b"\x02\x01",  # As a tag.
        b"\x1a\x0b\x08" + HIGH + b"\x02",  # In the time stamp, a message in the message.
        b"\x30" + HIGH + b"\x80\x01",
        b"\x30" + HIGH,
        b"\x22\x05abc",
        b"\x22\x01\xff",
        b"\x00\x01",
        b"\x1c",
        b"\x1b\x24",
        b"\x0e",
        b"\x0f",
    ],
)
def test_what_go_does_not_read_is_refused(data: bytes) -> None:
    assert decoded(data) is None
    assert decoded(b"\x08\x01" + data) is None


def test_a_field_number_above_the_largest_is_refused_except_inside_an_unknown_group() -> None:
    largest, larger = uvarint((2**29 - 1) << 3), uvarint(2**29 << 3)
    assert decoded(largest + b"\x01") == (0, 0, "")
    assert decoded(larger + b"\x01") is None
    assert decoded(b"\x1b" + larger + b"\x01\x1c") == (0, 0, "")


@pytest.mark.parametrize(("groups", "is_read"), [(100, True), (10_001, True), (10_002, False)])
def test_unknown_groups_are_passed_over_as_deep_as_go_goes(groups: int, is_read: bool) -> None:
    assert (decoded(b"\x1b" * groups + b"\x1c" * groups) is not None) is is_read


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_a_varint_is_read_with_any_number_of_bytes_up_to_ten(value: int, behind: bytes) -> None:
    plain = uvarint(value)
    for size in range(len(plain), 11):
        spelt = (
            plain
            if size == len(plain)
            else plain[:-1] + bytes((plain[-1] | 0x80,)) + b"\x80" * (size - len(plain) - 1) + b"\x00"
        )
        assert read_varint(spelt + behind, 0, len(spelt), "varint") == (value, len(spelt))


@given(
    before=st.binary(max_size=20),
    behind=st.binary(max_size=20),
    last=st.integers(2, 127),
    run=st.binary(min_size=9, max_size=9),
)
def test_no_varint_that_overflows_is_overlooked(before: bytes, behind: bytes, last: int, run: bytes) -> None:
    """Goal: the quick look has no false negatives.  Method: put such a varint behind any bytes that end in a tag."""
    varint = bytes(byte | 0x80 for byte in run) + bytes((last,))
    assert may_overflow(before + b"\x30" + varint + behind)
    assert may_overflow(varint + behind)


def test_plain_text_is_never_looked_at_twice() -> None:
    assert not may_overflow(b"-----BEGIN CERTIFICATE-----" * 100)
    assert not may_overflow(b"\x30" + HIGH + b"\x01")
    assert not may_overflow(b"\x30" + HIGH + b"\x80\x02")


def test_parts_of_harmless_bytes_are_not_looked_at_and_afterwards_all_are_again() -> None:
    overflowing = b"\x30" + HIGH + b"\x02"
    with parts_of(b"harmless"):
        assert parse(CHANNEL_HEADER, overflowing, "ChannelHeader").epoch == 0
    assert decoded(overflowing) is None
    with parts_of(b"x" + overflowing):
        assert decoded(overflowing) is None


OVERFLOW = b"\x78" + HIGH + b"\x7f"
"""An unknown field with a varint of more than 64 bits, which the library reads without complaint."""


@pytest.fixture(scope="module")
def channel() -> Channel:
    return Channel().define()


def test_such_a_varint_anywhere_in_a_transaction_is_the_fault_that_it_is_to_go(channel: Channel) -> None:
    """Goal: what the client alone can add is judged as Fabric judges it.  Method: add it to each part in turn."""
    draft = channel.draft()
    payload = common_pb2.Payload.FromString(decode_transaction(draft.envelope()).payload)
    body = transaction_pb2.Transaction.FromString(payload.data)
    action = body.actions[0]
    longer = transaction_pb2.Transaction(
        actions=[transaction_pb2.TransactionAction(header=action.header, payload=action.payload + OVERFLOW)]
    )
    faults = [
        channel.fault(draft.but(data=payload.data + OVERFLOW)),
        channel.fault(draft.but(payload=payload.SerializeToString() + OVERFLOW)),
        channel.fault(replace(draft, data=longer.SerializeToString())),
    ]
    assert [None if each is None else (Verdict(each.verdict), each.rule) for each in faults] == [
        (Verdict.INVALID_ENDORSER_TRANSACTION, "Transaction message"),
        (Verdict.BAD_PAYLOAD, "payload message"),
        (Verdict.INVALID_ENDORSER_TRANSACTION, "ChaincodeActionPayload message"),
    ]


def test_an_identity_with_such_a_varint_is_nobody() -> None:
    with pytest.raises(MalformedMessage):
        CODEC.serialized_identity(b"\x0a\x01A" + OVERFLOW)
    assert CODEC.serialized_identity(b"\x0a\x01A\x78" + HIGH + b"\x01") == ("A", b"")
