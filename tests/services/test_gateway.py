"""Whom does a gateway ask, what does it make of the answers, what does it tell its client?  Real peers and orderer."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from fabric_protos.common import common_pb2
from fabric_protos.gateway import gateway_pb2
from fabric_protos.peer import transaction_pb2

from ledger.chaincode.pool import ContractPool
from ledger.client.endorser import RemoteEndorser
from ledger.client.gateway import Gateway as GatewayClient
from ledger.client.gateway import commit_definition
from ledger.client.orderer import OrdererClient
from ledger.core.errors import Busy
from ledger.core.names import TxId, Verdict
from ledger.core.policy.evaluate import SignedData
from ledger.core.proposal import ProposalAnswer
from ledger.services import gateway as module
from ledger.services.events import Committed
from ledger.services.gateway import (
    FIRST_FAILED,
    MORE_FAILED,
    NO_PLAN,
    ROUNDS_MAX,
    AsksEndorser,
    Code,
    Gateway,
    GatewayRefused,
    NodeFault,
    OwnEndorser,
)
from ledger.wire.block import encode_block
from ledger.wire.proposal import encode_envelope, result_of
from tests.kit.channel import CHANNEL, Channel
from tests.kit.organisations import Signer
from tests.kit.peers import (
    ORGANISATIONS,
    PeerNetwork,
    client_tls,
    commits_held,
    open_peer,
    running_network,
    running_pool,
)
from tests.kit.proposals import ORG1, ORG2, STRANGER, ProposalDraft

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEAD = "localhost:1"
"""Where nobody listens."""

POLICIES = {
    "trial": None,
    "either": "OR('Org1MSP.peer','Org2MSP.peer')",
    "second": "OR('Org2MSP.peer')",
    "two": "OutOf(2,'Org1MSP.peer','Org2MSP.peer','Org3MSP.peer')",
    "nobody": "OR('Org3MSP.peer')",
}
"""What the contracts of these tests ask for; without a policy it is the channel's: a majority, here both."""


@pytest.fixture(scope="module")
def pool() -> Iterator[ContractPool]:
    with running_pool() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def network(pool: ContractPool, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PeerNetwork]:
    async with running_network(tmp_path_factory.mktemp("network"), pool) as made:
        client = GatewayClient(made.first.address, ORG1.client, client_tls())
        channel = client.network(CHANNEL)
        await asyncio.gather(*(commit_definition(channel, name, policy=policy) for name, policy in POLICIES.items()))
        await client.close()
        await made.level()
        yield made


@dataclass
class Watched:
    """A peer of another organisation that counts how often it is asked."""

    peer: AsksEndorser
    before: Callable[[int], Awaitable[None]] | None = None
    asked: int = 0

    @property
    def name(self) -> str:
        return self.peer.name

    @property
    def msp_id(self) -> str:
        return self.peer.msp_id

    @property
    def address(self) -> str:
        return self.peer.address

    async def endorse(self, signed: bytes, signature: bytes, timeout_s: float) -> ProposalAnswer:
        self.asked += 1
        if self.before is not None:
            await self.before(self.asked)
        return await self.peer.endorse(signed, signature, timeout_s)


@pytest_asyncio.fixture(loop_scope="module")
async def dead() -> AsyncIterator[RemoteEndorser]:
    """A peer of the second organisation that is down."""
    remote = RemoteEndorser("dead", "Org2MSP", DEAD, client_tls())
    yield remote
    await remote.close()


def draft(*args: str, chaincode: str = "trial", **parts: Any) -> ProposalDraft:
    return ProposalDraft(
        chaincode=chaincode, args=args or ("put", "key", "value"), at=datetime.datetime.now(datetime.UTC), **parts
    )


def endorsers_in(payload: bytes) -> list[bytes]:
    """Who endorsed the transaction in a payload."""
    transaction = transaction_pb2.Transaction.FromString(common_pb2.Payload.FromString(payload).data)
    (one,) = transaction.actions
    action = transaction_pb2.ChaincodeActionPayload.FromString(one.payload).action
    return [each.endorser for each in action.endorsements]


