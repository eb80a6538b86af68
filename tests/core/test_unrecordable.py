"""Blocks that crash, hang or split real peers: each gets one verdict of ours, and the ledger goes on."""

from hashlib import sha256
from typing import Any

import pytest
from fabric_protos.common import common_pb2
from fabric_protos.peer import transaction_pb2

from ledger.core.errors import ChannelStopped, InvalidBlock
from ledger.core.names import Verdict
from ledger.core.policy.ast import Role
from ledger.core.rwset import (
    CollectionSet,
    HashedMetadataWrite,
    HashedWrite,
    MerkleSummary,
    MetadataWrite,
    NamespaceSet,
    RangeQuery,
    Read,
    ReadWriteSet,
    Write,
)
from ledger.core.state import public_key
from ledger.wire.policy import encode_signature_policy
from tests.kit.channel import (
    Channel,
    TestCollection,
    any_peer,
    definition_fields,
    definition_writes,
    out_of,
    state_data,
)
from tests.kit.transactions import config_envelope, in_namespace, writes

VALID = Verdict.VALID
GARBAGE = b"\xff\xff\xff"
ANYBODY = encode_signature_policy(out_of(0, ("Org1MSP", Role.PEER)))
BOTH = encode_signature_policy(out_of(2, ("Org1MSP", Role.PEER), ("Org2MSP", Role.PEER)))
PARAMETER = "VALIDATION_PARAMETER"


def parameter_write(key: str, parameter: bytes = BOTH) -> MetadataWrite:
    return MetadataWrite(key, ((PARAMETER, parameter),))


def in_set(*namespaces: NamespaceSet) -> ReadWriteSet:
    return ReadWriteSet(namespaces)


@pytest.fixture
def channel() -> Channel:
    return Channel().define("asset", policy=any_peer("Org1MSP", "Org2MSP"), collections=[TestCollection("mem")])


def test_the_first_failing_namespace_in_ascending_order_decides(channel: Channel) -> None:
    """One namespace is undefined, another fails its policy: Fabric answers 25 or 10 at random."""
    channel.define("zebra", policy=any_peer("Org2MSP"))
    only_org1 = channel.peers[:1]
    undefined_first = channel.draft(
        in_set(in_namespace("nosuch", writes=[Write("k", b"v")]), in_namespace("zebra", writes=[Write("k", b"v")])),
        endorsers=only_org1,
    )
    channel.define("bear", policy=any_peer("Org2MSP"))
    failing_first = channel.draft(
        in_set(in_namespace("nosuch", writes=[Write("k", b"v")]), in_namespace("bear", writes=[Write("k", b"v")])),
        endorsers=only_org1,
    )
    assert channel.verdicts(undefined_first, failing_first) == [
        Verdict.INVALID_CHAINCODE,
        Verdict.ENDORSEMENT_POLICY_FAILURE,
    ]


@pytest.mark.parametrize("part", ["data", "action_payload", "response_payload"])
def test_a_writer_behind_an_undecodable_body_is_judged_as_ever(channel: Channel, part: str) -> None:
    parts: dict[str, Any] = {part: GARBAGE}
    bad = channel.draft(writes("asset", "a"), **parts)
    assert channel.verdicts(bad, channel.draft(writes("asset", "a"))) == [
        Verdict.INVALID_ENDORSER_TRANSACTION,
        VALID,
    ]


def test_a_transaction_without_any_action_is_invalid_and_the_next_goes_on(channel: Channel) -> None:
    none = channel.draft(data=b"\x1a\x00")  # An unknown field only.
    assert channel.verdicts(none, channel.draft(writes("asset", "a"))) == [Verdict.INVALID_ENDORSER_TRANSACTION, VALID]


def test_a_payload_without_endorsed_action_is_invalid(channel: Channel) -> None:
    payload = transaction_pb2.ChaincodeActionPayload(chaincode_proposal_payload=b"p").SerializeToString()
    fault = channel.fault(channel.draft(action_payload=payload))
    assert fault is not None
    assert (fault.verdict, fault.rule) == (5, "endorsed action")


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ({"tx_id": "00"}, Verdict.BAD_PROPOSAL_TXID),
        ({"signature": b"no signature"}, Verdict.BAD_CREATOR_SIGNATURE),
        ({"version": ""}, Verdict.INVALID_CHAINCODE),
        ({"endorsers": ()}, Verdict.ENDORSEMENT_POLICY_FAILURE),
    ],
)
def test_a_parameter_of_a_failed_transaction_does_not_hold_up_later_writers(
    channel: Channel, parts: dict[str, Any], verdict: Verdict
) -> None:
    sets = in_set(in_namespace("asset", metadata=[parameter_write("k")]))
    assert channel.verdicts(channel.draft(sets, **parts), channel.draft(writes("asset", "k"))) == [verdict, VALID]


