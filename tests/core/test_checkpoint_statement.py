"""What exactly a checkpoint says and what a peer signs: bytes that every peer must come to alike."""

from dataclasses import replace
from hashlib import sha256

import pytest

from ledger.core.checkpoint import (
    FORMAT,
    SIGNATURES_MAX,
    CheckpointMessage,
    CheckpointProof,
    CheckpointRoots,
    PeerSignature,
    Statement,
    decode_proof,
    encode_message,
    encode_proof,
    read_message,
    read_proof,
    signed_bytes,
)
from ledger.core.encoding import Reader, lp, u8, u32, u64
from ledger.core.errors import MalformedMessage
from ledger.core.names import BlockNumber, ChannelId, Digest

A, B, C = (Digest(bytes([value]) * 32) for value in (0xA, 0xB, 0xC))
STATEMENT = Statement(ChannelId("mychannel"), BlockNumber(300), A, B, C)
PROOF = CheckpointProof(STATEMENT, (PeerSignature(b"second", b"2"), PeerSignature(b"first", b"1")))


def test_statement_has_the_bytes_that_the_design_gives() -> None:
    tag = b"peerledger/checkpoint/v1"
    expected = len(tag).to_bytes(4, "big") + tag
    expected += (9).to_bytes(4, "big") + b"mychannel" + (300).to_bytes(8, "big") + A + B + C
    assert STATEMENT.encoded == expected
    assert Statement.decode(expected) == STATEMENT


def test_statement_begins_with_a_zero_byte_as_no_message_of_fabrics_does() -> None:
    assert STATEMENT.encoded[0] == 0


def test_state_hash_covers_the_root_and_the_configuration_that_it_is_judged_by() -> None:
    roots = CheckpointRoots(BlockNumber(300), A, B, C, BlockNumber(7), Digest(bytes(32)))
    tag = b"peerledger/state/v1"
    assert roots.state_hash == sha256(lp(tag) + C + u64(7) + bytes(32)).digest()
    others = (
        replace(roots, state_root=A),
        replace(roots, config_block=BlockNumber(8)),
        replace(roots, config_digest=A),
    )
    assert len({roots.state_hash, *(other.state_hash for other in others)}) == 4
    assert roots.statement(ChannelId("mychannel")) == replace(STATEMENT, state_hash=roots.state_hash)


def test_signature_covers_the_identity_as_it_is_spelt() -> None:
    assert signed_bytes(STATEMENT, b"identity") == STATEMENT.encoded + b"identity"


@pytest.mark.parametrize(
    "other",
    [
        replace(STATEMENT, channel=ChannelId("mychanne")),
        replace(STATEMENT, number=BlockNumber(301)),
        replace(STATEMENT, vblock_hash=C),
        replace(STATEMENT, vledger_root=C),
        replace(STATEMENT, state_hash=A),
    ],
)
def test_each_part_of_a_statement_is_in_what_is_signed(other: Statement) -> None:
    assert signed_bytes(other, b"identity") != signed_bytes(STATEMENT, b"identity")


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (STATEMENT.encoded.replace(b"/v1", b"/v2"), "format tag"),
        (STATEMENT.encoded + b"\0", "trailing bytes"),
        (STATEMENT.encoded[:-1], "length"),
        (b"", "length"),
    ],
)
def test_bytes_that_are_no_statement_are_refused(data: bytes, rule: str) -> None:
    with pytest.raises(MalformedMessage) as refused:
        Statement.decode(data)
    assert refused.value.rule == rule


def test_message_is_read_back_as_it_was_recorded() -> None:
    libraries = (("cryptography", "49.0"), ("protobuf", "5.29"))
    message = CheckpointMessage(STATEMENT, PeerSignature(b"identity", b"signature"), 100, libraries)
    reader = Reader(encode_message(message) + b"rest", "record")
    assert read_message(reader) == message
    assert reader.take(4) == b"rest"


def test_proof_is_an_ordered_list_and_keeps_its_order() -> None:
    turned = replace(PROOF, signatures=PROOF.signatures[::-1])
    assert encode_proof(PROOF) != encode_proof(turned)
    assert decode_proof(encode_proof(PROOF)) == PROOF
    assert [one.identity for one in decode_proof(encode_proof(turned)).signatures] == [b"first", b"second"]


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (u8(FORMAT + 1) + encode_proof(PROOF)[1:], "format version"),
        (u8(FORMAT) + lp(STATEMENT.encoded) + u32(SIGNATURES_MAX + 1), "count"),
        (encode_proof(PROOF) + b"\0", "trailing bytes"),
        (encode_proof(PROOF)[:-1], "length"),
    ],
)
def test_bytes_that_are_no_proof_are_refused(data: bytes, rule: str) -> None:
    with pytest.raises(MalformedMessage) as refused:
        decode_proof(data)
    assert refused.value.rule == rule


def test_a_proof_inside_a_receipt_leaves_the_rest_to_others() -> None:
    reader = Reader(encode_proof(PROOF) + b"more", "receipt")
    assert read_proof(reader) == PROOF
    assert reader.take(4) == b"more"