PEERS = [organisation.peer.serialized for organisation in ORGANISATIONS]


async def refused(call: Awaitable[Any]) -> GatewayRefused:
    with pytest.raises(GatewayRefused) as found:
        await call
    return found.value


async def submitted(
    network: PeerNetwork, proposal: ProposalDraft, payload: bytes, signer: Signer | None = None
) -> Committed:
    """Sign, submit and wait for the verdict, all through the first peer's gateway."""
    signature = (signer or ORG1.client).sign(payload)
    await network.gateway.submit(CHANNEL, encode_envelope(payload, signature))
    return await status(network.gateway, proposal.id())


def status(gateway: Gateway, tx_id: str, signer: Signer | None = None) -> Awaitable[Committed]:
    signer = signer or ORG1.client
    request = gateway_pb2.CommitStatusRequest(
        transaction_id=tx_id, channel_id=CHANNEL, identity=signer.serialized
    ).SerializeToString()
    return gateway.commit_status(CHANNEL, tx_id, SignedData(request, signer.serialized, signer.sign(request)))


# Endorse.


async def test_majority_of_two_organisations_is_collected_from_the_other_ones_peer(network: PeerNetwork) -> None:
    proposal = draft("put", "key", "value")
    payload = await network.gateway.endorse(*proposal.signed())
    assert endorsers_in(payload) == PEERS
    assert result_of(payload) == b"put key"
    header = common_pb2.Payload.FromString(payload).header
    assert header.channel_header == proposal.the_channel_header(), "the headers stay as they were signed"
    assert (await submitted(network, proposal, payload)).verdict == Verdict.VALID


async def test_policy_of_either_organisation_asks_the_own_peer_only(network: PeerNetwork) -> None:
    other = Watched(network.to_second)
    proposal = draft(chaincode="either")
    payload = await network.first.gateway(other).endorse(*proposal.signed())
    assert (endorsers_in(payload), other.asked) == (PEERS[:1], 0)
    assert (await submitted(network, proposal, payload)).verdict == Verdict.VALID


async def test_policies_of_all_chaincodes_that_are_touched_hold(network: PeerNetwork) -> None:
    """One organisation would do for the chaincode that is called; the one that it calls needs the other one."""
    proposal = draft("through", "second", "key", "value", chaincode="either")
    payload = await network.gateway.endorse(*proposal.signed())
    assert endorsers_in(payload) == PEERS
    assert (await submitted(network, proposal, payload)).verdict == Verdict.VALID


async def test_policy_without_the_own_organisation_is_met_by_the_other_one(network: PeerNetwork) -> None:
    proposal = draft(chaincode="second")
    payload = await network.gateway.endorse(*proposal.signed())
    assert PEERS[1] in endorsers_in(payload)
    assert (await submitted(network, proposal, payload)).verdict == Verdict.VALID


@pytest.mark.parametrize(
    ("organisations", "expected"),
    [(("Org2MSP",), PEERS[1:]), (("Org1MSP",), PEERS[:1]), (("Org2MSP", "Org1MSP"), PEERS[::-1])],
    ids=["other", "own", "both"],
)
async def test_client_may_name_the_organisations(
    organisations: Sequence[str], expected: list[bytes], network: PeerNetwork
) -> None:
    payload = await network.gateway.endorse(*draft().signed(), organisations)
    assert endorsers_in(payload) == expected


async def test_organisation_without_a_peer_is_unavailable(network: PeerNetwork) -> None:
    error = await refused(network.gateway.endorse(*draft().signed(), ("Org1MSP", "Org3MSP", "Org4MSP")))
    assert error.code is Code.UNAVAILABLE
    assert error.message == "failed to find any endorsing peers for org(s): Org3MSP, Org4MSP"


