"""What a proposal comes to as bytes and values, and which of its headers an endorser takes."""

import datetime
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from fabric_protos.common import common_pb2
from fabric_protos.peer import proposal_pb2, proposal_response_pb2, transaction_pb2
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.errors import InvalidProposal, MalformedMessage
from ledger.core.hashing import transaction_id
from ledger.core.proposal import Proposal, ProposalAnswer, check_header, check_time
from ledger.core.transaction import Endorsement
from ledger.wire.proposal import (
    assemble,
    decode_answer,
    encode_answer,
    encode_result,
    encode_signed_proposal,
    make_proposal,
    read_proposal,
    result_of,
    split_signed_proposal,
)
from ledger.wire.transaction import decode_transaction
from tests.kit.orderer_node import NOW
from tests.kit.proposals import ORG1, ProposalDraft

CREATOR = ORG1.client.serialized
NANOSECONDS = 1_780_315_200_123_456_789


def proposed(**parts: Any) -> tuple[Proposal, bytes]:
    tx_id, signed = make_proposal(
        "testchannel", "assets", [b"create", b"car"], creator=CREATOR, nonce=b"n" * 24, time_ns=NANOSECONDS, **parts
    )
    proposal = read_proposal(signed, b"signature")
    assert proposal.tx_id == tx_id
    return proposal, signed


# Reading and writing.


def test_proposal_reads_back_as_it_was_written() -> None:
    proposal, signed = proposed(transient={"secret": b"value"})
    assert (proposal.kind, proposal.channel_id, proposal.epoch, proposal.chaincode) == (3, "testchannel", 0, "assets")
    assert (proposal.args, dict(proposal.transient)) == ((b"create", b"car"), {"secret": b"value"})
    assert (proposal.creator, proposal.nonce) == (CREATOR, b"n" * 24)
    assert proposal.timestamp == (1_780_315_200, 123_456_789)
    assert proposal.tx_id == transaction_id(b"n" * 24, CREATOR)
    assert (proposal.signed, proposal.signature) == (signed, b"signature")
    assert split_signed_proposal(encode_signed_proposal(signed, b"signature")) == (signed, b"signature")


def test_hash_is_over_the_headers_as_they_came_and_the_payload_without_secrets() -> None:
    proposal, _ = proposed(transient={"secret": b"value"})
    bare, _ = proposed()
    stripped = proposal_pb2.ChaincodeProposalPayload.FromString(proposal.payload)
    assert not stripped.TransientMap
    assert proposal.hash == sha256(proposal.channel_header + proposal.signature_header + proposal.payload).digest()
    assert proposal.hash == bare.hash


def test_header_that_is_spelt_oddly_is_kept_as_it_came() -> None:
    """Fields in another order and given twice, as no encoder of ours would write them."""
    plain = ProposalDraft()
    spelt = b"\x1a\x00" + plain.the_channel_header() + b"\x30\x00"
    signed, signature = plain.but(nonce=plain.the_nonce(), channel_header=spelt).signed()
    assert read_proposal(signed, signature).channel_header == spelt


def test_transaction_holds_the_parts_of_the_proposal_and_each_endorser_once() -> None:
    proposal, _ = proposed(transient={"secret": b"value"})
    response = (200, "", b"result")
    payload = encode_result(proposal, results=b"", event=("happened", b"payload"), response=response, version="1.0")
    twice = [Endorsement(b"one", b"first"), Endorsement(b"two", b"s"), Endorsement(b"one", b"second")]
    made = common_pb2.Payload.FromString(assemble(proposal, payload, twice))
    assert made.header.channel_header == proposal.channel_header
    assert made.header.signature_header == proposal.signature_header
    (action,) = transaction_pb2.Transaction.FromString(made.data).actions
    assert action.header == proposal.signature_header
    inner = transaction_pb2.ChaincodeActionPayload.FromString(action.payload)
    assert inner.chaincode_proposal_payload == proposal.payload
    assert inner.action.proposal_response_payload == payload
    assert [(each.endorser, each.signature) for each in inner.action.endorsements] == [
        (b"one", b"first"),
        (b"two", b"s"),
    ]
    assert result_of(made.SerializeToString()) == b"result"


def test_transaction_that_is_assembled_is_one_that_validation_reads() -> None:
    draft = ProposalDraft()
    proposal = read_proposal(*draft.signed())
    payload = encode_result(proposal, results=b"", event=None, response=(200, "", b""), version="1.0")
    made = assemble(proposal, payload, [Endorsement(b"endorser", b"signature")])
    envelope = common_pb2.Envelope(payload=made, signature=b"signature").SerializeToString()
    transaction = decode_transaction(envelope)
    assert transaction.tx_id == draft.id()


@pytest.mark.parametrize("payload", [b"", b"\xff\xff", common_pb2.Payload(data=b"\xff\xff").SerializeToString()])
def test_result_of_what_is_no_transaction_is_an_error(payload: bytes) -> None:
    with pytest.raises(MalformedMessage):
        result_of(payload)


