"""What an orderer takes: each filter with Fabric's status and words, and our own two."""

from dataclasses import replace
from datetime import timedelta

import pytest
from fabric_protos.orderer import configuration_pb2 as orderer_pb2

from ledger.core.broadcast_rules import (
    BAD_REQUEST,
    FORBIDDEN,
    SERVICE_UNAVAILABLE,
    BroadcastRefused,
    Offered,
    check_config_update,
    check_normal,
)
from ledger.core.channel_config import Bundle
from ledger.core.policy.ast import OutOf, SignaturePolicy
from ledger.wire.codec import CODEC
from ledger.wire.config import bundle_from_block
from ledger.wire.ordering import read_offered
from tests.kit.certificates import with_s
from tests.kit.channel import Channel, config_policy, config_value, genesis_of
from tests.kit.organisations import END, START, Signer, shared_organisation

ORG1 = shared_organisation("Org1MSP")
NOW = START + timedelta(days=100)
DENIED = (
    "implicit policy evaluation failed - 0 sub-policies were satisfied, but this policy requires 1 of the 'Writers' "
    "sub-policies to be satisfied: permission denied"
)


@pytest.fixture(scope="module")
def channel() -> Channel:
    return Channel()


def offered(channel: Channel, **parts: object) -> Offered:
    return read_offered(channel.draft(**parts).envelope())  # type: ignore[arg-type]


def answer(found: Offered, bundle: Bundle, now: object = NOW) -> tuple[int, str]:
    """The orderer's status and text; 200 if it takes the envelope."""
    try:
        check_normal(found, bundle, now)  # type: ignore[arg-type]
    except BroadcastRefused as refusal:
        return refusal.status, refusal.info
    return 200, ""


def test_members_of_any_organisation_of_the_channel_may_send_and_nobody_else(channel: Channel) -> None:
    for signer in (ORG1.client, ORG1.peer, ORG1.admin, channel.orderer):
        assert answer(offered(channel, creator=signer), channel.bundle) == (200, "")
    stranger = shared_organisation("StrangerMSP").client
    without_role = ORG1.issue_odd("no role", ())
    for nobody in (stranger, without_role):
        assert answer(offered(channel, creator=nobody), channel.bundle) == (FORBIDDEN, DENIED)


def test_a_bad_a_high_or_a_missing_signature_is_denied(channel: Channel) -> None:
    good = offered(channel)
    for bad in (b"", b"garbage", with_s(good.signature, "secp256r1", high=True), ORG1.client.sign(b"another")):
        assert answer(replace(good, signature=bad), channel.bundle) == (FORBIDDEN, DENIED)


def test_a_certificate_is_good_until_the_second_that_it_names(channel: Channel) -> None:
    good = offered(channel)
    assert answer(good, channel.bundle, END - timedelta(seconds=1)) == (200, "")
    for now in (END, END + timedelta(seconds=1)):
        assert answer(good, channel.bundle, now) == (BAD_REQUEST, "broadcast client identity expired")
    early = offered(channel, creator=ORG1.issue("later", "client", not_before=END - timedelta(days=1)))
    assert answer(early, channel.bundle) == (200, "")  # Nobody asks whether it has begun.


def test_sizes_and_ids_are_bounded(channel: Channel) -> None:
    limit = 2000
    size = orderer_pb2.BatchSize(max_message_count=1, absolute_max_bytes=limit, preferred_max_bytes=limit)
    group = channel.tree.groups["Orderer"]
    values = {**group.values, "BatchSize": config_value(size)}
    tree = replace(channel.tree, groups={**channel.tree.groups, "Orderer": replace(group, values=values)})
    bundle = bundle_from_block(genesis_of(tree), CODEC)
    good = offered(channel)

    def sized(count: int) -> Offered:
        return replace(good, payload=bytes(count - len(good.signature)))

    assert answer(sized(limit), bundle) == (FORBIDDEN, DENIED)  # Past the size, stopped by the signature.
    assert answer(sized(limit + 1), bundle) == (
        BAD_REQUEST, "message payload is 2001 bytes and exceeds maximum allowed 2000 bytes"
    )  # fmt: skip
    assert answer(replace(good, payload=b""), bundle) == (BAD_REQUEST, "envelope payload is empty")
    assert answer(offered(channel, tx_id="x" * 64), channel.bundle) == (200, "")
    assert answer(offered(channel, tx_id="x" * 65), channel.bundle)[0] == BAD_REQUEST


def test_what_is_inside_is_not_looked_at(channel: Channel) -> None:
    for parts in ({"data": b"garbage"}, {"kind": 0}, {"kind": 6}, {"epoch": 9}, {"endorsers": ()}, {"tx_id": "wrong"}):
        assert answer(offered(channel, **parts), channel.bundle) == (200, "")


def bundle_with(channel: Channel, *, state: int = 0, writers: SignaturePolicy | None = None) -> Bundle:
    """A channel under maintenance, or whose writers are named by another policy."""
    orderer = channel.tree.groups["Orderer"]
    consensus = config_value(orderer_pb2.ConsensusType(type="etcdraft", state=state))
    orderer = replace(orderer, values={**orderer.values, "ConsensusType": consensus})
    policies = dict(channel.tree.policies)
    if writers is not None:
        policies["Writers"] = config_policy(writers)
    groups = {**channel.tree.groups, "Orderer": orderer}
    return bundle_from_block(genesis_of(replace(channel.tree, groups=groups, policies=policies)), CODEC)


def test_under_maintenance_only_updates_of_the_orderers_are_taken(channel: Channel) -> None:
    bundle = bundle_with(channel, state=1)
    for signer, expected in ((channel.orderer, None), (ORG1.admin, FORBIDDEN)):
        found = offered(channel, creator=signer)
        assert answer(found, bundle)[0] == SERVICE_UNAVAILABLE
        assert update_status(found, bundle) == expected


def update_status(found: Offered, bundle: Bundle) -> int | None:
    try:
        check_config_update(found, bundle, NOW)
    except BroadcastRefused as refusal:
        assert refusal.info.startswith("config update for existing channel did not pass initial checks: ")
        return refusal.status
    return None


def test_a_policy_that_asks_for_nobody_lets_everyone_in_but_nothing_unsigned(channel: Channel) -> None:
    """Every peer refuses a block that holds an envelope without signature: one sender would stop the channel."""
    bundle = bundle_with(channel, writers=SignaturePolicy(0, (OutOf(0, 0),), ()))
    stranger: Signer = shared_organisation("StrangerMSP").client
    found = offered(channel, creator=stranger)
    assert answer(found, bundle) == (200, "")
    assert answer(replace(found, signature=b"garbage"), bundle) == (200, "")
    assert answer(replace(found, signature=b""), bundle) == (BAD_REQUEST, "envelope signature is empty")


@pytest.mark.parametrize("envelope", [b"", b"\xff", b"\x0a\x01\xff", b"\x0a\x00\x12\x01s"])
def test_what_names_no_channel_is_refused(envelope: bytes) -> None:
    with pytest.raises(BroadcastRefused) as refusal:
        read_offered(envelope)
    assert refusal.value.status == BAD_REQUEST
    assert refusal.value.info.startswith("could not determine channel ID: ")