async def test_second_peer_of_an_organisation_stands_in_for_one_that_is_down(
    network: PeerNetwork, dead: RemoteEndorser
) -> None:
    gateway = network.first.gateway(dead, network.to_second)
    assert endorsers_in(await gateway.endorse(*draft().signed())) == PEERS
    assert endorsers_in(await gateway.endorse(*draft().signed(), ("Org2MSP",))) == PEERS[1:]


async def test_another_organisation_takes_the_place_of_one_that_is_down(network: PeerNetwork) -> None:
    """Two of three will do, and the one that is planned for first is down."""
    third = RemoteEndorser("third", "Org3MSP", DEAD, client_tls())
    proposal = draft(chaincode="two")
    payload = await network.first.gateway(third, network.to_second).endorse(*proposal.signed())
    assert endorsers_in(payload) == PEERS
    assert (await submitted(network, proposal, payload)).verdict == Verdict.VALID
    error = await refused(network.first.gateway(third).endorse(*proposal.but().signed()))
    assert (error.code, [fault.msp_id for fault in error.faults]) == (Code.ABORTED, ["Org3MSP"])
    await third.close()


async def test_organisation_that_is_down_aborts_and_is_named(network: PeerNetwork, dead: RemoteEndorser) -> None:
    error = await refused(network.first.gateway(dead).endorse(*draft().signed()))
    assert (error.code, error.message) == (Code.ABORTED, MORE_FAILED)
    (fault,) = error.faults
    assert (fault.address, fault.msp_id) == (DEAD, "Org2MSP")
    assert fault.message.startswith("peer dead: UNAVAILABLE")
    named = await refused(network.first.gateway(dead).endorse(*draft().signed(), ("Org1MSP", "Org2MSP")))
    assert (named.code, named.message, len(named.faults)) == (Code.ABORTED, MORE_FAILED, 1)


async def test_policy_that_known_organisations_cannot_meet_has_no_plan(network: PeerNetwork) -> None:
    alone = await refused(network.first.gateway().endorse(*draft().signed()))
    assert (alone.code, alone.message, alone.faults) == (Code.FAILED_PRECONDITION, NO_PLAN, ())
    nobody = await refused(network.gateway.endorse(*draft(chaincode="nobody").signed()))
    assert (nobody.code, nobody.message) == (Code.FAILED_PRECONDITION, NO_PLAN)


async def test_failure_of_the_chaincode_is_the_clients_and_nobody_else_is_asked(network: PeerNetwork) -> None:
    other = Watched(network.to_second)
    error = await refused(network.first.gateway(other).endorse(*draft("fail", "no luck").signed()))
    assert (error.code, error.message, other.asked) == (Code.ABORTED, FIRST_FAILED, 0)
    (fault,) = error.faults
    assert (fault.address, fault.msp_id) == (network.first.address, "Org1MSP")
    assert fault.message.startswith("chaincode response 500, ") and "no luck" in fault.message


async def test_undefined_chaincode_says_so_in_the_details(network: PeerNetwork) -> None:
    error = await refused(network.gateway.endorse(*draft(chaincode="nosuch").signed()))
    assert (error.code, error.message) == (Code.ABORTED, FIRST_FAILED)
    assert error.faults[0].message.endswith("chaincode nosuch not found")


async def test_proposal_that_every_peer_refuses_aborts_with_the_reason(network: PeerNetwork) -> None:
    error = await refused(network.gateway.endorse(*draft(sign=ORG1.admin.sign).signed()))
    assert (error.code, error.message) == (Code.ABORTED, FIRST_FAILED)
    assert error.faults[0].message == (
        f"error validating proposal: access denied: channel [{CHANNEL}] creator org [Org1MSP]"
    )


async def test_bytes_that_are_no_proposal_are_an_invalid_argument(network: PeerNetwork) -> None:
    for call in (network.gateway.endorse(b"\xff\xff", b"x"), network.gateway.evaluate(b"\xff\xff", b"x")):
        error = await refused(call)
        assert (error.code, error.message) == (Code.INVALID_ARGUMENT, "error unmarshalling Proposal")


