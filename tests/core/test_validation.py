"""The rules of both passes, one by one, with transactions that are really signed."""

from hashlib import sha256
from typing import Any

import pytest
from fabric_protos.common import common_pb2

from ledger.core.names import NEVER, Verdict
from ledger.core.policy.ast import Role
from ledger.core.rwset import (
    CollectionSet,
    HashedRead,
    HashedWrite,
    MetadataWrite,
    NamespaceSet,
    RangeQuery,
    Read,
    ReadWriteSet,
    Write,
)
from ledger.core.state import StateKey, Version, hashed_key, public_key
from ledger.wire.policy import encode_signature_policy
from tests.kit.channel import Channel, TestCollection, all_peers, any_peer, out_of
from tests.kit.transactions import Draft, event, in_namespace, writes

VALID, GARBAGE = Verdict.VALID, b"\xff\xff\xff"


def in_set(*namespaces: NamespaceSet) -> ReadWriteSet:
    return ReadWriteSet(namespaces)


@pytest.fixture
def channel() -> Channel:
    collections = [
        TestCollection("mem", block_to_live=2),
        TestCollection("both", policy=all_peers("Org1MSP", "Org2MSP")),
    ]
    return Channel().define("asset", policy=any_peer("Org1MSP", "Org2MSP"), collections=collections)


@pytest.mark.parametrize(
    ("parts", "verdict", "rule"),
    [
        ({"payload": GARBAGE}, 2, "payload message"),
        ({"kind": 0}, 3, "header type"),
        ({"kind": 6}, 3, "header type"),
        ({"epoch": 1}, 3, "epoch"),
        ({"nonce": b""}, 3, "nonce"),
        ({"creator_bytes": b""}, 3, "creator"),
        ({"creator_bytes": GARBAGE}, 4, "creator"),
        ({"signature": b"none"}, 4, "creator signature"),
        ({"kind": 2}, 7, "header type"),
        ({"tx_id": "ab"}, 8, "transaction id"),
        ({"tx_id": ""}, 8, "transaction id"),
        ({"data": b""}, 5, "transaction"),
        ({"data": GARBAGE}, 5, "Transaction message"),
        ({"action_header": b""}, 5, "action header"),
        ({"proposal_hash": b"x" * 32}, 5, "proposal hash"),
        ({"proposal": b""}, 5, "proposal payload"),
        ({"extension": GARBAGE}, 19, "header extension message"),
        ({"extension": b""}, 255, "chaincode id in header extension"),
        ({"extension": b"\x12\x00"}, 25, "chaincode name"),
        ({"extension": b"\x12\x07\x12\x05other"}, 25, "chaincode name"),
        ({"chaincode_action": b""}, 21, "chaincode action"),
        ({"chaincode_action": GARBAGE}, 21, "chaincode action message"),
        ({"chaincode_action": b"\x0a\x03\xff\xff\xff"}, 22, "TxReadWriteSet message"),
        ({"chaincode_action": b"\x1a\x02\x08\x01"}, 255, "chaincode id in action"),
        ({"results": GARBAGE}, 22, "TxReadWriteSet message"),
        ({"version": ""}, 25, "chaincode version"),
        ({"event": GARBAGE}, 255, "event message"),
        ({"event": event("other")}, 255, "event chaincode"),
        ({"results": in_set(NamespaceSet("asset"), NamespaceSet("asset"))}, 23, "namespace twice"),
        ({"chaincode": "nosuch"}, 25, "chaincode definition"),
        ({"results": writes("lscc", "k")}, 25, "chaincode definition"),
        ({"endorsers": ()}, 10, "endorsement policy"),
    ],
)
def test_each_fault_has_its_code_and_its_rule(channel: Channel, parts: dict[str, Any], verdict: int, rule: str) -> None:
    fault = channel.fault(channel.draft(**({"results": writes("asset", "k")} | parts)))
    assert fault is not None
    assert (fault.verdict, fault.rule) == (verdict, rule)
    assert fault.detail


