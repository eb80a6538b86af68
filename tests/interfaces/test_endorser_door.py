"""The endorser over real TLS: what Fabric's clients see of a refusal, of a failure and of an endorsement."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from fabric_protos.peer import peer_pb2_grpc, proposal_pb2

from ledger.chaincode.pool import ContractPool
from ledger.client.endorser import RemoteEndorser
from ledger.client.tls import open_channel
from ledger.core.errors import Busy, InvalidProposal, PeerUnreachable, StorageFailed
from ledger.core.proposal import ProposalAnswer
from ledger.interfaces.grpc import endorser as door
from ledger.interfaces.grpc.endorser import EndorserDoor
from ledger.interfaces.grpc.server import make_server
from ledger.wire.block import encode_block
from tests.kit.channel import CHANNEL, Channel, definition_fields, definition_writes
from tests.kit.orderer_node import NOW
from tests.kit.peers import ORGANISATIONS, ServingPeer, client_tls, open_peer, running_pool, served, server_tls
from tests.kit.proposals import ORG1, REFUSALS, ProposalDraft

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def pool() -> Iterator[ContractPool]:
    with running_pool(1) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def peer(pool: ContractPool, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServingPeer]:
    channel = Channel(ORGANISATIONS)
    genesis = encode_block(channel.genesis)
    with open_peer(tmp_path_factory.mktemp("peer"), ORGANISATIONS[0], genesis, pool, now=lambda: NOW) as made:
        definition = definition_writes("trial", definition_fields())
        made.channel.committer.commit([encode_block(channel.block(channel.draft(definition, "_lifecycle").envelope()))])
        async with served(made) as serving:
            yield serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stub(peer: ServingPeer) -> AsyncIterator[Any]:
    async with open_channel(peer.address, client_tls()) as channel:
        yield peer_pb2_grpc.EndorserStub(channel)


def message(draft: ProposalDraft) -> Any:
    signed, signature = draft.signed()
    return proposal_pb2.SignedProposal(proposal_bytes=signed, signature=signature)


async def refused(stub: Any, request: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as found:
        await stub.ProcessProposal(request)
    return found.value.code(), found.value.details() or ""


@pytest.mark.parametrize("name", REFUSALS)
async def test_refused_proposal_is_status_unknown_with_fabrics_text(name: str, stub: Any) -> None:
    signed, signature = REFUSALS[name].make()
    request = proposal_pb2.SignedProposal(proposal_bytes=signed, signature=signature)
    assert await refused(stub, request) == (grpc.StatusCode.UNKNOWN, REFUSALS[name].text)


async def test_bytes_that_are_no_signed_proposal_are_status_unknown(peer: ServingPeer) -> None:
    async with open_channel(peer.address, client_tls()) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/protos.Endorser/ProcessProposal")
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await call(b"\xff\xff")
    assert found.value.code() is grpc.StatusCode.UNKNOWN
    assert found.value.details() == "error unmarshalling SignedProposal"


async def test_unknown_channel_and_undefined_chaincode_are_responses_not_errors(stub: Any) -> None:
    answer = await stub.ProcessProposal(message(ProposalDraft(channel="nope")))
    assert (answer.response.status, answer.response.message) == (500, "channel 'nope' not found")
    assert (answer.version, answer.payload, answer.HasField("endorsement")) == (0, b"", False)
    answer = await stub.ProcessProposal(message(ProposalDraft(chaincode="nosuch")))
    text = f"make sure the chaincode nosuch has been successfully defined on channel {CHANNEL} and try again: "
    assert (answer.response.status, answer.response.message) == (500, f"{text}chaincode nosuch not found")
    assert (answer.payload, answer.HasField("endorsement"), answer.HasField("interest")) == (b"", False, False)


async def test_endorsement_has_version_response_interest_and_no_time(stub: Any, peer: ServingPeer) -> None:
    answer = await stub.ProcessProposal(message(ProposalDraft()))
    assert (answer.version, answer.response.status, answer.response.payload) == (1, 200, b"put key")
    assert answer.endorsement.endorser == peer.signer.serialized
    assert [each.name for each in answer.interest.chaincodes] == ["trial"]
    assert not answer.HasField("timestamp")


async def test_failure_of_a_chaincode_has_payload_and_interest_but_no_endorsement(stub: Any) -> None:
    answer = await stub.ProcessProposal(message(ProposalDraft(args=("fail", "no luck"))))
    assert answer.response.status == 500 and "no luck" in answer.response.message
    assert answer.payload and answer.HasField("interest") and not answer.HasField("endorsement")


async def test_call_without_channel_is_the_response_alone(stub: Any) -> None:
    answer = await stub.ProcessProposal(message(ProposalDraft(channel="", chaincode="cscc", args=("GetChannels",))))
    assert answer.response.status == 200 and CHANNEL.encode() in answer.response.payload
    assert (answer.version, answer.payload) == (0, b"")
    assert not answer.HasField("endorsement") and not answer.HasField("interest")


# How other peers see it.


class Failing:
    """An endorser whose disk or workers fail, or that answers something."""

    def __init__(self, outcome: Exception | ProposalAnswer) -> None:
        self.outcome = outcome

    def process(self, signed: bytes, signature: bytes) -> ProposalAnswer:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


async def asked(peer: ServingPeer, outcome: Exception | ProposalAnswer) -> ProposalAnswer:
    """Ask a peer whose endorser has this outcome, as another peer's gateway does."""
    server, port = make_server("127.0.0.1:0", server_tls())
    server.add_generic_rpc_handlers((EndorserDoor(Failing(outcome), peer.simulations).handler(),))
    await server.start()
    remote = RemoteEndorser("peer0", "Org1MSP", f"localhost:{port}", client_tls())
    try:
        return await remote.endorse(*ProposalDraft().signed(), timeout_s=5)
    finally:
        await remote.close()
        await server.stop(0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Busy("no contract worker was free"), "RESOURCE_EXHAUSTED"),
        (StorageFailed("read of 4096 bytes"), "INTERNAL"),
    ],
    ids=["busy", "disk"],
)
async def test_peer_that_fails_inside_says_nothing_about_the_proposal(
    error: Exception, code: str, peer: ServingPeer
) -> None:
    with pytest.raises(PeerUnreachable, match=f"{code}: {error}"):
        await asked(peer, error)


