"""Rendering for people: all that real peers and forgers put into blocks becomes readable JSON, and never fails."""

import json
from base64 import b64decode

import pytest
from fabric_protos.common import common_pb2, configtx_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.core.block import Block, Header
from ledger.core.names import BlockNumber, Verdict
from ledger.interfaces.rest.models import BlockAnswer
from ledger.wire.block import decode_block
from ledger.wire.render import readable_text, render_block, render_bytes, render_change, render_envelope, render_rwset
from ledger.wire.rwset import decode_rwset
from tests.kit.recorded import recorded_transactions
from tests.kit.rest_node import recorded_ledger

RICH = recorded_ledger("rich")


def test_every_block_of_the_rich_channel_becomes_a_documented_answer() -> None:
    for raw in RICH.raw:
        rendered = json.loads(json.dumps(render_block(decode_block(raw)), allow_nan=False))
        assert BlockAnswer.model_validate(rendered).number == decode_block(raw).number


def test_the_rendered_rwset_holds_every_read_and_write() -> None:
    for transaction in recorded_transactions("mini"):
        if transaction.verdict != Verdict.VALID:
            continue
        rendered = render_rwset(transaction.results)["namespaces"]
        for shown, namespace in zip(rendered, decode_rwset(transaction.results).namespaces, strict=True):
            assert shown["namespace"] == namespace.namespace
            assert [one["key"] for one in shown["reads"]] == [read.key for read in namespace.reads]
            written = {
                one["key"]: b"" if "delete" in one else b64decode(one["value"]["base64"]) for one in shown["writes"]
            }
            assert written == {write.key: write.value for write in namespace.writes}


def test_an_endorser_transaction_shows_who_asked_for_what_and_who_endorsed() -> None:
    [first] = render_block(RICH.blocks[2])["transactions"]
    assert (first["type"], first["verdict"]) == ("ENDORSER_TRANSACTION", "VALID")
    assert first["creator"]["msp_id"] == "Org1MSP"
    [action] = first["actions"]
    assert action["chaincode"]["name"] == action["invoked"] == "_lifecycle"
    assert action["arguments"][0]["text"] == "CommitChaincodeDefinition"
    assert {one["msp_id"] for one in action["endorsers"]} == {"Org1MSP", "Org2MSP"}
    assert action["response"]["status"] == 200


def test_a_config_block_shows_the_organisations_and_their_settings() -> None:
    [first] = render_block(RICH.blocks[0])["transactions"]
    groups = first["config"]["channel_group"]["groups"]
    assert sorted(groups["Application"]["groups"]) == ["Org1", "Org2"]
    assert groups["Application"]["groups"]["Org1"]["values"]["MSP"]["value"]["msp_id"] == "Org1MSP"
    assert groups["Orderer"]["values"]["BatchSize"]["value"]["max_message_count"] > 0
    endorsement = groups["Application"]["policies"]["Endorsement"]
    assert (endorsement["type"], endorsement["policy"]["rule"]) == ("ImplicitMetaPolicy", "MAJORITY")


def test_the_orderer_who_signed_is_shown() -> None:
    assert render_block(RICH.blocks[1])["orderer_signatures"][0]["msp_id"] == "OrdererMSP"
    assert render_block(RICH.blocks[0])["orderer_signatures"] == []


def test_a_block_that_no_peer_has_judged_has_no_verdicts() -> None:
    block = RICH.blocks[1]
    fresh = Block(block.header, block.envelopes, (*block.metadata[:2], b"", b"", b""))
    assert {one["verdict"] for one in render_block(fresh)["transactions"]} == {None}
    assert render_block(fresh)["commit_hash"] is None


def test_a_block_without_metadata_is_shown_too() -> None:
    bare = Block(Header(BlockNumber(7), b"", b""), (b"",), ())
    assert render_block(bare)["transactions"][0]["verdict"] is None


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"\xff", "Envelope"),
        (common_pb2.Envelope(payload=b"\xff").SerializeToString(), "Payload"),
        (
            common_pb2.Envelope(
                payload=common_pb2.Payload(header=common_pb2.Header(channel_header=b"\xff")).SerializeToString()
            ).SerializeToString(),
            "ChannelHeader",
        ),
    ],
)
def test_an_undecodable_part_is_named(data: bytes, part: str) -> None:
    assert part in render_envelope(data)["undecodable"]


def envelope_with(header: common_pb2.ChannelHeader, data: bytes = b"") -> bytes:
    payload = common_pb2.Payload(header=common_pb2.Header(channel_header=header.SerializeToString()), data=data)
    return bytes(common_pb2.Envelope(payload=payload.SerializeToString()).SerializeToString())


@pytest.mark.parametrize("seconds", [-(2**63), 2**63 - 1, 10**12])
def test_a_time_that_no_calendar_knows_is_null(seconds: int) -> None:
    header = common_pb2.ChannelHeader(type=0)
    header.timestamp.seconds = seconds
    assert render_envelope(envelope_with(header))["timestamp"] is None


def test_an_unknown_type_is_shown_by_its_number() -> None:
    assert render_envelope(envelope_with(common_pb2.ChannelHeader(type=99)))["type"] == "99"


def test_a_configuration_nested_deeper_than_the_decoder_follows_is_undecodable() -> None:
    group = configtx_pb2.ConfigGroup(version=1).SerializeToString()
    for _ in range(3_000):
        entry = b"\x0a\x01a\x12" + varint(len(group)) + group
        group = b"\x12" + varint(len(entry)) + entry
    config = b"\x12" + varint(len(group)) + group
    data = b"\x0a" + varint(len(config)) + config
    shown = render_envelope(envelope_with(common_pb2.ChannelHeader(type=common_pb2.CONFIG), data))
    assert "ConfigEnvelope" in shown["config"]["undecodable"]


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"plain", "plain"), ("Größe ✓\n".encode(), "Größe ✓\n"), (b"", ""), (b"\x00a", None), (b"\xff", None)],
)
def test_text_stands_beside_readable_bytes_only(value: bytes, text: str | None) -> None:
    assert readable_text(value) == text
    assert render_bytes(value)["text"] == text


def test_a_change_is_the_last_write_of_the_key_by_that_transaction() -> None:
    (namespace, key), changes = next(iter(RICH.changes.items()))
    change = changes[0]
    shown = render_change(RICH.blocks[change.block].envelopes[change.index], namespace, key)
    assert shown["tx_id"] == RICH.ids[change.block][change.index]
    assert shown["delete"] == (shown["value"] is None)


REAL = [envelope for block in RICH.blocks[:60] for envelope in block.envelopes]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_damage_to_a_real_envelope_makes_rendering_fail(data: st.DataObject) -> None:
    envelope = bytearray(data.draw(st.sampled_from(REAL)))
    for _ in range(data.draw(st.integers(1, 4))):
        envelope[data.draw(st.integers(0, len(envelope) - 1))] = data.draw(st.integers(0, 255))
    envelope = envelope[: data.draw(st.integers(len(envelope) // 2, len(envelope)))]
    json.dumps(render_envelope(bytes(envelope)), allow_nan=False).encode()