@pytest.mark.parametrize(
    "parts",
    [
        {"status": 500},
        {"version": "another"},
        {"results": b""},
        {"event": event("asset")},
        {"results": writes("asset", "")},
        {"results": writes("asset", "z", "a")},
        {"results": in_set(in_namespace("nosuch", reads=[("k", None)]))},
    ],
)
def test_what_a_peer_does_not_look_at_is_valid(channel: Channel, parts: dict[str, Any]) -> None:
    assert channel.verdicts(channel.draft(**parts)) == [VALID]


def test_an_id_is_used_up_by_a_failed_transaction_in_later_blocks_but_not_inside_its_block(channel: Channel) -> None:
    good = channel.draft(writes("asset", "k"))
    bad = good.but(endorsers=(), nonce=b"same")
    good = good.but(nonce=b"same")
    assert channel.verdicts(bad, good, good) == [Verdict.ENDORSEMENT_POLICY_FAILURE, VALID, Verdict.DUPLICATE_TXID]
    burnt = channel.draft(writes("asset", "k"), nonce=b"burnt")
    assert channel.verdicts(burnt.but(signature=b"no")) == [Verdict.BAD_CREATOR_SIGNATURE]
    fault = channel.fault(burnt)
    assert fault is not None
    assert (fault.verdict, fault.rule) == (9, "transaction id in ledger")


def test_a_conflicting_transaction_uses_up_its_id_inside_the_block(channel: Channel) -> None:
    stale = channel.draft(in_set(in_namespace("asset", reads=[("k", (1, 1))])), nonce=b"n")
    again = stale.but(results=writes("asset", "k"), nonce=b"n")
    assert channel.verdicts(stale, again) == [Verdict.MVCC_READ_CONFLICT, Verdict.DUPLICATE_TXID]


def test_an_invalid_transaction_with_empty_id_is_indexed_by_the_computed_one(channel: Channel) -> None:
    draft = channel.draft(writes("asset", "k"), tx_id="", nonce=b"n")
    outcome = channel.commit(draft)
    assert outcome.verdicts == bytes([Verdict.BAD_PROPOSAL_TXID])
    assert outcome.tx_ids == (draft.but(tx_id=None, nonce=b"n").id(),)


def test_an_id_of_a_megabyte_is_indexed_as_it_is(channel: Channel) -> None:
    outcome = channel.commit(channel.draft(tx_id="x" * 1_000_000))
    assert outcome.verdicts == bytes([Verdict.BAD_PROPOSAL_TXID])
    assert len(outcome.tx_ids[0]) == 1_000_000
    assert len(outcome.faults[0][1].detail) < 1000


def test_an_id_that_is_not_utf_8_is_no_id(channel: Channel) -> None:
    header = channel.draft().header()
    header.channel_header = b"\x2a\x02\xff\xfe"  # Field 5, tx_id.
    payload = common_pb2.Payload(header=header).SerializeToString()
    outcome = channel.commit(channel.draft(payload=payload))
    assert (outcome.verdicts, outcome.tx_ids) == (bytes([Verdict.BAD_COMMON_HEADER]), ("",))


def test_reads_of_versions_decide_against_the_state_and_the_block(channel: Channel) -> None:
    channel.commit(channel.draft(writes("asset", "k")))
    at = (channel.ledger.height - 1, 0)
    read = channel.draft(in_set(in_namespace("asset", reads=[("k", at)])))
    stale = channel.draft(in_set(in_namespace("asset", reads=[("k", None)])))
    assert channel.verdicts(read, stale, channel.draft(writes("asset", "k")), read.but()) == [
        VALID,
        Verdict.MVCC_READ_CONFLICT,
        VALID,
        Verdict.MVCC_READ_CONFLICT,
    ]


def test_a_conflict_names_key_and_versions(channel: Channel) -> None:
    channel.commit(channel.draft(writes("asset", "k")))
    number = channel.ledger.height - 1
    fault = channel.fault(channel.draft(in_set(in_namespace("asset", reads=[("k", (1, 9))]))))
    assert fault is not None
    assert fault.detail == f"asset: 'k': read at 1:9, is at {number}:0"


