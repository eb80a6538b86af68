"""Blocks as bytes: what moves over the border of two envelopes is found, and by which rule."""

from dataclasses import replace

import pytest
from fabric_protos.common import common_pb2
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.block import Block, Header
from ledger.core.encoding import uvarint
from ledger.core.errors import InvalidBlock
from ledger.core.hashing import data_hash
from ledger.core.names import BlockNumber
from ledger.wire.block import check_well_formed, decode_block, encode_block, is_config_block, split_envelope
from tests.kit.paths import VECTORS


def envelope(payload: bytes, signature: bytes = b"signature") -> bytes:
    return bytes(common_pb2.Envelope(payload=payload, signature=signature).SerializeToString())


def field(number: int, content: bytes) -> bytes:
    return uvarint(number << 3 | 2) + uvarint(len(content)) + content


def block_of(*envelopes: bytes) -> Block:
    return Block(Header(BlockNumber(1), bytes(32), data_hash(envelopes)), envelopes, (b"",) * 5)


def rule_against(block: Block) -> str | None:
    try:
        check_well_formed(block)
    except InvalidBlock as refusal:
        return refusal.rule
    return None


RECORDED = decode_block((VECTORS / "rich" / "blocks" / "000001.block").read_bytes())
"""A block of a real orderer with two transactions."""


def moved(block: Block, at: int, count: int) -> Block:
    """Move bytes from envelope `at` to the next one, or back where `count` is negative; the data hash stays."""
    first, second = block.envelopes[at : at + 2]
    both, border = first + second, len(first) - count
    envelopes = (*block.envelopes[:at], both[:border], both[border:], *block.envelopes[at + 2 :])
    assert data_hash(envelopes) == block.header.data_hash
    return replace(block, envelopes=envelopes)


def test_any_bytes_moved_over_the_border_of_two_recorded_transactions_are_found() -> None:
    """Goal: the data hash alone does not say where envelopes end.  Method: move 1 to all bytes, both ways."""
    assert rule_against(RECORDED) is None
    first, second = (len(each) for each in RECORDED.envelopes)
    rules = set()
    for count in (*range(1, 40), 100, first - 1, first, *range(-39, 0), -100, 1 - second, -second):
        rule = rule_against(moved(RECORDED, 0, count))
        assert rule is not None, count
        rules.add(rule)
    assert rules == {"envelope message", "envelope payload", "envelope re-encoding"}


def test_a_border_moved_to_where_a_field_ends_still_misses_a_payload_or_a_signature() -> None:
    """The cleverest places: whole fields change sides, so that both sides decode."""
    block = block_of(envelope(b"first"), envelope(b"second"))
    signature = len(field(2, b"signature"))
    assert rule_against(moved(block, 0, signature)) == "envelope signature"
    payload = len(field(1, b"second"))
    assert rule_against(moved(block, 0, -payload)) == "envelope re-encoding"  # Of the first, which has two payloads.


def test_two_envelopes_passed_off_as_one_or_one_as_two_are_found() -> None:
    one, two = envelope(b"first"), envelope(b"second")
    joined = block_of(one + two)
    assert joined.header.data_hash == block_of(one, two).header.data_hash
    assert rule_against(joined) == "envelope re-encoding"
    cut = block_of(one[: len(field(1, b"first"))], one[len(field(1, b"first")) :])
    assert rule_against(cut) == "envelope signature"
    assert rule_against(block_of(one, b"", two)) == "envelope payload"


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (field(1, b"p") + field(2, b"s"), None),
        (field(1, b"p") + field(2, b"s") + field(9, b"unknown"), None),
        (field(1, b"p") + field(2, b"s") + b"\x48\x80\x00", None),
        (field(1, b"p") + field(2, b"s") + b"\x4b\x4c", None),
        (field(9, b"unknown") + field(1, b"p") + field(2, b"s"), "envelope re-encoding"),
        (field(1, b"p") + field(9, b"unknown") + field(2, b"s"), "envelope re-encoding"),
        (field(2, b"s") + field(1, b"p"), "envelope re-encoding"),
        (field(1, b"p") + field(1, b"p") + field(2, b"s"), "envelope re-encoding"),
        (field(1, b"p") + field(2, b"s") + field(2, b"s"), "envelope re-encoding"),
        (b"\x0a\x81\x00p" + field(2, b"s"), "envelope re-encoding"),
        (b"\x8a\x00\x01p" + field(2, b"s"), "envelope re-encoding"),
        (field(1, b"") + field(2, b"s"), "envelope payload"),
        (field(2, b"s"), "envelope payload"),
        (field(1, b"p") + field(2, b""), "envelope signature"),
        (field(1, b"p"), "envelope signature"),
        (b"", "envelope payload"),
        (field(1, b"p") + field(2, b"s")[:-1], "envelope message"),
        (field(1, b"p") + field(2, b"s") + b"\x48" + b"\x80" * 9 + b"\x02", "envelope message"),
        (b"\xff", "envelope message"),
    ],
)
def test_an_envelope_stands_in_a_block_in_one_form_only(data: bytes, rule: str | None) -> None:
    assert rule_against(block_of(data, envelope(b"another"))) == rule
    assert rule_against(block_of(envelope(b"another"), data)) == rule


@given(payload=st.binary(max_size=300), signature=st.binary(max_size=300), behind=st.binary(max_size=3))
def test_the_plainest_form_is_cut_as_the_library_reads_it(payload: bytes, signature: bytes, behind: bytes) -> None:
    data = envelope(payload, signature)
    assert split_envelope(data) == ((payload, signature) if payload and signature else None)
    if behind:
        assert split_envelope(data + behind) is None


@given(st.binary(max_size=60))
def test_the_plainest_form_is_never_seen_where_the_library_reads_something_else(data: bytes) -> None:
    for bytes_ in (data, b"\x0a" + data, field(1, data[:20]) + data[20:]):
        found = split_envelope(bytes_)
        if found is not None:
            message = common_pb2.Envelope.FromString(bytes_)
            assert (message.payload, message.signature) == found
            assert message.SerializeToString() == bytes_


def config(kind: int = 1) -> bytes:
    header = common_pb2.Header(channel_header=common_pb2.ChannelHeader(type=kind).SerializeToString())
    return bytes(common_pb2.Envelope(payload=common_pb2.Payload(header=header).SerializeToString()).SerializeToString())


def test_a_lone_configuration_needs_no_signature_and_no_form() -> None:
    """There is no border in such a block, and an orderer's genesis block has no signature."""
    assert rule_against(block_of(config())) is None
    odd = field(9, b"unknown") + config()
    assert is_config_block(block_of(odd))
    assert rule_against(block_of(odd)) is None
    assert rule_against(block_of(config(), config())) == "envelope signature"
    assert rule_against(block_of(config(3))) == "envelope signature"


def test_a_block_without_envelopes_or_with_another_data_hash_is_refused() -> None:
    assert rule_against(block_of()) == "empty block"
    block = block_of(envelope(b"p"))
    assert rule_against(replace(block, header=replace(block.header, data_hash=bytes(32)))) == "data hash"


def test_a_block_decodes_to_what_it_was_encoded_from() -> None:
    block = replace(block_of(envelope(b"p"), b""), metadata=(b"a", b"", b"\x00"))
    assert decode_block(encode_block(block)) == block
    for data, rule in ((b"", "block header"), (b"\xff", "block message"), (field(2, b""), "block header")):
        with pytest.raises(InvalidBlock) as refusal:
            decode_block(data)
        assert refusal.value.rule == rule
