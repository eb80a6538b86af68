"""The auditor's own rules against the node's: real Fabric configurations, odd certificates, policies made at random."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ledger.core.block import Block
from ledger.core.channel_config import Bundle, ConfigGroup
from ledger.core.errors import InvalidBlock, InvalidIdentity
from ledger.core.orderer_signatures import check_orderer_signatures
from ledger.core.policy import evaluate
from ledger.core.policy.ast import Node, OutOf, Role, RolePrincipal, SignaturePolicy, SignedBy
from ledger.storage.msp_folder import serialize_identity
from ledger.wire.block import decode_block, encode_block, is_config_block
from ledger.wire.codec import CODEC
from ledger.wire.config import bundle_from_block
from ledger.wire.orderer_metadata import orderer_metadata
from ledger.wire.policy import encode_signature_policy
from ledger.wire.proofs import follow_trail, unsigned_slots_left_out
from tests.core.test_orderer_signatures import BLOCK, ORDERERS, bft_tree, identified, signature, with_slot_0
from tests.kit.auditor import auditor
from tests.kit.channel import Channel, genesis_of
from tests.kit.organisations import START, Organisation, Signer, make_organisation, pem
from tests.kit.outcomes import genesis_block, recorded_blocks
from tests.kit.proven import update_envelope


def configuration(genesis: Block) -> Any:
    return auditor().Block.decode(encode_block(genesis)).config()


# Configurations.


@pytest.mark.parametrize(("channel", "count"), [("mini", 0), ("rich", 24)])
def test_both_follow_the_trail_of_a_real_channel(channel: str, count: int) -> None:
    """Goal: Fabric's own configurations and updates.  Method: the config blocks recorded from its orderers."""
    genesis = genesis_block(channel)
    found = [decode_block(raw) for raw in recorded_blocks(channel)]
    blocks = tuple(unsigned_slots_left_out(block) for block in found if block.number and is_config_block(block))
    ours = follow_trail(decode_block(genesis), blocks)
    theirs = auditor().Trail(genesis, [encode_block(block) for block in blocks])
    assert len(blocks) == count
    assert [(step.number, step.envelope_digest) for step in ours.steps] == [step[:2] for step in theirs.steps]
    assert (ours.genesis_block, ours.genesis_vblock) == (theirs.genesis_hash, theirs.genesis_vblock)


@pytest.mark.parametrize("number", [2, 3, 4, 12, 23])
def test_a_trail_that_lacks_a_real_config_block_breaks_at_the_next(number: int) -> None:
    found = [decode_block(raw) for raw in recorded_blocks("rich")]
    blocks = [encode_block(unsigned_slots_left_out(one)) for one in found if one.number and is_config_block(one)]
    with pytest.raises(auditor().Refused) as refusal:
        auditor().Trail(genesis_block("rich"), blocks[: number - 1] + blocks[number:])
    assert refusal.value.rule in ("sequence", "orderer signatures")


CHANNEL = Channel()
ADMINS = tuple(each.admin for each in CHANNEL.organisations)
APPLICATION = CHANNEL.tree.groups["Application"]


def bumped(version: int = 1, mod_policy: str = "Admins") -> ConfigGroup:
    value = replace(APPLICATION.values["ACLs"], version=version, mod_policy=mod_policy)
    return ConfigGroup(groups={"Application": ConfigGroup(values={"ACLs": value})})


READ = ConfigGroup(groups={"Application": ConfigGroup()})


@pytest.mark.parametrize(
    ("read", "write", "signers", "rule"),
    [
        (READ, bumped(), ADMINS, None),
        (READ, bumped(), ADMINS[:1], "mod_policy satisfied"),
        (READ, bumped(), ADMINS[:1] * 2, "mod_policy satisfied"),
        (READ, bumped(), CHANNEL.peers, "mod_policy satisfied"),
        (READ, bumped(2), ADMINS, "version"),
        (READ, bumped(0), ADMINS, "version"),
        (READ, bumped(mod_policy=""), ADMINS, "mod_policy"),
        (READ, bumped(mod_policy="a//b"), ADMINS, "mod_policy"),
        (READ, READ, ADMINS, "config update"),
        (ConfigGroup(version=7), bumped(), ADMINS, "config update"),
    ],
)
def test_update_applies_only_with_its_admins_and_the_next_version(
    read: ConfigGroup, write: ConfigGroup, signers: tuple[Signer, ...], rule: str | None
) -> None:
    before, envelope = configuration(CHANNEL.genesis), update_envelope(CHANNEL, read, write, signers)
    if rule is None:
        after = auditor().apply_update(before, envelope)
        assert after["groups"]["Application"]["values"]["ACLs"]["version"] == 1
        return
    with pytest.raises(auditor().Refused) as refusal:
        auditor().apply_update(before, envelope)
    assert refusal.value.rule == rule