def test_inserting_and_deleting_inside_a_range_leaves_it_as_it_was(channel: Channel) -> None:
    channel.commit(channel.draft(writes("asset", "b")))
    number = channel.ledger.height - 1
    query = RangeQuery("a", "z", True, raw_reads=(Read("b", Version(number, 0)),))  # type: ignore[arg-type]
    ranged = channel.draft(in_set(in_namespace("asset", ranges=[query])))
    insert = channel.draft(writes("asset", "c"))
    delete = channel.draft(in_set(in_namespace("asset", writes=[Write("c", b"", True)])))
    assert channel.verdicts(insert, ranged, delete, ranged.but()) == [
        VALID,
        Verdict.PHANTOM_READ_CONFLICT,
        VALID,
        VALID,
    ]


def test_a_recorded_end_belongs_to_a_range_that_was_not_exhausted(channel: Channel) -> None:
    channel.commit(channel.draft(writes("asset", "a", "b")))
    at = Version(channel.ledger.height - 1, 0)  # type: ignore[arg-type]

    def ranged(end: str, *, exhausted: bool, keys: str) -> Draft:
        query = RangeQuery("a", end, exhausted, raw_reads=tuple(Read(key, at) for key in keys))
        return channel.draft(in_set(in_namespace("asset", ranges=[query])))

    drafts = [
        ranged("b", exhausted=False, keys="ab"),
        ranged("b", exhausted=True, keys="a"),
        ranged("b", exhausted=True, keys="ab"),
        ranged("c", exhausted=False, keys="ab"),
    ]
    assert channel.verdicts(*drafts) == [VALID, VALID, Verdict.PHANTOM_READ_CONFLICT, VALID]


def test_a_key_level_parameter_rules_over_the_chaincode_policy_and_protects_itself(channel: Channel) -> None:
    both = encode_signature_policy(out_of(2, ("Org1MSP", Role.PEER), ("Org2MSP", Role.PEER)))
    parameter = MetadataWrite("k", (("VALIDATION_PARAMETER", both),))
    setting = in_set(in_namespace("asset", writes=[Write("k", b"v")], metadata=[parameter]))
    one = channel.peers[:1]
    assert channel.verdicts(channel.draft(setting, endorsers=one), channel.draft(writes("asset", "k"))) == [
        VALID,
        Verdict.ENDORSEMENT_POLICY_FAILURE,
    ]
    assert channel.verdicts(
        channel.draft(writes("asset", "k"), endorsers=one),
        channel.draft(in_set(in_namespace("asset", metadata=[MetadataWrite("k", ())])), endorsers=one),
        channel.draft(writes("asset", "k")),
    ) == [Verdict.ENDORSEMENT_POLICY_FAILURE, Verdict.ENDORSEMENT_POLICY_FAILURE, VALID]


def hashed_write(collection: str, key: str = "k") -> ReadWriteSet:
    write = HashedWrite(sha256(key.encode()).digest(), sha256(b"v").digest())
    return in_set(in_namespace("asset", collections=[CollectionSet(collection, writes=(write,))]))


def test_collections_have_their_own_policy_or_that_of_the_chaincode(channel: Channel) -> None:
    one = channel.peers[:1]
    assert channel.verdicts(
        channel.draft(hashed_write("mem"), endorsers=one),
        channel.draft(hashed_write("both"), endorsers=one),
        channel.draft(hashed_write("both")),
        channel.draft(hashed_write("_implicit_org_Org1MSP"), endorsers=one),
        channel.draft(hashed_write("_implicit_org_Org2MSP"), endorsers=one),
    ) == [VALID, Verdict.ENDORSEMENT_POLICY_FAILURE, VALID, VALID, Verdict.ENDORSEMENT_POLICY_FAILURE]