@pytest.mark.parametrize("collection", ["nosuch", "", "_implicit_org_Org9MSP"])
def test_a_hashed_write_to_an_undefined_collection_fails_the_policy(channel: Channel, collection: str) -> None:
    hashed = CollectionSet(collection, writes=(HashedWrite(sha256(b"k").digest(), sha256(b"v").digest()),))
    fault = channel.fault(channel.draft(in_set(in_namespace("asset", collections=[hashed]))))
    assert fault is not None
    assert (fault.verdict, fault.rule) == (10, "collection definition")


def test_a_hashed_write_to_an_undefined_namespace_is_an_undefined_chaincode(channel: Channel) -> None:
    hashed = CollectionSet("c", writes=(HashedWrite(sha256(b"k").digest(), sha256(b"v").digest()),))
    fault = channel.fault(channel.draft(in_set(in_namespace("nosuch", collections=[hashed]))))
    assert fault is not None
    assert (fault.verdict, fault.rule) == (25, "chaincode definition")


def test_an_earlier_fault_of_a_write_to_an_undefined_collection_stays(channel: Channel) -> None:
    hashed = CollectionSet("nosuch", writes=(HashedWrite(b"k" * 32, b"v" * 32),))
    bad = channel.draft(in_set(in_namespace("asset", collections=[hashed])), tx_id="00")
    assert channel.verdicts(bad) == [Verdict.BAD_PROPOSAL_TXID]


def test_a_range_result_without_version_whose_key_exists_is_a_phantom(channel: Channel) -> None:
    channel.commit(channel.draft(writes("asset", "a")))
    query = RangeQuery("a", "b", True, raw_reads=(Read("a", None),))
    fault = channel.fault(channel.draft(in_set(in_namespace("asset", ranges=[query]))))
    assert fault is not None
    assert (fault.verdict, fault.rule) == (12, "range result")


@pytest.mark.parametrize(
    "summary",
    [
        MerkleSummary(0, 1, (b"h",)),
        MerkleSummary(1, 1, (b"h",)),
        MerkleSummary(2, 1, ()),
        MerkleSummary(2, 0, (b"h",)),
    ],
)
def test_a_summary_of_too_small_degree_or_without_hashes_is_a_phantom(channel: Channel, summary: MerkleSummary) -> None:
    channel.commit(channel.draft(writes("asset", "a", "b", "c")))
    query = RangeQuery("a", "z", True, merkle=summary)
    assert channel.verdicts(channel.draft(in_set(in_namespace("asset", ranges=[query])))) == [
        Verdict.PHANTOM_READ_CONFLICT
    ]


def test_a_parameter_only_write_behind_a_delete_in_the_block_changes_nothing(channel: Channel) -> None:
    channel.commit(channel.draft(writes("asset", "k")))
    delete = channel.draft(in_set(in_namespace("asset", writes=[Write("k", b"", is_delete=True)])))
    parameter = channel.draft(in_set(in_namespace("asset", metadata=[parameter_write("k")])))
    assert channel.verdicts(delete, parameter) == [VALID, VALID]
    assert channel.ledger.get(public_key("asset", "k")) is None


def test_a_hashed_parameter_only_write_behind_a_delete_changes_nothing(channel: Channel) -> None:
    key = sha256(b"k").digest()
    write = CollectionSet("mem", writes=(HashedWrite(key, sha256(b"v").digest()),))
    delete = CollectionSet("mem", writes=(HashedWrite(key, b"", is_delete=True),))
    describe = CollectionSet("mem", metadata_writes=(HashedMetadataWrite(key, ((PARAMETER, BOTH),)),))
    for each in (write,):
        channel.commit(channel.draft(in_set(in_namespace("asset", collections=[each]))))
    drafts = [channel.draft(in_set(in_namespace("asset", collections=[each]))) for each in (delete, describe)]
    assert channel.verdicts(*drafts) == [VALID, VALID]
    assert not [each for each in channel.ledger.state if each.collection == "mem"]


def test_a_delete_followed_by_value_and_parameter_is_fine(channel: Channel) -> None:
    channel.commit(channel.draft(writes("asset", "k")))
    delete = channel.draft(in_set(in_namespace("asset", writes=[Write("k", b"", is_delete=True)])))
    both = channel.draft(
        in_set(in_namespace("asset", writes=[Write("k", b"new")], metadata=[parameter_write("k", ANYBODY)]))
    )
    assert channel.verdicts(delete, both) == [VALID, VALID]
    entry = channel.ledger.get(public_key("asset", "k"))
    assert entry is not None
    assert entry.value == b"new"
    assert ANYBODY in entry.metadata