async def test_peer_that_refuses_is_quoted_to_the_letter(peer: ServingPeer) -> None:
    remote = peer.remote()
    with pytest.raises(InvalidProposal) as found:
        await remote.endorse(*ProposalDraft(epoch=1).signed(), timeout_s=5)
    assert found.value.subject == "error validating proposal: epoch is non-zero"
    await remote.close()


async def test_answer_comes_to_another_peer_as_it_was_given(peer: ServingPeer) -> None:
    draft = ProposalDraft(args=("announce", "key", "event"))
    remote = peer.remote()
    there = await remote.endorse(*draft.signed(), timeout_s=5)
    here = peer.endorser.process(*draft.signed())
    assert there.response_payload == here.response_payload
    assert (there.status, there.message, there.payload) == (here.status, here.message, here.payload)
    assert there.namespaces == here.namespaces == ("trial",)
    assert there.endorsement is not None and there.endorsement.endorser == ORG1.peer.serialized
    await remote.close()


async def test_peer_where_nobody_listens_is_unreachable() -> None:
    remote = RemoteEndorser("peer0", "Org1MSP", "localhost:1", client_tls())
    with pytest.raises(PeerUnreachable, match="peer peer0: UNAVAILABLE"):
        await remote.endorse(*ProposalDraft().signed(), timeout_s=5)
    await remote.close()


async def test_proposals_beyond_the_bound_are_turned_away(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "IN_FLIGHT_MAX", 0)
    code, text = await refused(stub, message(ProposalDraft()))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert text == "too many requests for /protos.Endorser, exceeding concurrency limit (0)"


async def test_stopped_channel_is_unavailable(pool: ContractPool, tmp_path: Path) -> None:
    genesis = encode_block(Channel(ORGANISATIONS).genesis)
    with open_peer(tmp_path, ORGANISATIONS[0], genesis, pool, now=lambda: NOW) as made:
        made.channel.halt("what was agreed on differs")
        async with served(made) as serving, open_channel(serving.address, client_tls()) as channel:
            code, text = await refused(peer_pb2_grpc.EndorserStub(channel), message(ProposalDraft()))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert text == f"channel {CHANNEL} endorses nothing: what was agreed on differs"