def test_private_data_is_there_until_its_block_and_conflicts_after_it(channel: Channel) -> None:
    channel.commit(channel.draft(hashed_write("mem")))
    written = channel.ledger.height - 1
    key = hashed_key("asset", "mem", sha256(b"k").digest())
    entry = channel.ledger.get(key)
    assert entry is not None
    assert entry.expiry == written + 3
    read = CollectionSet("mem", reads=(HashedRead(key.key, Version(written, 0)),))  # type: ignore[arg-type]
    draft = channel.draft(in_set(in_namespace("asset", collections=[read])))
    outcomes = [channel.commit(draft.but()) for _ in range(4)]
    assert [outcome.verdicts[0] for outcome in outcomes] == [0, 0, 0, Verdict.MVCC_READ_CONFLICT]
    assert [outcome.expired for outcome in outcomes] == [(), (), (key,), ()]


def test_a_rewrite_in_the_block_of_its_expiry_begins_anew(channel: Channel) -> None:
    channel.commit(channel.draft(hashed_write("mem")))
    for _ in range(2):
        channel.commit(channel.draft())
    outcome = channel.commit(channel.draft(hashed_write("mem")))
    assert outcome.expired == ()
    entry = channel.ledger.get(hashed_key("asset", "mem", sha256(b"k").digest()))
    assert entry is not None
    assert entry.expiry == outcome.block.number + 3


def test_entries_of_implicit_collections_never_expire(channel: Channel) -> None:
    channel.commit(channel.draft(hashed_write("_implicit_org_Org1MSP")))
    (found,) = [each for key, each in channel.ledger.state.items() if key.collection]
    assert found.expiry == NEVER


def test_a_definition_counts_from_the_next_block_on_and_is_remembered_with_its_collections(channel: Channel) -> None:
    from tests.kit.channel import definition_fields, definition_writes

    fields = definition_fields(collections=[TestCollection("c")])
    define = channel.draft(definition_writes("new", fields), "_lifecycle")
    use = channel.draft(writes("new", "k"), "new")
    outcome = channel.commit(define, use)
    assert outcome.verdicts == bytes([VALID, Verdict.INVALID_CHAINCODE])
    assert [name for name, _ in outcome.config_history] == ["new"]
    assert channel.verdicts(use.but()) == [VALID]


def test_history_names_each_public_write_of_valid_transactions_once(channel: Channel) -> None:
    twice = in_set(in_namespace("asset", writes=[Write("k", b"1"), Write("l", b"2"), Write("k", b"3")]))
    outcome = channel.commit(channel.draft(twice, endorsers=()), channel.draft(twice))
    assert outcome.history == ((1, "asset", "k"), (1, "asset", "l"))


def test_keys_with_any_characters_are_kept_as_utf_8(channel: Channel) -> None:
    for key in ("", "\0composite\0a\0", "ключ", "\U0010ffff"):
        assert channel.verdicts(channel.draft(writes("asset", key))) == [VALID]
        assert channel.ledger.get(public_key("asset", key)) is not None


def test_preparing_on_a_pool_gives_the_same(channel: Channel) -> None:
    from concurrent.futures import ThreadPoolExecutor

    drafts = [channel.draft(writes("asset", f"k{n}"), endorsers=channel.peers[: n % 3]) for n in range(20)]
    block = channel.block(*(each.envelope() for each in drafts))
    with ThreadPoolExecutor(2) as pool:
        prepared = channel.transition.prepare(block, channel.bundle, pool)
    here = channel.transition.prepare(block, channel.bundle)
    first = channel.transition.judge(prepared, channel.ledger, channel.bundle)
    second = channel.transition.judge(here, channel.ledger, channel.bundle)
    assert (first.verdicts, first.commit_hash, first.updates) == (second.verdicts, second.commit_hash, second.updates)
    assert set(first.verdicts) == {0, Verdict.ENDORSEMENT_POLICY_FAILURE}


def test_a_failing_disk_is_no_verdict(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    from ledger.core.errors import StorageFailed

    def fail(key: StateKey) -> None:
        raise StorageFailed("disk")

    block = channel.block(channel.draft(writes("asset", "k")).envelope())
    monkeypatch.setattr(channel.ledger, "get", fail)
    with pytest.raises(StorageFailed):
        channel.judge(block)