def test_an_undecodable_parameter_is_stored_and_then_satisfied_by_nobody(channel: Channel) -> None:
    channel.commit(channel.draft(writes("asset", "k")))
    assert channel.verdicts(channel.draft(in_set(in_namespace("asset", metadata=[parameter_write("k", GARBAGE)])))) == [
        VALID
    ]
    assert channel.verdicts(channel.draft(writes("asset", "k"))) == [Verdict.ENDORSEMENT_POLICY_FAILURE]


@pytest.mark.parametrize("name", ["", "otherchannel"])
def test_a_header_of_another_channel_or_of_none_has_a_bad_creator(channel: Channel, name: str) -> None:
    fault = channel.fault(channel.draft(writes("asset", "k"), channel=name))
    assert fault is not None
    assert (fault.verdict, fault.rule) == (4, "channel of the creator")


def test_a_payload_without_header_has_a_bad_header(channel: Channel) -> None:
    payload = common_pb2.Payload(data=b"data").SerializeToString()
    outcome = channel.commit(channel.draft(payload=payload))
    assert outcome.verdicts == bytes([Verdict.BAD_COMMON_HEADER])
    assert outcome.tx_ids == ("",)


def test_config_beside_other_transactions_is_invalid_and_the_others_are_judged(channel: Channel) -> None:
    config = config_envelope("testchannel", channel.orderer, channel.bundle.raw)
    outcome = channel.commit(config, channel.draft(writes("asset", "k")))
    assert outcome.verdicts == bytes([Verdict.INVALID_CONFIG_TRANSACTION, VALID])
    assert not outcome.is_config


def test_a_config_that_does_not_follow_stops_the_channel_before_it_is_committed(channel: Channel) -> None:
    block = channel.config_block(channel.tree)
    height = channel.ledger.height
    with pytest.raises(ChannelStopped, match="last update"):
        channel.commit_block(block)
    assert channel.ledger.height == height
    assert channel.verdicts(channel.draft(writes("asset", "k"))) == [VALID]


@pytest.mark.parametrize(
    "envelope",
    [
        common_pb2.Envelope(payload=b"payload").SerializeToString(),
        b"\x12\x01s\x0a\x01p",
        b"\x0a\x81\x00p\x12\x01s",
        b"",
    ],
    ids=["no signature", "fields in another order", "length not minimal", "nothing"],
)
def test_an_envelope_that_does_not_re_encode_refuses_the_whole_block(channel: Channel, envelope: bytes) -> None:
    with pytest.raises(InvalidBlock):
        channel.commit(channel.draft(writes("asset", "k")), envelope)


def test_an_unknown_field_at_the_end_of_an_envelope_is_accepted(channel: Channel) -> None:
    envelope = channel.draft(writes("asset", "k")).envelope()
    assert channel.verdicts(envelope + b"\x1a\x03new") == [VALID]


@pytest.mark.parametrize(
    "changes",
    [
        {"Sequence": GARBAGE},
        {"Sequence": state_data(String="1")},
        {"metadata": None},
        {"ValidationInfo": None, "EndorsementInfo": None, "Collections": None},
        {"Collections": state_data(Bytes=GARBAGE)},
        {"metadata": b"\x0a\x05Other"},
    ],
    ids=["sequence garbage", "sequence text", "no metadata", "only sequence", "collections garbage", "other datatype"],
)
def test_every_use_of_an_unusable_definition_is_an_invalid_chaincode(
    channel: Channel, changes: dict[str, bytes | None]
) -> None:
    fields = {key: value for key, value in (definition_fields() | changes).items() if value is not None}
    forged = channel.draft(definition_writes("ghost", fields), "_lifecycle")
    assert channel.verdicts(forged) == [VALID]
    assert channel.verdicts(channel.draft(writes("ghost", "k"), "ghost")) == [Verdict.INVALID_CHAINCODE]


def test_a_definition_with_an_unknown_plugin_can_be_stored_but_not_used(channel: Channel) -> None:
    channel.define("ghost", plugin="other")
    fault = channel.fault(channel.draft(writes("ghost", "k"), "ghost"))
    assert fault is not None
    assert (fault.verdict, fault.rule) == (25, "validation plugin")


def test_a_definition_with_sequence_zero_works_and_one_with_a_garbage_policy_fails_it(channel: Channel) -> None:
    channel.define("zero", sequence=0).define("garbage", policy=GARBAGE)
    assert channel.verdicts(
        channel.draft(writes("zero", "k"), "zero"), channel.draft(writes("garbage", "k"), "garbage")
    ) == [VALID, Verdict.ENDORSEMENT_POLICY_FAILURE]
