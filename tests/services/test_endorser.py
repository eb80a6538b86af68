"""What does an endorser put its name to, what does it answer instead, what does it refuse?  Real ledger, real pool."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from fabric_protos.peer import (
    chaincode_event_pb2,
    configuration_pb2,
    proposal_pb2,
    proposal_response_pb2,
)
from fabric_protos.peer.lifecycle import lifecycle_pb2

from ledger.chaincode.pool import ContractPool
from ledger.chaincode.values import ChaincodeEvent, ChaincodeResponse, SimulationResult, TransactionContext
from ledger.core.errors import ChannelStopped, Forbidden, InvalidProposal
from ledger.core.policy.ast import MetaRule
from ledger.core.ports import LedgerReader
from ledger.core.proposal import ProposalAnswer
from ledger.services.endorser import Endorser
from ledger.wire.block import encode_block
from ledger.wire.proposal import chaincode_action, read_proposal
from tests.kit.channel import (
    CHANNEL,
    CHANNEL_DEFAULT,
    Channel,
    all_peers,
    any_peer,
    definition_fields,
    definition_writes,
    meta,
)
from tests.kit.orderer_node import NOW, changed, with_values
from tests.kit.peers import ORGANISATIONS, Peer, local_msps, open_peer, running_pool
from tests.kit.proposals import ORG1, ORG2, REFUSALS, WINDOW, ProposalDraft
from tests.kit.transactions import writes

HALF_ORDER = 0x7FFFFFFF800000007FFFFFFFFFFFFFFFDE737D56D38BCF4279DCE5617E3192A8


@pytest.fixture(scope="module")
def pool() -> Iterator[ContractPool]:
    with running_pool() as made:
        yield made


class Pair:
    """Two peers of one channel, which tests commit to by hand."""

    def __init__(self, channel: Channel, peers: list[Peer]) -> None:
        self.channel = channel
        self.first, self.second = peers
        self._peers = peers

    def commit(self, *envelopes: Any) -> None:
        """Commit a block of transactions on both peers."""
        block = self.channel.block(*(each if isinstance(each, bytes) else each.envelope() for each in envelopes))
        self.channel.commit_block(block)
        for peer in self._peers:
            peer.channel.committer.commit([encode_block(block)])

    def define(self, name: str, policy: Any = CHANNEL_DEFAULT) -> None:
        self.commit(self.channel.draft(definition_writes(name, definition_fields(policy=policy)), "_lifecycle"))


@contextlib.contextmanager
def open_pair(directory: Path, channel: Channel, pool: ContractPool) -> Iterator[Pair]:
    genesis = encode_block(channel.genesis)
    with contextlib.ExitStack() as stack:
        peers = [
            stack.enter_context(open_peer(directory / each.msp_id, each, genesis, pool, now=lambda: NOW))
            for each in ORGANISATIONS
        ]
        yield Pair(channel, peers)


@pytest.fixture(scope="module")
def pair(pool: ContractPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with open_pair(tmp_path_factory.mktemp("pair"), Channel(ORGANISATIONS), pool) as made:
        made.define("trial")
        made.define("either", any_peer("Org1MSP", "Org2MSP"))
        made.define("elsewhere", all_peers("Org1MSP", "Org2MSP"))
        yield made


def ask(peer: Peer, draft: ProposalDraft) -> ProposalAnswer:
    return peer.endorser.process(*draft.signed())


def refused(peer: Peer, draft: ProposalDraft) -> InvalidProposal:
    with pytest.raises(InvalidProposal) as found:
        ask(peer, draft)
    return found.value


# What is refused.


@pytest.mark.parametrize("name", REFUSALS)
def test_proposal_that_breaks_a_rule_is_refused_with_its_name_and_fabrics_text(name: str, pair: Pair) -> None:
    refusal = REFUSALS[name]
    with pytest.raises(InvalidProposal) as found:
        pair.first.endorser.process(*refusal.make())
    assert (found.value.rule, found.value.subject) == (refusal.rule, refusal.text)


@pytest.mark.parametrize("at", [NOW - WINDOW, NOW, NOW + WINDOW], ids=["oldest", "now", "newest"])
def test_time_within_the_window_is_good(at: Any, pair: Pair) -> None:
    assert ask(pair.first, ProposalDraft(at=at)).endorsement is not None


def test_transaction_id_that_is_in_the_ledger_is_refused_even_if_that_one_was_invalid(pair: Pair) -> None:
    valid, invalid = ProposalDraft(), ProposalDraft()
    unendorsed = pair.channel.draft(writes("trial", "unendorsed"), "trial", endorsers=(), nonce=invalid.the_nonce())
    pair.commit(pair.channel.draft(writes("trial", "x"), "trial", nonce=valid.the_nonce()), unendorsed)
    for draft in (valid, invalid):
        error = refused(pair.first, draft)
        creator = ORG1.client.serialized.hex()
        assert error.rule == "transaction id used already"
        assert error.subject == f"duplicate transaction found [{draft.id()}]. Creator [{creator}]"


def test_type_config_is_taken_as_fabric_takes_it(pair: Pair) -> None:
    assert ask(pair.first, ProposalDraft(kind=1)).endorsement is not None


# Who may propose.


@pytest.mark.parametrize("reference", ["Admins", "/Channel/Application/Org1/Admins"])
def test_the_channels_own_access_list_says_who_may_propose(reference: str, pool: ContractPool, tmp_path: Path) -> None:
    acls = configuration_pb2.ACLs()
    acls.acls["peer/Propose"].policy_ref = reference
    tree = changed(Channel(ORGANISATIONS).tree, ["Application"], with_values(ACLs=acls))
    tree = changed(tree, ["Application"], any_admin)
    with open_pair(tmp_path, Channel(ORGANISATIONS, tree=tree), pool) as pair:
        with pytest.raises(Forbidden) as found:
            ask(pair.first, ProposalDraft())
        path = reference if reference.startswith("/") else f"/Channel/Application/{reference}"
        assert found.value.rule == path
        assert str(found.value).startswith(f"access to peer/Propose denied: {path}")
        answer = ask(pair.first, ProposalDraft(ORG1.admin))
        assert answer.message.startswith("make sure the chaincode trial has been"), "beyond the access list"
        built_in = ask(pair.first, ProposalDraft(chaincode="qscc", args=("GetChainInfo", CHANNEL)))
        assert built_in.status == 200, "built-in chaincodes have access lists of their own"


def any_admin(group: Any) -> Any:
    """Let one admin be enough, since one proposal has one signature."""
    return replace(group, policies={**group.policies, "Admins": meta(MetaRule.ANY, "Admins")})


# What is answered without an endorsement.


def response_only(answer: ProposalAnswer) -> tuple[int, str]:
    """Status and text of an answer that is nothing else."""
    assert (answer.payload, answer.response_payload, answer.endorsement, answer.namespaces) == (b"", b"", None, ())
    return answer.status, answer.message


ADVICE = f"has been successfully defined on channel {CHANNEL} and try again: "


@pytest.mark.parametrize(
    ("draft", "text"),
    [
        (ProposalDraft(channel="nope"), "channel 'nope' not found"),
        (ProposalDraft(channel="nope", epoch=1, sign=lambda _: b""), "channel 'nope' not found"),
        (ProposalDraft(chaincode="nosuch"), f"make sure the chaincode nosuch {ADVICE}chaincode nosuch not found"),
        (
            ProposalDraft(chaincode="elsewhere"),
            f"make sure the chaincode elsewhere {ADVICE}"
            "chaincode definition for 'elsewhere' exists, but chaincode is not installed",
        ),
        (ProposalDraft(is_init=True), "chaincode 'trial' does not require initialization but called as init"),
    ],
    ids=["unknown channel", "unknown channel before headers", "undefined", "not installed", "init"],
)
def test_simulation_that_comes_to_nothing_is_a_response_of_status_500(
    draft: ProposalDraft, text: str, pair: Pair
) -> None:
    assert response_only(ask(pair.first, draft.but())) == (500, text)


def lifecycle(*args: bytes | str, **parts: Any) -> ProposalDraft:
    return ProposalDraft(chaincode="_lifecycle", args=args, **parts)


def test_lifecycle_refuses_what_it_does_not_know_in_fabrics_words(pair: Pair) -> None:
    answer = ask(pair.first, lifecycle("Nope", b""))
    assert answer.status == 500 and answer.endorsement is None
    unmapped = "Failed to authorize invocation due to failed ACL check: Unmapped policy for _lifecycle/Nope"
    assert answer.message.startswith(unmapped)
    alone = ask(pair.first, lifecycle("QueryChaincodeDefinitions"))
    assert alone.message == "lifecycle scc operations require exactly two arguments but received 1"


# Result rules.


def test_success_is_endorsed_over_payload_and_endorser_with_a_low_s(pair: Pair) -> None:
    draft = ProposalDraft(args=("announce", "key", "happened"))
    answer = ask(pair.first, draft)
    proposal = read_proposal(*draft.signed())
    assert (answer.status, answer.payload, answer.namespaces) == (200, b"put key", ("trial",))
    assert answer.endorsement is not None
    assert answer.endorsement.endorser == pair.first.signer.serialized
    endorser = pair.channel.bundle.msps.deserialize(answer.endorsement.endorser)
    assert endorser.verify(answer.response_payload + answer.endorsement.endorser, answer.endorsement.signature)
    _, s = decode_dss_signature(answer.endorsement.signature)
    assert s <= HALF_ORDER
    payload = proposal_response_pb2.ProposalResponsePayload.FromString(answer.response_payload)
    digest = sha256(proposal.channel_header + proposal.signature_header + proposal.payload).digest()
    assert payload.proposal_hash == digest
    action = chaincode_action(answer.response_payload)
    assert (action.chaincode_id.name, action.chaincode_id.version, action.chaincode_id.path) == ("trial", "1.0", "")
    assert (action.response.status, action.response.payload) == (200, b"put key")
    event = chaincode_event_pb2.ChaincodeEvent.FromString(action.events)
    assert (event.chaincode_id, event.tx_id) == ("trial", draft.id())
    assert (event.event_name, event.payload) == ("happened", b"key")


def test_failure_of_a_chaincode_has_a_payload_but_no_event_and_no_endorsement(pair: Pair) -> None:
    answer = ask(pair.first, ProposalDraft(args=("fail", "no luck")))
    assert answer.status == 500 and "no luck" in answer.message
    assert answer.endorsement is None
    action = chaincode_action(answer.response_payload)
    assert action.response.status == 500 and action.response.message == answer.message
    assert action.events == b""


def test_status_404_is_the_response_alone(pair: Pair) -> None:
    query = lifecycle_pb2.QueryChaincodeDefinitionArgs(name="nosuch").SerializeToString()
    status, message = response_only(ask(pair.first, lifecycle("QueryChaincodeDefinition", query)))
    assert status == 404 and "nosuch" in message


@dataclass
class Answering:
    """Chaincodes of Python's contract API have two statuses; this one has any."""

    status: int

    def simulate(
        self, chaincode: str, transaction: TransactionContext, ledger: LedgerReader | None
    ) -> SimulationResult:
        event = ChaincodeEvent("event", b"") if self.status < 400 else None
        response = ChaincodeResponse(self.status, "message", b"payload", event)
        return SimulationResult(response, b"", chaincode, "1.0", ("trial",))