async def test_unknown_channel_is_not_found(network: PeerNetwork) -> None:
    error = await refused(network.gateway.endorse(*draft(channel="nope").signed()))
    assert (error.code, error.message) == (Code.NOT_FOUND, "channel 'nope' not found")
    error = await refused(network.gateway.submit("nope", b""))
    assert error.code is Code.NOT_FOUND


@dataclass
class Failing:
    """An endorser that can't answer."""

    error: Exception

    def process(self, signed: bytes, signature: bytes) -> ProposalAnswer:
        raise self.error


def own_failing(network: PeerNetwork) -> OwnEndorser:
    first = network.first
    return OwnEndorser(first.name, "Org1MSP", first.address, Failing(Busy("no worker")), first.simulations)


async def test_other_organisation_stands_in_for_the_own_peer_where_the_policy_allows(network: PeerNetwork) -> None:
    first = network.first
    gateway = Gateway(own_failing(network), [network.to_second], first.channels, first.simulations)
    assert endorsers_in(await gateway.endorse(*draft(chaincode="either").signed())) == PEERS[1:]
    error = await refused(gateway.endorse(*draft().signed()))
    assert (error.code, error.message) == (Code.ABORTED, FIRST_FAILED)
    assert error.faults == (NodeFault(first.address, "Org1MSP", "no worker"),)


async def test_answers_that_go_on_differing_abort_after_some_rounds(network: PeerNetwork) -> None:
    other = Watched(network.to_second)
    error = await refused(network.first.gateway(other).endorse(*draft("chance").signed()))
    assert (error.code, error.message, other.asked) == (Code.ABORTED, MORE_FAILED, ROUNDS_MAX)
    (fault,) = error.faults
    assert (fault.address, fault.msp_id) == (network.second.address, "Org2MSP")
    assert fault.message == "ProposalResponsePayloads do not match: they differ in results"


async def test_peer_that_is_a_block_behind_is_asked_again(network: PeerNetwork) -> None:
    """The second peer holds its commit back until it has answered once."""
    height = await network.level()
    with commits_held(network.second) as release:
        proposal = draft("put", "behind", "1")
        payload = await network.gateway.endorse(*proposal.signed())
        assert (await submitted(network, proposal, payload)).verdict == Verdict.VALID

        async def catch_up(turn: int) -> None:
            if turn > 1:
                release.set()
                await network.second.channel.wait_above(height)

        other = Watched(network.to_second, before=catch_up)
        payload = await network.first.gateway(other).endorse(*draft("bump", "behind").signed())
    assert (endorsers_in(payload), other.asked, result_of(payload)) == (PEERS, 2, b"2")


async def test_endorsers_are_not_asked_on_when_the_answer_is_known(network: PeerNetwork) -> None:
    """The chaincode fails on one peer while another one hangs: the client hears of it at once."""
    hanging = Watched(network.to_second, before=lambda _: asyncio.sleep(60))
    gateway = network.first.gateway(hanging)
    async with asyncio.timeout(10):
        error = await refused(gateway.endorse(*draft("fail", "no luck").signed(), ("Org1MSP", "Org2MSP")))
    assert (error.code, error.message) == (Code.ABORTED, MORE_FAILED)
    assert [fault.msp_id for fault in error.faults] == ["Org1MSP"]
    assert hanging.asked == 1
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if "_Collecting" in repr(task.get_coro())] == []


# Evaluate.


async def test_evaluation_gives_the_result_of_the_own_peer(network: PeerNetwork) -> None:
    other = Watched(network.to_second)
    answer = await network.first.gateway(other).evaluate(*draft("get", "never written").signed())
    assert (answer.status, answer.payload, other.asked) == (200, b"nothing", 0)


