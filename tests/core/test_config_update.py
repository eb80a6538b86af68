"""Config updates: versions, read sets and signatures, first in a small tree, then as an orderer applies real ones."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from fabric_protos.common import common_pb2, configtx_pb2

from ledger.core.channel_config import Bundle, ConfigGroup, ConfigPolicy, ConfigValue
from ledger.core.config_update import ConfigUpdate, apply_update
from ledger.core.errors import ChannelStopped, InvalidConfig
from ledger.core.policy.evaluate import SignedData
from ledger.wire.codec import CODEC
from ledger.wire.config import (
    bundle_from_block,
    config_from_update,
    decode_config_envelope,
    decode_config_update,
    encode_group,
    next_bundle,
)
from tests.kit.channel import CHANNEL, Channel, capabilities, channel_tree, genesis_of, organisation_group
from tests.kit.organisations import Signer, shared_organisation
from tests.kit.transactions import config_envelope

ORG1, ORG2, ORDERER = (shared_organisation(each) for each in ("Org1MSP", "Org2MSP", "OrdererMSP"))
TREE = channel_tree((ORG1, ORG2), ORDERER, channel="V2_0", application="V2_0")
BUNDLE = bundle_from_block(genesis_of(TREE), CODEC)
ADMINS = (ORG1.admin, ORG2.admin)


def signed_by(*signers: Signer) -> tuple[SignedData, ...]:
    return tuple(SignedData(b"the update", each.serialized, each.sign(b"the update")) for each in signers)


def group(version: int = 0, mod_policy: str = "Admins", **parts: Mapping[str, Any]) -> ConfigGroup:
    return ConfigGroup(version, mod_policy, **parts)


def value(version: int, content: bytes = b"new", mod_policy: str = "Admins") -> ConfigValue:
    return ConfigValue(version, mod_policy, content)


APPLICATION = TREE.groups["Application"]
ACLS = APPLICATION.values["ACLs"]


def application(found: ConfigGroup) -> ConfigGroup:
    return group(groups={"Application": found})


def update(write: ConfigGroup | None, read: ConfigGroup | None = None, *signers: Signer) -> ConfigUpdate:
    return ConfigUpdate(CHANNEL, read, write, signed_by(*(signers or ADMINS)))


def rule_against(found: ConfigUpdate, bundle: Bundle = BUNDLE) -> str:
    with pytest.raises(InvalidConfig) as refusal:
        apply_update(bundle, found)
    return refusal.value.rule


def rewrite_acls(
    version: int = 1, mod_policy: str = "Admins", read_version: int = 0
) -> tuple[ConfigGroup, ConfigGroup]:
    """Write and read set of an update of one value."""
    write = application(group(values={"ACLs": value(version, b"", mod_policy)}))
    return write, application(group(read_version))


# -- versions and read sets


def test_an_existing_value_is_replaced_at_its_next_version_and_the_rest_stays() -> None:
    after = apply_update(BUNDLE, update(*rewrite_acls()))
    assert after.groups["Application"].values["ACLs"] == value(1, b"")
    changed = replace(APPLICATION, values={**APPLICATION.values, "ACLs": value(1, b"")})
    assert after == replace(TREE, groups={**TREE.groups, "Application": changed})


@pytest.mark.parametrize("version", [0, 2, 3, 2**64 - 1])
def test_no_other_version_than_the_next_one_will_do(version: int) -> None:
    assert rule_against(update(*rewrite_acls(version))) == "version"


def test_a_new_element_begins_at_version_0_and_needs_its_group_to_be_bumped() -> None:
    new = group(
        1, groups=APPLICATION.groups, values={**APPLICATION.values, "New": value(0)}, policies=APPLICATION.policies
    )
    read = application(APPLICATION)
    after = apply_update(BUNDLE, update(application(new), read))
    assert after.groups["Application"].values["New"] == value(0)
    first = replace(new, values={**APPLICATION.values, "New": value(1)})
    assert rule_against(update(application(first), read)) == "version"
    unbumped = replace(new, version=0)
    assert apply_update(BUNDLE, update(application(unbumped), read)) == TREE  # Its group does not name it.


def test_a_group_that_is_bumped_loses_what_it_does_not_name() -> None:
    fewer = {name: each for name, each in APPLICATION.groups.items() if name != "Org2"}
    write = replace(APPLICATION, version=1, groups=fewer)
    after = apply_update(BUNDLE, update(application(write), application(APPLICATION)))
    assert set(after.groups["Application"].groups) == {"Org1"}
    unbumped = replace(write, version=0, values={"ACLs": value(1)})
    kept = apply_update(BUNDLE, update(application(unbumped), application(APPLICATION)))
    assert set(kept.groups["Application"].groups) == {"Org1", "Org2"}  # Not bumped: what it names does not matter.


@pytest.mark.parametrize(
    "read",
    [
        group(1),
        application(group(1)),
        application(group(values={"ACLs": value(1)})),
        application(group(values={"Nothing": value(0)})),
        application(group(groups={"Org9": group()})),
        application(group(policies={"Nothing": ConfigPolicy(0, "Admins", 1, b"")})),
        group(groups={"Elsewhere": group()}),
    ],
)
def test_everything_that_was_read_is_still_there_at_its_version(read: ConfigGroup) -> None:
    write = application(group(values={"ACLs": value(1)}))
    assert rule_against(update(write, read)) == "read set"


def test_the_content_of_what_was_read_does_not_count_only_its_version() -> None:
    read = application(group(mod_policy="", values={"ACLs": value(0, b"whatever", "")}))
    write = application(group(values={"ACLs": value(1, b"")}))
    assert apply_update(BUNDLE, update(write, read)).groups["Application"].values["ACLs"].value == b""


def test_without_a_read_set_every_written_element_is_a_change() -> None:
    """An absent read set is no read set of version 0: even the outermost group has to be bumped then."""
    write, read = rewrite_acls()
    assert rule_against(update(write, None)) == "version"
    assert apply_update(BUNDLE, update(write, read))


@pytest.mark.parametrize(("write", "read"), [(None, None), (None, TREE), (TREE, TREE), (group(), group())])
def test_an_update_that_changes_nothing_is_refused(write: ConfigGroup | None, read: ConfigGroup | None) -> None:
    assert rule_against(update(write, read)) == "empty delta"


def test_an_update_of_another_channel_is_refused() -> None:
    found = replace(update(*rewrite_acls()), channel_id="other")
    assert rule_against(found) == "channel"


# -- who may


def test_the_mod_policy_in_force_decides_not_the_new_one() -> None:
    alone = signed_by(ORG1.admin)
    write = application(group(values={"ACLs": value(1, b"", "/Channel/Readers")}))
    weak = replace(update(write, application(group())), signed=alone)
    with pytest.raises(InvalidConfig) as refusal:
        apply_update(BUNDLE, weak)
    assert refusal.value.rule == "mod_policy satisfied"
    assert "value /Channel/Application/ACLs" in str(refusal.value)
    assert "/Channel/Application/Admins: MAJORITY Admins" in str(refusal.value)
    assert "Org1MSP:admin" in str(refusal.value)


def test_each_changed_element_needs_its_own_policy() -> None:
    org = APPLICATION.groups["Org1"]
    bumped = replace(org, version=1)
    write = application(group(groups={"Org1": bumped}))
    read = application(group(groups={"Org1": org}))
    assert apply_update(BUNDLE, update(write, read, ORG1.admin)).groups["Application"].groups["Org1"].version == 1
    assert rule_against(update(write, read, ORG2.admin)) == "mod_policy satisfied"
    assert rule_against(update(write, read, ORG1.client)) == "mod_policy satisfied"
    both = application(group(groups={"Org1": bumped}, values={"ACLs": value(1)}))
    assert rule_against(update(both, read, ORG1.admin)) == "mod_policy satisfied"
    assert apply_update(BUNDLE, update(both, read))


def test_signatures_of_strangers_bad_ones_and_second_ones_don_t_count() -> None:
    write, read = rewrite_acls()
    stranger = shared_organisation("StrangerMSP").admin
    assert rule_against(update(write, read, ORG1.admin, stranger)) == "mod_policy satisfied"
    assert rule_against(update(write, read, ORG1.admin, ORG1.admin)) == "mod_policy satisfied"
    bad = SignedData(b"the update", ORG2.admin.serialized, ORG2.admin.sign(b"another update"))
    found = replace(update(write, read), signed=(*signed_by(ORG1.admin), bad))
    assert rule_against(found) == "mod_policy satisfied"


@pytest.mark.parametrize(
    "mod_policy", ["", "/", "//", "a//b", "Admins/", "with space", "../Admins", ".", "x" * 250, "/Channel/\n"]
)
def test_a_changed_element_names_a_policy_in_the_form_of_a_path(mod_policy: str) -> None:
    assert rule_against(update(*rewrite_acls(mod_policy=mod_policy))) == "mod_policy"


@pytest.mark.parametrize("key", ["", "a b", "a/b", ".", "..", "x" * 250, "é", "a\n"])
def test_keys_have_fabrics_form(key: str) -> None:
    write = application(group(values={key: value(0)}))
    assert rule_against(update(write, application(group()))) == "config key"


def tree_with_mod_policy(mod_policy: str) -> Bundle:
    acls = replace(ACLS, mod_policy=mod_policy)
    changed = replace(APPLICATION, values={**APPLICATION.values, "ACLs": acls})
    return bundle_from_block(genesis_of(replace(TREE, groups={**TREE.groups, "Application": changed})), CODEC)


@pytest.mark.parametrize(
    ("mod_policy", "signer", "is_taken"),
    [
        ("/Channel/Application/Org1/Admins", ORG1.admin, True),
        ("/Channel/Application/Org1/Admins", ORG2.admin, False),
        ("Org1/Admins", ORG1.admin, True),
        ("Writers", ORG2.client, True),
        ("/Channel/Orderer/Writers", ORG1.admin, False),
        ("Nothing", ORG1.admin, False),
        ("/Elsewhere/Admins", ORG1.admin, False),
        ("", ORG1.admin, False),
    ],
)
def test_a_relative_policy_is_of_the_group_and_an_unknown_one_is_satisfied_by_nobody(
    mod_policy: str, signer: Signer, is_taken: bool
) -> None:
    found = update(*rewrite_acls(), signer)
    bundle = tree_with_mod_policy(mod_policy)
    if is_taken:
        assert apply_update(bundle, found)
    else:
        assert rule_against(found, bundle) == "mod_policy satisfied"


def test_elements_that_old_tools_left_without_policy_get_one_with_the_first_update() -> None:
    """Goal: a channel whose genesis block has such elements goes on.  Method: as Fabric, the result says Admins."""
    names = ("ACLs", "Capabilities")
    values = {name: replace(APPLICATION.values[name], mod_policy="") for name in names}
    bare = replace(APPLICATION, mod_policy="", values=values)
    bundle = bundle_from_block(genesis_of(replace(TREE, groups={**TREE.groups, "Application": bare})), CODEC)
    org = replace(TREE.groups["Application"].groups["Org1"], version=1)
    write = application(group(groups={"Org1": org}))
    read = application(group(groups={"Org1": replace(org, version=0)}))
    after = apply_update(bundle, update(write, read, ORG1.admin)).groups["Application"]
    assert (after.mod_policy, {each.mod_policy for each in after.values.values()}) == ("Admins", {"Admins"})
    assert after.version == 0


# -- updates as they travel


def envelope_of(
    read: ConfigGroup | None, write: ConfigGroup | None, *signers: Signer, channel: str = CHANNEL, kind: int = 2
) -> bytes:
    message = configtx_pb2.ConfigUpdate(
        channel_id=channel,
        read_set=None if read is None else encode_group(read),
        write_set=None if write is None else encode_group(write),
    )
    data = message.SerializeToString()
    signatures = []
    for each in signers:
        header = common_pb2.SignatureHeader(creator=each.serialized, nonce=b"n").SerializeToString()
        signatures.append(configtx_pb2.ConfigSignature(signature_header=header, signature=each.sign(header + data)))
    whole = configtx_pb2.ConfigUpdateEnvelope(config_update=data, signatures=signatures)
    header = common_pb2.Header(
        channel_header=common_pb2.ChannelHeader(type=kind, channel_id=channel).SerializeToString()
    )
    payload = common_pb2.Payload(header=header, data=whole.SerializeToString())
    return bytes(common_pb2.Envelope(payload=payload.SerializeToString()).SerializeToString())


def adding_org3() -> tuple[ConfigGroup, ConfigGroup]:
    """Read and write set that add an organisation."""
    org3 = organisation_group(shared_organisation("Org3MSP"))
    write = replace(APPLICATION, version=1, groups={**APPLICATION.groups, "Org3": org3})
    return application(APPLICATION), application(write)


def test_an_update_survives_the_wire_and_absent_sets_stay_absent() -> None:
    read, write = adding_org3()
    found = decode_config_update(envelope_of(read, write, *ADMINS))
    assert (found.read_set, found.write_set, len(found.signed)) == (read, write, 2)
    empty = decode_config_update(envelope_of(None, None))
    assert (empty.read_set, empty.write_set, empty.signed) == (None, None, ())


def test_only_an_envelope_of_the_right_type_is_an_update() -> None:
    with pytest.raises(InvalidConfig) as refusal:
        decode_config_update(envelope_of(*adding_org3(), *ADMINS, kind=3))
    assert refusal.value.rule == "header type"


def test_what_an_orderer_makes_of_an_update_every_peer_takes() -> None:
    channel = Channel()
    config = config_from_update(channel.bundle, envelope_of(*adding_org3(), *ADMINS), CODEC)
    channel.commit_block(channel.block(config_envelope(CHANNEL, channel.orderer, config)))
    assert channel.bundle.sequence == 1
    assert channel.bundle.organisation_of("Org3MSP") is not None
    assert channel.bundle.msps.is_valid(channel.bundle.msps.deserialize(shared_organisation("Org3MSP").peer.serialized))


@pytest.mark.parametrize("sequence", [0, 2, 7])
def test_the_sequence_goes_up_by_one(sequence: int) -> None:
    config = configtx_pb2.ConfigEnvelope.FromString(
        config_from_update(BUNDLE, envelope_of(*adding_org3(), *ADMINS), CODEC)
    )
    config.config.sequence = sequence
    with pytest.raises(InvalidConfig) as refusal:
        next_bundle(BUNDLE, config.SerializeToString(), CODEC)
    assert (refusal.value.rule, refusal.value.expected, refusal.value.found) == ("sequence", 1, sequence)


def test_a_configuration_is_the_one_that_its_update_leads_to() -> None:
    good = config_from_update(BUNDLE, envelope_of(*adding_org3(), *ADMINS), CODEC)
    without = configtx_pb2.ConfigEnvelope.FromString(good)
    without.ClearField("last_update")
    smuggled = configtx_pb2.ConfigEnvelope.FromString(good)
    smuggled.config.channel_group.groups["Application"].values["ACLs"].value = b"\x0a\x00"
    unsigned = configtx_pb2.ConfigEnvelope.FromString(good)
    unsigned.last_update.ParseFromString(envelope_of(*adding_org3(), ORG1.admin))
    for changed, rule in ((without, "last update"), (smuggled, "last update"), (unsigned, "mod_policy satisfied")):
        with pytest.raises(InvalidConfig) as refusal:
            next_bundle(BUNDLE, changed.SerializeToString(), CODEC)
        assert refusal.value.rule == rule
    assert decode_config_envelope(good).sequence == 1


@pytest.mark.parametrize(
    ("part", "name", "rule"),
    [
        ("Application", "V9_9", "known capability"),
        ("Application", "V1_3", "application capability"),
        ("", "V1_1", "channel capability"),
    ],
)
def test_a_capability_that_is_unknown_or_old_is_refused_by_the_orderer_and_stops_the_peer_before_the_block(
    part: str, name: str, rule: str
) -> None:
    """Goal: a node never commits under rules that it doesn't know.  Method: a block of an orderer that knows them."""
    channel = Channel()
    bumped = group(values={"Capabilities": replace(capabilities(name), version=1)})
    read, write = (application(group()), application(bumped)) if part else (group(), bumped)
    envelope = envelope_of(read, write, *ADMINS, ORDERER.admin)
    with pytest.raises(InvalidConfig) as refusal:
        config_from_update(channel.bundle, envelope, CODEC)
    assert refusal.value.rule == rule
    after = apply_update(channel.bundle, decode_config_update(envelope))
    config = configtx_pb2.ConfigEnvelope(
        config=configtx_pb2.Config(sequence=1, channel_group=encode_group(after)),
        last_update=common_pb2.Envelope.FromString(envelope),
    )
    block = channel.block(config_envelope(CHANNEL, channel.orderer, config.SerializeToString()))
    with pytest.raises(ChannelStopped, match=rule):
        channel.judge(block)
    assert (channel.ledger.height, channel.bundle.sequence) == (1, 0)