@pytest.mark.parametrize(
    ("status", "has_payload", "is_endorsed"),
    [
        (0, True, True), (199, True, True), (200, True, True), (399, True, True), (400, False, False),
        (499, False, False), (500, True, False), (777, True, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("channel", [CHANNEL, ""], ids=["channel", "no channel"])
def test_status_decides_which_parts_an_answer_has(
    status: int, has_payload: bool, is_endorsed: bool, channel: str, pair: Pair
) -> None:
    first = pair.first
    endorser = Endorser(first.signer, first.channels, Answering(status), lambda: NOW, local_msps(first.organisation))
    answer = endorser.process(*ProposalDraft(channel=channel).signed())
    assert (answer.status, answer.message, answer.payload) == (status, "message", b"payload")
    assert bool(answer.response_payload) == (has_payload and channel != "")
    assert (answer.endorsement is not None) == (is_endorsed and channel != "")
    assert bool(answer.namespaces) == (has_payload and channel != "")


def test_same_proposal_gives_equal_bytes_on_two_peers_and_two_endorsers(pair: Pair) -> None:
    for args in (
        ("announce", "key", "happened"),
        ("bump", "count"),
        ("get", "nothing"),
        ("through", "either", "k", "v"),
    ):
        draft = ProposalDraft(args=args)
        one, other = ask(pair.first, draft), ask(pair.second, draft)
        assert one.response_payload == other.response_payload != b""
        assert one.endorsement is not None and other.endorsement is not None
        assert (one.endorsement.endorser, other.endorsement.endorser) == (
            pair.first.signer.serialized,
            pair.second.signer.serialized,
        )


def test_transient_data_is_seen_by_the_chaincode_and_by_nobody_else(pair: Pair) -> None:
    draft = ProposalDraft(args=("secret",), transient={"secret": b"for your eyes only"})
    answer = ask(pair.first, draft)
    assert answer.payload == b"for your eyes only"
    bare = draft.but(transient={}, nonce=draft.the_nonce())
    proposal = read_proposal(*draft.signed())
    assert proposal.payload == read_proposal(*bare.signed()).payload, "what is signed has no secret in it"
    assert proposal.hash == read_proposal(*bare.signed()).hash


def test_called_chaincode_is_among_the_namespaces_and_built_in_ones_are_not(pair: Pair) -> None:
    answer = ask(pair.first, ProposalDraft(args=("through", "either", "k", "v")))
    assert (answer.payload, answer.namespaces) == (b"put k", ("either", "trial"))


# Calls without a channel.


def channels_of(peer: Peer, draft: ProposalDraft) -> ProposalAnswer:
    return ask(peer, draft.but(channel="", chaincode="cscc", args=("GetChannels",)))


def test_call_without_channel_is_answered_to_the_own_organisation_without_endorsement(pair: Pair) -> None:
    answer = channels_of(pair.first, ProposalDraft(ORG1.client))
    assert answer.status == 200 and CHANNEL.encode() in answer.payload
    assert (answer.response_payload, answer.endorsement) == (b"", None)


def test_call_without_channel_by_another_organisation_is_refused(pair: Pair) -> None:
    with pytest.raises(InvalidProposal) as found:
        channels_of(pair.first, ProposalDraft(ORG2.client))
    text = "error validating proposal: access denied: channel [] creator org unknown, creator is malformed"
    assert (found.value.rule, found.value.subject) == ("creator identity", text)
    assert channels_of(pair.second, ProposalDraft(ORG2.client)).status == 200


def test_contract_without_channel_is_a_response_of_status_500(pair: Pair) -> None:
    status, message = response_only(ask(pair.first, ProposalDraft(channel="")))
    assert status == 500 and "without a channel" in message


# The channel ends.


def test_stopped_channel_endorses_nothing(pool: ContractPool, tmp_path: Path) -> None:
    with open_pair(tmp_path, Channel(ORGANISATIONS), pool) as pair:
        pair.define("trial")
        assert ask(pair.first, ProposalDraft()).endorsement is not None
        pair.first.channel.halt("what was agreed on differs")
        with pytest.raises(ChannelStopped, match="endorses nothing: what was agreed on differs"):
            ask(pair.first, ProposalDraft())
        assert ask(pair.second, ProposalDraft()).endorsement is not None


def test_header_decides_what_is_called(pair: Pair) -> None:
    """The name in the invocation spec is nothing but decoration."""
    called = proposal_pb2.ChaincodeHeaderExtension()
    called.chaincode_id.name = "either"
    answer = ask(pair.first, ProposalDraft(chaincode="trial", extension=called))
    assert answer.namespaces == ("either",)
    assert chaincode_action(answer.response_payload).chaincode_id.name == "either"