async def test_evaluation_asks_the_organisation_that_is_named(network: PeerNetwork) -> None:
    other = Watched(network.to_second)
    gateway = network.first.gateway(other)
    assert (await gateway.evaluate(*draft("get", "x").signed(), ("Org2MSP",))).payload == b"nothing"
    assert other.asked == 1
    error = await refused(gateway.evaluate(*draft().signed(), ("Org3MSP",)))
    assert (error.code, error.message) == (Code.UNAVAILABLE, "no peers available to evaluate chaincode")


async def test_failure_of_an_evaluated_chaincode_is_unknown_with_its_text(network: PeerNetwork) -> None:
    other = Watched(network.to_second)
    error = await refused(network.first.gateway(other).evaluate(*draft("fail", "no luck").signed()))
    assert error.code is Code.UNKNOWN
    assert error.message.startswith("evaluate call to endorser returned error: chaincode response 500, ")
    assert "no luck" in error.message
    assert (error.faults[0].address, other.asked) == (network.first.address, 0)


async def test_evaluation_goes_on_to_another_peer_where_one_fails(network: PeerNetwork, dead: RemoteEndorser) -> None:
    first = network.first
    gateway = Gateway(own_failing(network), [dead, network.to_second], first.channels, first.simulations)
    assert (await gateway.evaluate(*draft("get", "x").signed())).payload == b"nothing"
    nobody = Gateway(own_failing(network), [dead], first.channels, first.simulations)
    error = await refused(nobody.evaluate(*draft().signed()))
    assert (error.code, [fault.msp_id for fault in error.faults]) == (Code.UNAVAILABLE, ["Org1MSP", "Org2MSP"])
    assert error.message == f"evaluate call to endorser returned error: {error.faults[-1].message}"


async def test_secrets_stay_with_the_own_organisation(network: PeerNetwork) -> None:
    other = Watched(network.to_second)
    first = network.first
    secret = draft("secret", transient={"secret": b"for your eyes only"})
    assert (await first.gateway(other).evaluate(*secret.signed())).payload == b"for your eyes only"
    gateway = Gateway(own_failing(network), [other], first.channels, first.simulations)
    await refused(gateway.evaluate(*secret.but().signed()))
    assert other.asked == 0


async def test_evaluated_proposal_that_is_refused_is_a_failed_precondition(network: PeerNetwork) -> None:
    error = await refused(network.gateway.evaluate(*draft(epoch=1).signed()))
    assert error.code is Code.FAILED_PRECONDITION
    assert error.message == ("evaluate call to endorser returned error: error validating proposal: epoch is non-zero")
    assert error.faults[0].address == network.first.address


# Submit.


async def test_envelope_that_the_orderer_refuses_is_aborted(network: PeerNetwork) -> None:
    payload = await network.gateway.endorse(*draft().signed())
    error = await refused(network.gateway.submit(CHANNEL, encode_envelope(payload, b"forged")))
    assert error.code is Code.ABORTED
    assert error.message.startswith("received unsuccessful response from orderer: status=403, info=")


async def test_no_orderer_at_hand_is_unavailable(pool: ContractPool, tmp_path: Path) -> None:
    client = OrdererClient(DEAD, client_tls())
    with open_peer(tmp_path, ORG1, genesis(), pool, orderers=[client]) as peer:
        own = OwnEndorser(peer.name, "Org1MSP", "", peer.endorser, peer.simulations)
        gateway = Gateway(own, (), peer.channels, peer.simulations)
        error = await refused(gateway.submit(CHANNEL, encode_envelope(b"payload", b"signature")))
        assert error.code is Code.UNAVAILABLE
        assert error.message.startswith("no orderers could successfully process transaction: ")
        peer.channel.halt("what was agreed on differs")
        error = await refused(gateway.submit(CHANNEL, b""))
        assert error.code is Code.UNAVAILABLE and "what was agreed on differs" in error.message
    await client.close()


def genesis() -> bytes:
    return encode_block(Channel(ORGANISATIONS).genesis)