# Orderers.


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("capability", ["V2_0", "V3_0"])
@pytest.mark.parametrize("is_named", [False, True])
def test_both_count_orderers_the_same(count: int, capability: str, is_named: bool) -> None:
    """Goal: Raft's form and that of BFT.  Method: three of four have to sign, by number or by name."""
    genesis = genesis_of(bft_tree(capability))
    bundle = bundle_from_block(genesis, CODEC)
    signed = [signature(one, BLOCK) if is_named else identified(at + 1, one) for at, one in enumerate(ORDERERS)]
    block = with_slot_0(BLOCK, *signed[:count], signed[0] if count else identified(9, ORDERERS[0]))
    header = block.header
    theirs = auditor().Block(header.number, header.previous_hash, header.data_hash, (), block.metadata[0])
    expected = count >= 3 and (is_named or capability == "V3_0")
    try:
        check_orderer_signatures(block, orderer_metadata(block, bundle), bundle)
    except InvalidBlock:
        assert not expected
    else:
        assert expected
    try:
        assert theirs.check_orderers(configuration(genesis)) == 0
    except auditor().Refused as refusal:
        assert (expected, refusal.rule) == (False, "orderer signatures")
    else:
        assert expected


# Members.

ORG = make_organisation("Org1MSP", intermediate=True)
DAY = timedelta(days=1)


def issued(*units: str, **options: Any) -> Callable[[Organisation], bytes]:
    return lambda org: org.issue_odd("somebody", units, **options).certificate


def revoked(org: Organisation) -> bytes:
    return org.revoked[0]


ODD: dict[str, Callable[[Organisation], bytes]] = {
    "peer": issued("peer"),
    "admin": issued("admin"),
    "no unit": issued(),
    "foreign unit": issued("department"),
    "two roles": issued("peer", "client"),
    "a role and another unit": issued("department", "peer"),
    "the same role twice": issued("peer", "peer"),
    "a CA": issued("peer", ca=True),
    "another curve": issued("peer", key=ec.generate_private_key(ec.SECP384R1())),
    "Ed25519": issued("peer", key=ed25519.Ed25519PrivateKey.generate()),
    "RSA": issued("peer", key=rsa.generate_private_key(65537, 2048)),
    "expired": issued("peer", not_after=START + DAY),
    "before its CA": issued("peer", not_before=START - DAY),
    "issued by the root": issued("peer", issuer=ORG.root),
    "issued by a stranger": issued("peer", issuer=make_organisation("Org1MSP").root),
    "revoked": revoked,
    "the root": lambda org: pem(org.root.certificate),
    "the intermediate": lambda org: pem(org.issuer.certificate),
    "no certificate": lambda org: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "no PEM": lambda org: b"none",
}


@pytest.fixture(scope="module")
def both() -> tuple[Bundle, Any]:
    """A configuration with an organisation that has an intermediate CA and a revoked peer, as both see it."""
    ORG.revoked.append(ORG.issue_odd("gone", ("peer",)).certificate)
    genesis = Channel((ORG, make_organisation("Org2MSP"))).genesis
    return bundle_from_block(genesis, CODEC), configuration(genesis)


@pytest.mark.parametrize("name", ODD)
def test_both_judge_an_odd_certificate_the_same(name: str, both: tuple[Bundle, Any]) -> None:
    bundle, theirs = both
    serialized = serialize_identity("Org1MSP", ODD[name](ORG))
    try:
        identity = bundle.msps.deserialize(serialized)
        expected = [role for role in Role if bundle.msps.satisfies(identity, RolePrincipal("Org1MSP", role))]
    except InvalidIdentity:
        expected = []
    try:
        member = theirs.member(serialized)
        found = [role for role in Role if member.organisation.has_role(member, int(role))]
    except auditor().Refused:
        found = []
    assert found == expected
    is_fine = name in {"peer", "admin", "a role and another unit", "another curve", "expired"}
    assert bool(found) == is_fine


# Policies.


def random_policy(source: random.Random, principals: tuple[RolePrincipal, ...]) -> SignaturePolicy:
    def rule(depth: int) -> list[Node]:
        if depth == 0 or source.random() < 0.4:
            return [SignedBy(source.randrange(len(principals)))]
        inner = [rule(depth - 1) for _ in range(source.randrange(1, 4))]
        return [OutOf(source.randrange(len(inner) + 1), len(inner)), *(node for one in inner for node in one)]

    return SignaturePolicy(0, tuple(rule(3)), principals)


def test_both_evaluate_policies_the_same() -> None:
    """Goal: greedy, in order, no going back.  Method: random rules over random signers, in random order."""
    organisations = [make_organisation(f"Org{number}MSP") for number in (1, 2, 3)]
    genesis = Channel(organisations).genesis
    bundle, theirs = bundle_from_block(genesis, CODEC), configuration(genesis)
    principals = tuple(RolePrincipal(org.msp_id, role) for org in organisations for role in (Role.MEMBER, Role.PEER))
    signers = [org.issue(f"s{at}", role) for org in organisations for at, role in enumerate(("peer", "peer", "client"))]
    ours = {one.serialized: bundle.msps.deserialize(one.serialized) for one in signers}
    members = {one.serialized: theirs.member(one.serialized) for one in signers}
    seed = random.SystemRandom().randrange(2**32)
    source, results = random.Random(seed), []
    for _ in range(400):
        policy = random_policy(source, principals)
        chosen = [one.serialized for one in source.sample(signers, source.randrange(6))]
        expected = evaluate.satisfies(policy, [ours[one] for one in chosen], bundle.msps)
        _, tree, found = auditor().read_policy("policy", 1, encode_signature_policy(policy))
        assert auditor().holds(tree, found, [members[one] for one in chosen], set(), theirs) == expected, f"seed {seed}"
        results.append(expected)
    assert 20 < sum(results) < 380
