"""Who may use what: the default lists, those of a channel, and those of the peer itself, by real signatures."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from fabric_protos.peer import configuration_pb2

from ledger.chaincode.values import Timestamp, TransactionContext
from ledger.core.access import CHANNEL_POLICIES, PEER_ROLES, READERS, WRITERS
from ledger.core.channel_config import ConfigGroup
from ledger.core.errors import Forbidden, NotFound
from ledger.core.names import TxId
from ledger.core.policy.ast import MetaRule, Role
from ledger.services.access import Access
from tests.kit.channel import CHANNEL, Channel, config_policy, meta, out_of
from tests.kit.orderer_node import changed, with_values
from tests.kit.organisations import Signer
from tests.kit.peers import ORGANISATIONS, local_msps
from tests.kit.proposals import IMPOSTOR, ORG1, ORG2, STRANGER

PROPOSAL = b"a proposal"


def access(channel: Channel | None = None) -> Access:
    channel = channel or Channel(ORGANISATIONS)
    return Access({CHANNEL: channel}, local_msps(ORG1), "Org1MSP")


def signed_by(signer: Signer, message: bytes = PROPOSAL) -> TransactionContext:
    return TransactionContext(
        TxId("id"), CHANNEL, signer.serialized, Timestamp(0), (), proposal=PROPOSAL, signature=signer.sign(message)
    )


def refusal(
    guard: Access, resource: str, signer: Signer, channel: str = CHANNEL, message: bytes = PROPOSAL
) -> Forbidden:
    with pytest.raises(Forbidden) as found:
        guard.check(resource, channel, signed_by(signer, message))
    return found.value


def with_acls(acls: Mapping[str, str]) -> Channel:
    """A channel with access lists of its own, in which one admin is enough and only admins write."""
    message = configuration_pb2.ACLs()
    for resource, reference in acls.items():
        message.acls[resource].policy_ref = reference

    def opened(group: ConfigGroup) -> ConfigGroup:
        return replace(group, policies={**group.policies, "Admins": meta(MetaRule.ANY, "Admins")})

    tree = changed(Channel(ORGANISATIONS).tree, ["Application"], with_values(ACLs=message))
    return Channel(ORGANISATIONS, tree=changed(tree, ["Application"], opened))


# The channel's resources.


@pytest.mark.parametrize("resource", CHANNEL_POLICIES)
def test_resources_of_a_channel_are_open_to_its_organisations_and_to_nobody_else(resource: str) -> None:
    guard = access()
    for signer in (ORG1.client, ORG1.peer, ORG2.admin):
        guard.check(resource, CHANNEL, signed_by(signer))
    for stranger in (STRANGER.admin, IMPOSTOR):
        error = refusal(guard, resource, stranger)
        assert error.rule == CHANNEL_POLICIES[resource]
        assert error.subject == f"access to {resource} denied"


@pytest.mark.parametrize("resource", CHANNEL_POLICIES)
def test_signature_over_something_else_opens_nothing(resource: str) -> None:
    assert refusal(access(), resource, ORG1.client, message=b"another proposal").rule == CHANNEL_POLICIES[resource]


@pytest.mark.parametrize("resource", CHANNEL_POLICIES)
def test_default_asks_for_readers_or_writers_as_in_fabric(resource: str) -> None:
    """The second organisation's clients read and do not write."""

    def admins_write(group: ConfigGroup) -> ConfigGroup:
        policy = config_policy(out_of(1, ("Org2MSP", Role.ADMIN)))
        return replace(group, policies={**group.policies, "Writers": policy})

    tree = changed(Channel(ORGANISATIONS).tree, ["Application", "Org2"], admins_write)
    guard = access(Channel(ORGANISATIONS, tree=tree))
    writes = resource == "peer/Propose" or resource.startswith(("_lifecycle/", "peer/"))
    assert CHANNEL_POLICIES[resource] == (WRITERS if writes else READERS)
    guard.check(resource, CHANNEL, signed_by(ORG2.admin))
    if writes:
        assert refusal(guard, resource, ORG2.client).rule == WRITERS
    else:
        guard.check(resource, CHANNEL, signed_by(ORG2.client))


@pytest.mark.parametrize(
    ("reference", "path"),
    [
        ("Admins", "/Channel/Application/Admins"),
        ("/Channel/Application/Org1/Admins", "/Channel/Application/Org1/Admins"),
        ("Org1/Admins", "/Channel/Application/Org1/Admins"),
    ],
)
def test_channel_may_name_another_policy_for_a_resource_and_leaves_the_others(reference: str, path: str) -> None:
    guard = access(with_acls({"qscc/GetChainInfo": reference}))
    guard.check("qscc/GetChainInfo", CHANNEL, signed_by(ORG1.admin))
    assert refusal(guard, "qscc/GetChainInfo", ORG1.client).rule == path
    guard.check("qscc/GetBlockByNumber", CHANNEL, signed_by(ORG1.client))


def test_policy_that_does_not_exist_is_satisfied_by_nobody() -> None:
    guard = access(with_acls({"qscc/GetChainInfo": "/Channel/Nothing"}))
    assert refusal(guard, "qscc/GetChainInfo", ORG1.admin).rule == "/Channel/Nothing"


def test_channel_that_this_peer_is_not_in_is_not_found() -> None:
    with pytest.raises(NotFound, match="channel 'nope' not found"):
        access().check("qscc/GetChainInfo", "nope", signed_by(ORG1.client))


def test_unknown_resource_is_open_to_nobody() -> None:
    error = refusal(access(with_acls({"_lifecycle/Nope": "Readers"})), "_lifecycle/Nope", ORG1.admin)
    assert (error.rule, error.subject) == ("access", "Unmapped policy for _lifecycle/Nope")


# The peer's own resources.


@pytest.mark.parametrize("resource", PEER_ROLES)
def test_resources_of_the_peer_are_for_its_own_organisation_whatever_a_channel_says(resource: str) -> None:
    guard = access(with_acls({resource: "/Channel/Application/Readers"}))
    guard.check(resource, CHANNEL, signed_by(ORG1.admin))
    guard.check(resource, "", signed_by(ORG1.admin))
    for stranger in (ORG2.admin, STRANGER.admin, IMPOSTOR):
        error = refusal(guard, resource, stranger)
        assert error.rule == "access" and error.subject == f"access to {resource} denied"
    assert refusal(guard, resource, ORG1.admin, message=b"another proposal").rule == "access"


@pytest.mark.parametrize("resource", PEER_ROLES)
def test_admins_alone_install_and_approve_but_members_see_the_channels(resource: str) -> None:
    guard = access()
    if PEER_ROLES[resource] == Role.MEMBER:
        assert resource == "cscc/GetChannels"
        guard.check(resource, "", signed_by(ORG1.client))
    else:
        error = refusal(guard, resource, ORG1.client)
        assert error.expected == "an admin of Org1MSP"