@dataclass
class SilentChannel:
    """A channel whose orderer has something to say of envelopes, or never answers."""

    answer: tuple[int, str] | None = None
    stopped_because: str = ""
    seen: list[bytes] = field(default_factory=list)

    async def broadcast(self, envelope: bytes) -> tuple[int, str]:
        self.seen.append(envelope)
        if self.answer is None:
            await asyncio.Event().wait()
        assert self.answer is not None
        return self.answer


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        ((400, "channel does not exist"), Code.ABORTED, "status=400, info=channel does not exist"),
        ((503, "full"), Code.UNAVAILABLE, "status=503, info=full"),
        (None, Code.DEADLINE_EXCEEDED, "no orderer answered within 0.05 s"),
    ],
)
async def test_orderers_answer_decides_the_status(
    answer: tuple[int, str] | None, code: Code, text: str, network: PeerNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BROADCAST_TIMEOUT_S", 0.05)
    channels: Any = {CHANNEL: SilentChannel(answer)}
    gateway = Gateway(network.first.own(), (), channels, network.first.simulations)
    error = await refused(gateway.submit(CHANNEL, b"envelope"))
    assert error.code is code and error.message.endswith(text)


# Commit status.


async def test_status_of_a_committed_transaction_is_answered_at_once_by_any_peer(network: PeerNetwork) -> None:
    proposal = draft()
    committed = await submitted(network, proposal, await network.gateway.endorse(*proposal.signed()))
    assert committed == Committed(Verdict.VALID, network.first.store.places(TxId(proposal.id()))[0].block)
    await network.level()
    assert await status(network.second.gateway(), proposal.id(), ORG2.client) == committed


async def test_status_waits_for_what_is_not_committed_yet(network: PeerNetwork) -> None:
    proposal = draft()
    payload = await network.gateway.endorse(*proposal.signed())
    waiting = asyncio.ensure_future(status(network.gateway, proposal.id()))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await network.gateway.submit(CHANNEL, encode_envelope(payload, ORG1.client.sign(payload)))
    assert (await asyncio.wait_for(waiting, 10)).verdict == Verdict.VALID


async def test_status_tells_the_code_of_an_invalid_transaction(network: PeerNetwork) -> None:
    """One endorsement where the channel asks for two."""
    proposal = draft()
    payload = await network.gateway.endorse(*proposal.signed(), ("Org1MSP",))
    assert (await submitted(network, proposal, payload)).verdict == Verdict.ENDORSEMENT_POLICY_FAILURE
    assert (await status(network.gateway, proposal.id())).verdict == Verdict.ENDORSEMENT_POLICY_FAILURE


async def test_status_is_for_readers_of_the_channel_only(network: PeerNetwork) -> None:
    error = await refused(status(network.gateway, "00", STRANGER.client))
    assert error.code is Code.PERMISSION_DENIED
    assert error.message.startswith("access to gateway/CommitStatus denied: /Channel/Application/Readers")
    forged = SignedData(b"request", ORG1.client.serialized, ORG1.client.sign(b"another request"))
    error = await refused(network.gateway.commit_status(CHANNEL, "00", forged))
    assert error.code is Code.PERMISSION_DENIED
    error = await refused(network.gateway.commit_status("nope", "00", forged))
    assert error.code is Code.NOT_FOUND


async def test_waiters_are_told_when_the_channel_stops(pool: ContractPool, tmp_path: Path) -> None:
    with open_peer(tmp_path, ORG1, genesis(), pool) as peer:
        own = OwnEndorser(peer.name, "Org1MSP", "", peer.endorser, peer.simulations)
        gateway = Gateway(own, (), peer.channels, peer.simulations)
        waiting = asyncio.ensure_future(status(gateway, "00"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        peer.channel.halt("what was agreed on differs")
        for call in (waiting, status(gateway, "00")):
            error = await refused(asyncio.wait_for(call, 10))
            assert error.code is Code.ABORTED
            assert "has stopped: what was agreed on differs" in error.message
