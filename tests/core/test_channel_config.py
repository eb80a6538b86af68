"""Which configurations a node can work under: every rule of a channel's tree, on real trees with one thing wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from fabric_protos.common import configtx_pb2, configuration_pb2, policies_pb2
from fabric_protos.orderer import configuration_pb2 as orderer_pb2
from fabric_protos.peer import configuration_pb2 as peer_pb2

from ledger.core.channel_config import (
    Bundle,
    ConfigGroup,
    ConfigPolicy,
    ConfigValue,
    check_successor,
    threshold,
)
from ledger.core.encoding import uvarint
from ledger.core.errors import InvalidConfig, PolicyNotSatisfied
from ledger.core.policy.ast import ImplicitMetaPolicy, MetaRule, Role, SignaturePolicy, SignedBy
from ledger.core.policy.evaluate import SignedData
from ledger.wire.codec import CODEC
from ledger.wire.config import bundle_from_block, decode_group, encode_group, go_duration_ms
from ledger.wire.msp import encode_msp_config
from tests.kit.channel import (
    Channel,
    capabilities,
    channel_tree,
    config_policy,
    config_value,
    genesis_of,
    organisation_group,
    out_of,
)
from tests.kit.organisations import shared_organisation

ORG1, ORG2, ORDERER = (shared_organisation(each) for each in ("Org1MSP", "Org2MSP", "OrdererMSP"))
TREE = channel_tree((ORG1, ORG2), ORDERER, channel="V2_0", application="V2_0")
Change = Callable[[ConfigGroup], ConfigGroup]


def at(path: str, change: Change, tree: ConfigGroup = TREE) -> ConfigGroup:
    """Change one group of a tree."""
    first, _, rest = path.strip("/").partition("/")
    if not first:
        return change(tree)
    return replace(tree, groups={**tree.groups, first: at(rest, change, tree.groups[first])})


def value(name: str, found: ConfigValue | None) -> Change:
    """Set a value of a group, or take it away."""

    def change(group: ConfigGroup) -> ConfigGroup:
        kept = {key: each for key, each in group.values.items() if key != name}
        return replace(group, values=kept if found is None else {**kept, name: found})

    return change


def policy(name: str, found: ConfigPolicy) -> Change:
    return lambda group: replace(group, policies={**group.policies, name: found})


def group(name: str, found: ConfigGroup | None) -> Change:
    def change(parent: ConfigGroup) -> ConfigGroup:
        kept = {key: each for key, each in parent.groups.items() if key != name}
        return replace(parent, groups=kept if found is None else {**kept, name: found})

    return change


def bundle_of(tree: ConfigGroup, channel_id: str = "testchannel") -> Bundle:
    return bundle_from_block(genesis_of(tree, channel_id), CODEC)


def rule_against(tree: ConfigGroup, channel_id: str = "testchannel") -> str:
    with pytest.raises(InvalidConfig) as refusal:
        bundle_of(tree, channel_id)
    return refusal.value.rule


def batch(count: int = 10, absolute: int = 1000, preferred: int = 500) -> ConfigValue:
    size = orderer_pb2.BatchSize(max_message_count=count, absolute_max_bytes=absolute, preferred_max_bytes=preferred)
    return config_value(size)


def addresses(*found: str) -> ConfigValue:
    return config_value(configuration_pb2.OrdererAddresses(addresses=found))


GARBAGE = ConfigValue(0, "Admins", b"\xff")
NO_RULE = policies_pb2.Policy(type=1, value=b"")
ORG3 = organisation_group(shared_organisation("Org3MSP"))
MD5 = config_value(configuration_pb2.HashingAlgorithm(name="MD5"))
WITHOUT_ROOTS = ConfigValue(0, "Admins", encode_msp_config(ORG1.msp_config(root_certs=())))
NOBODY = SignaturePolicy(0, (SignedBy(0),), ())
SAME_ID = organisation_group(ORG2, tls_root_certs=())


@pytest.mark.parametrize(
    ("path", "change", "rule"),
    [
        ("", group("Application", None), "channel groups"),
        ("", group("Orderer", None), "channel groups"),
        ("", group("Consortiums", ConfigGroup()), "channel groups"),
        ("", group("Extra", ConfigGroup()), "channel groups"),
        ("Application/Org1", group("Inner", ConfigGroup()), "sub-groups"),
        ("Orderer/OrdererOrg", group("Inner", ConfigGroup()), "sub-groups"),
        ("", value("Capabilities", capabilities("V2_0", "V9_9")), "known capability"),
        ("Orderer", value("Capabilities", capabilities("V2_0", "V3_0")), "known capability"),
        ("Application", value("Capabilities", capabilities("V2_0", "V3_0")), "known capability"),
        ("Application", value("Capabilities", capabilities("V1_4_2")), "application capability"),
        ("Application", value("Capabilities", None), "application capability"),
        ("", value("Capabilities", capabilities("V1_4_2")), "channel capability"),
        ("", value("Capabilities", None), "channel capability"),
        ("Orderer", value("Capabilities", None), "orderer capabilities first"),
        ("", value("Invented", config_value(configuration_pb2.HashingAlgorithm())), "config value"),
        ("Orderer", value("Invented", GARBAGE), "config value"),
        ("Application", value("BatchSize", batch()), "config value"),
        ("Application/Org1", value("Endpoints", addresses("a:1")), "config value"),
        ("Orderer/OrdererOrg", value("AnchorPeers", config_value(peer_pb2.AnchorPeers())), "config value"),
        ("", value("HashingAlgorithm", None), "HashingAlgorithm"),
        ("", value("HashingAlgorithm", MD5), "HashingAlgorithm"),
        ("", value("BlockDataHashingStructure", None), "BlockDataHashingStructure"),
        ("", value("BlockDataHashingStructure", GARBAGE), "config message"),
        ("Orderer", value("BatchSize", None), "BatchSize.max_message_count"),
        ("Orderer", value("BatchSize", batch(count=0)), "BatchSize.max_message_count"),
        ("Orderer", value("BatchSize", batch(absolute=0)), "BatchSize.absolute_max_bytes"),
        ("Orderer", value("BatchSize", batch(preferred=0)), "BatchSize.preferred_max_bytes"),
        ("Orderer", value("BatchSize", batch(preferred=1001)), "BatchSize.preferred_max_bytes"),
        ("Orderer", value("BatchTimeout", None), "BatchTimeout"),
        ("Orderer", value("BatchTimeout", config_value(orderer_pb2.BatchTimeout(timeout="0s"))), "BatchTimeout"),
        ("Orderer", value("BatchTimeout", config_value(orderer_pb2.BatchTimeout(timeout="soon"))), "Go duration"),
        ("Application/Org1", value("MSP", None), "MSP"),
        ("Application/Org1", value("MSP", GARBAGE), "MSP message"),
        ("Application/Org1", value("MSP", WITHOUT_ROOTS), "MSP root certificates"),
        ("Application", group("Twin", SAME_ID), "MSP ID"),
        ("", policy("Readers", ConfigPolicy(0, "Admins", None, b"")), "policy type"),
        ("", policy("Readers", ConfigPolicy(0, "Admins", 2, b"")), "policy type"),
        ("", policy("Readers", ConfigPolicy(0, "Admins", 3, b"\xff")), "policy message"),
        ("", policy("Readers", ConfigPolicy(0, "Admins", 1, b"\xff")), "policy message"),
        ("", policy("Readers", ConfigPolicy(0, "Admins", NO_RULE.type, NO_RULE.value)), "signature policy"),
        ("", policy("Readers", config_policy(replace(NOBODY, version=1))), "policy version"),
        ("Application/Org1", policy("New", config_policy(NOBODY)), "signature policy"),
    ],
)  # fmt: skip
def test_a_configuration_that_breaks_a_rule_is_refused_by_its_name(path: str, change: Change, rule: str) -> None:
    assert rule_against(at(path, change)) == rule


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("", lambda tree: tree),
        ("", value("Capabilities", capabilities("V1_4_3"))),
        ("", value("Capabilities", capabilities("V1_1", "V1_3", "V2_0"))),
        ("Application", value("Capabilities", capabilities("V2_5"))),
        ("Orderer", value("Capabilities", capabilities())),
        ("", value("HashingAlgorithm", config_value(configuration_pb2.HashingAlgorithm(name="SHA3_256")))),
        ("", value("OrdererAddresses", addresses("orderer:7050"))),
        ("", value("Consortium", config_value(configuration_pb2.Consortium(name="any")))),
        ("Orderer", value("KafkaBrokers", config_value(orderer_pb2.KafkaBrokers()))),
        ("Orderer", value("BatchSize", batch(preferred=1000))),
        ("Application", group("Org3", ORG3)),
        ("Application", group("Same", organisation_group(ORG2))),
        ("Application", policy("Checkpoint", config_policy(out_of(1, ("Org1MSP", Role.PEER))))),
        ("Application", policy("Odd", config_policy(ImplicitMetaPolicy("Writers", 7)))),
        ("Application/Org1", policy("Nobody", config_policy(out_of(9, ("NobodyMSP", Role.PEER))))),
    ],
)
def test_a_configuration_that_fabric_works_under_is_taken(path: str, change: Change) -> None:
    assert bundle_of(at(path, change)).sequence == 0


@pytest.mark.parametrize("channel_id", ["", "Upper", "1st", "-x", "a_b", "x" * 250])
def test_a_channel_has_a_name_that_fabric_takes(channel_id: str) -> None:
    assert rule_against(TREE, channel_id) == "channel id"
    assert bundle_of(TREE, "a.b-c" + "1" * 244).channel_id.endswith("1")


V3 = channel_tree((ORG1, ORG2), ORDERER, channel="V3_0", application="V2_5")


def test_under_v3_addresses_belong_to_organisations() -> None:
    assert rule_against(at("", value("OrdererAddresses", addresses("a:1")), V3)) == "OrdererAddresses"
    assert bundle_of(at("", value("OrdererAddresses", addresses()), V3)).channel_capabilities == {"V3_0"}
    assert rule_against(at("Orderer/OrdererOrg", value("Endpoints", None), V3)) == "Endpoints"
    assert bundle_of(at("Orderer/OrdererOrg", value("Endpoints", None))).orderer.organisations[0].endpoints == ()


def test_ed25519_is_for_members_from_v3_on() -> None:
    signer = ORG1.issue_odd("ed", ("peer",), key=ed25519.Ed25519PrivateKey.generate())
    for tree, is_valid in ((TREE, False), (V3, True)):
        msps = bundle_of(tree).msps
        identity = msps.deserialize(signer.serialized)
        assert msps.is_valid(identity) is is_valid
        assert identity.verify(b"m", signer.sign(b"m"))


GATES_MAX = 4999
"""Gates in each other that make 10,000 nested messages."""


def encode_deep_policy(gates: int) -> bytes:
    """A policy of so many gates in each other, each "zero of one"."""
    rule = b"\x08\x00"
    for _ in range(gates):
        gate = b"\x12" + uvarint(len(rule)) + rule
        rule = b"\x12" + uvarint(len(gate)) + gate
    return b"\x12" + uvarint(len(rule)) + rule + b"\x1a\x00"


def test_a_policy_may_nest_deeper_than_the_librarys_parser_goes() -> None:
    deep, too_deep = (ConfigPolicy(0, "Admins", 1, encode_deep_policy(gates)) for gates in (GATES_MAX, GATES_MAX + 1))
    assert bundle_of(at("", policy("Deep", deep))).has_policy("/Channel/Deep")
    assert rule_against(at("", policy("Deep", too_deep))) == "policy message"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2s", 2000), ("500ms", 500), ("1m30s", 90_000), ("1.5h", 5_400_000), ("1.s", 1000), (".5s", 500),
        ("+1s", 1000), ("1us", 1), ("1ns", 1), ("250µs", 1), ("0s", 0), ("1h1m1s1ms", 3_661_001),
    ],
)  # fmt: skip
def test_durations_are_read_as_go_writes_them(text: str, milliseconds: int) -> None:
    assert go_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "2", "s", "2 s", "2sec", "--1s", "1s x", ".s", "1e3s"])
def test_what_is_no_duration_to_go_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        go_duration_ms(text)
    assert refusal.value.rule == "Go duration"


# -- what a bundle answers


@pytest.mark.parametrize(
    ("rule", "thresholds"),
    [(MetaRule.ANY, [0, 1, 1, 1, 1]), (MetaRule.ALL, [0, 1, 2, 3, 4]), (MetaRule.MAJORITY, [0, 1, 2, 2, 3])],
)
def test_a_meta_rule_asks_for_so_many(rule: MetaRule, thresholds: list[int]) -> None:
    assert [threshold(rule, count) for count in range(5)] == thresholds


def test_policies_are_found_by_their_path_and_a_refusal_names_it_with_who_signed() -> None:
    bundle = Channel().bundle
    admins = [SignedData(b"m", each.admin.serialized, each.admin.sign(b"m")) for each in (ORG1, ORG2)]
    bundle.check("/Channel/Application/Admins", admins)
    with pytest.raises(PolicyNotSatisfied) as refusal:
        bundle.check("/Channel/Application/Admins", admins[:1])
    assert refusal.value.rule == "/Channel/Application/Admins"
    assert (refusal.value.expected, refusal.value.found) == ("MAJORITY Admins", ["Org1MSP:admin"])
    with pytest.raises(PolicyNotSatisfied) as refusal:
        bundle.check("/Channel/Nothing", admins)
    assert refusal.value.expected == "a policy at this path"


def test_an_access_rule_names_a_policy_of_the_application_unless_it_is_a_path() -> None:
    acls = peer_pb2.ACLs()
    acls.acls["event/Block"].policy_ref = "Readers"
    acls.acls["peer/Propose"].policy_ref = "/Channel/Writers"
    bundle = bundle_of(at("Application", value("ACLs", config_value(acls))))
    assert bundle.acl_path("event/Block", "/x") == "/Channel/Application/Readers"
    assert bundle.acl_path("peer/Propose", "/x") == "/Channel/Writers"
    assert bundle.acl_path("qscc/GetChainInfo", "/Channel/Application/Readers") == "/Channel/Application/Readers"


def test_an_organisation_is_found_by_its_msp_not_by_the_name_of_its_group() -> None:
    bundle = bundle_of(TREE)
    assert bundle.organisation_of("Org1MSP") is not None
    assert bundle.organisation_of("Org1") is None
    assert bundle.organisation_of("OrdererMSP") is None


def test_a_tree_survives_the_wire_whatever_the_order_of_its_maps() -> None:
    message = encode_group(TREE)
    shuffled = configtx_pb2.ConfigGroup()
    for name in sorted(message.groups, reverse=True):
        shuffled.groups[name].CopyFrom(message.groups[name])
    for name in sorted(message.values, reverse=True):
        shuffled.values[name].CopyFrom(message.values[name])
    for name in sorted(message.policies, reverse=True):
        shuffled.policies[name].CopyFrom(message.policies[name])
    shuffled.version, shuffled.mod_policy = message.version, message.mod_policy
    assert decode_group(configtx_pb2.ConfigGroup.FromString(shuffled.SerializeToString())) == TREE


# -- one configuration after the other


def test_an_organisation_keeps_its_msp_id_and_a_new_one_may_have_any() -> None:
    before = bundle_of(TREE).config
    moved = bundle_of(at("Application", group("Org1", ORG3))).config
    with pytest.raises(InvalidConfig) as refusal:
        check_successor(before, moved)
    assert refusal.value.rule == "MSP ID change"
    check_successor(before, bundle_of(at("Application", group("Org3", ORG3))).config)
    check_successor(before, bundle_of(at("Application", group("Org2", None))).config)


@pytest.mark.parametrize(("states", "is_taken"), [((0, 0), False), ((1, 0), False), ((0, 1), False), ((1, 1), True)])
def test_the_consensus_type_changes_under_maintenance_only(states: tuple[int, int], is_taken: bool) -> None:
    def with_consensus(kind: str, state: int) -> Any:
        consensus = config_value(orderer_pb2.ConsensusType(type=kind, state=state))
        return bundle_of(at("Orderer", value("ConsensusType", consensus))).config

    before, after = with_consensus("etcdraft", states[0]), with_consensus("BFT", states[1])
    if is_taken:
        check_successor(before, after)
        return
    with pytest.raises(InvalidConfig) as refusal:
        check_successor(before, after)
    assert refusal.value.rule == "consensus type change"