ANSWERS = st.builds(
    ProposalAnswer,
    st.integers(0, 2**31 - 1),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.binary(min_size=1, max_size=5),
    st.none() | st.builds(Endorsement, st.binary(max_size=5), st.binary(max_size=5)),
    st.lists(st.sampled_from(["a", "b", "c"]), unique=True).map(tuple),
)


@given(answer=ANSWERS)
def test_answer_with_a_result_comes_back_as_it_was_sent(answer: ProposalAnswer) -> None:
    assert decode_answer(encode_answer(answer)) == answer


def test_answer_without_a_result_is_the_response_alone() -> None:
    message = proposal_response_pb2.ProposalResponse.FromString(
        encode_answer(ProposalAnswer(500, "text", namespaces=("a",)))
    )
    expected = proposal_response_pb2.ProposalResponse(
        response=proposal_response_pb2.Response(status=500, message="text")
    )
    assert message == expected


@pytest.mark.parametrize("data", [b"", b"\xff\xff"])
def test_answer_without_a_response_is_none(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_answer(data)


@pytest.mark.parametrize(
    ("status", "expected"), [(0, False), (199, False), (200, True), (399, True), (400, False), (500, False)]
)
def test_clients_take_200_to_399_for_a_success(status: int, expected: bool) -> None:
    assert ProposalAnswer(status).is_success is expected


# Headers, in order.


def test_first_broken_rule_of_the_headers_is_the_one_that_is_named() -> None:
    """Each proposal mends the rule that the one before it broke."""
    proposal = read_proposal(*ProposalDraft().signed())
    broken = replace(proposal, kind=5, epoch=1, nonce=b"", creator=b"", tx_id="00", signature=b"")  # type: ignore[arg-type]
    mended: list[tuple[str, dict[str, Any]]] = [
        ("header type", {"kind": 3}),
        ("epoch", {"epoch": 0}),
        ("nonce", {"nonce": proposal.nonce}),
        ("creator", {"creator": proposal.creator}),
        ("transaction id", {"tx_id": proposal.tx_id}),
        ("signature", {"signature": proposal.signature}),
    ]
    for rule, change in mended:
        with pytest.raises(InvalidProposal) as found:
            check_header(broken)
        assert found.value.rule == rule
        assert found.value.subject.startswith("error validating proposal: ")
        broken = replace(broken, **change)
    check_header(broken)


def test_transaction_id_in_capitals_is_another_one() -> None:
    proposal = read_proposal(*ProposalDraft().signed())
    with pytest.raises(InvalidProposal, match="incorrectly computed txid"):
        check_header(replace(proposal, tx_id=proposal.tx_id.upper()))  # type: ignore[arg-type]


def test_id_of_a_megabyte_is_refused_without_being_repeated() -> None:
    proposal = replace(read_proposal(*ProposalDraft().signed()), tx_id="0" * 2**20)  # type: ignore[arg-type]
    with pytest.raises(InvalidProposal) as found:
        check_header(proposal)
    assert len(found.value.subject) < 500


# Time.


@pytest.mark.parametrize(
    ("off_s", "good"), [(0, True), (900, True), (-900, True), (901, False), (-901, False), (10**9, False)]
)
def test_window_is_a_quarter_of_an_hour_both_ways(off_s: int, good: bool) -> None:
    proposal = replace(read_proposal(*ProposalDraft().signed()), timestamp=(int(NOW.timestamp()) + off_s, 0))
    if good:
        check_time(proposal, NOW)
        return
    with pytest.raises(InvalidProposal) as found:
        check_time(proposal, NOW)
    assert found.value.rule == "time window"


def test_a_nanosecond_beyond_counts_as_far_as_floats_tell() -> None:
    at = NOW - datetime.timedelta(seconds=900)
    proposal = replace(read_proposal(*ProposalDraft().signed()), timestamp=(int(at.timestamp()), 999_000_000))
    check_time(proposal, NOW)
    with pytest.raises(InvalidProposal):
        check_time(replace(proposal, timestamp=(int(at.timestamp()) - 1, 999_000_000)), NOW)


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (None, "1970-01-01 00:00:00 +0000 UTC"),
        ((-1, 0), "1969-12-31 23:59:59 +0000 UTC"),
        ((2**63 - 1, 0), "9223372036854775807 s after 1970"),
        ((-(2**63), 0), "-9223372036854775808 s after 1970"),
        ((0, 2**31 - 1), "1970-01-01 00:00:00 +0000 UTC"),
    ],
)
def test_time_that_no_calendar_has_is_refused_like_any_other(timestamp: tuple[int, int] | None, text: str) -> None:
    proposal = replace(read_proposal(*ProposalDraft().signed()), timestamp=timestamp)
    with pytest.raises(InvalidProposal, match=f"incorrect timestamp {text.replace('+', '.')}, peer time 2026-06-01"):
        check_time(proposal, NOW)
