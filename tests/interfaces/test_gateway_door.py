"""The gateway over real TLS, called as Fabric's SDKs call it: statuses, and what the details of a refusal hold."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from fabric_protos.common import common_pb2
from fabric_protos.gateway import gateway_pb2, gateway_pb2_grpc
from fabric_protos.peer import proposal_pb2
from google.rpc import status_pb2

from ledger.chaincode.pool import ContractPool
from ledger.client.gateway import commit_definition, connect
from ledger.client.tls import open_channel
from ledger.core.names import Verdict
from ledger.interfaces.grpc import gateway as door
from tests.kit.channel import CHANNEL
from tests.kit.checkpointing import until
from tests.kit.organisations import Signer
from tests.kit.peers import PeerNetwork, client_tls, running_network, running_pool, wallet
from tests.kit.proposals import ORG1, STRANGER, ProposalDraft

pytestmark = pytest.mark.asyncio(loop_scope="module")

DETAILS = "grpc-status-details-bin"


@pytest.fixture(scope="module")
def pool() -> Iterator[ContractPool]:
    with running_pool() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def network(pool: ContractPool, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PeerNetwork]:
    async with running_network(tmp_path_factory.mktemp("network"), pool) as made:
        async with connect(made.first.address, wallet(ORG1.client), client_tls()) as gateway:
            await commit_definition(gateway.network(CHANNEL), "trial")
        await made.level()
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stub(network: PeerNetwork) -> AsyncIterator[Any]:
    async with open_channel(network.first.address, client_tls()) as channel:
        yield gateway_pb2_grpc.GatewayStub(channel)


def proposal(*args: str, **parts: Any) -> tuple[ProposalDraft, Any]:
    """A proposal, and it as the SDKs send it."""
    draft = ProposalDraft(args=args or ("put", "key", "value"), at=datetime.datetime.now(datetime.UTC), **parts)
    signed, signature = draft.signed()
    return draft, proposal_pb2.SignedProposal(proposal_bytes=signed, signature=signature)


def endorse_request(*args: str, organisations: tuple[str, ...] = (), **parts: Any) -> Any:
    draft, signed = proposal(*args, **parts)
    return gateway_pb2.EndorseRequest(
        transaction_id=draft.id(), channel_id=CHANNEL, proposed_transaction=signed,
        endorsing_organizations=organisations,
    )  # fmt: skip


def evaluate_request(*args: str, organisations: tuple[str, ...] = (), **parts: Any) -> Any:
    draft, signed = proposal(*args, **parts)
    return gateway_pb2.EvaluateRequest(
        transaction_id=draft.id(), channel_id=CHANNEL, proposed_transaction=signed, target_organizations=organisations
    )


def status_request(tx_id: str, signer: Signer = ORG1.client, channel: str = CHANNEL) -> Any:
    request = gateway_pb2.CommitStatusRequest(
        transaction_id=tx_id, channel_id=channel, identity=signer.serialized
    ).SerializeToString()
    return gateway_pb2.SignedCommitStatusRequest(request=request, signature=signer.sign(request))


async def refused(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as found:
        await call
    return found.value


def details_of(error: grpc.aio.AioRpcError) -> list[Any]:
    """The error details, read from the trailer as the SDKs read them; status and text are there once more."""
    (trailer,) = [value for key, value in error.trailing_metadata() or () if key == DETAILS]
    status = status_pb2.Status.FromString(trailer)
    assert (status.code, status.message) == (error.code().value[0], error.details())
    found = []
    for packed in status.details:
        assert packed.type_url == "type.googleapis.com/gateway.ErrorDetail"
        detail = gateway_pb2.ErrorDetail()
        assert packed.Unpack(detail)
        found.append(detail)
    return found


async def test_transaction_goes_the_whole_way_and_only_the_client_signs_it(stub: Any) -> None:
    request = endorse_request("put", "key", "value")
    prepared = (await stub.Endorse(request)).prepared_transaction
    assert prepared.payload and prepared.signature == b""
    header = common_pb2.ChannelHeader.FromString(common_pb2.Payload.FromString(prepared.payload).header.channel_header)
    assert (header.channel_id, header.tx_id) == (CHANNEL, request.transaction_id)
    prepared.signature = ORG1.client.sign(prepared.payload)
    submit = gateway_pb2.SubmitRequest(
        transaction_id=request.transaction_id, channel_id=CHANNEL, prepared_transaction=prepared
    )
    assert await stub.Submit(submit) == gateway_pb2.SubmitResponse()
    status = await stub.CommitStatus(status_request(request.transaction_id))
    assert status.result == Verdict.VALID and status.block_number > 0


async def test_evaluation_gives_status_and_payload(stub: Any) -> None:
    result = (await stub.Evaluate(evaluate_request("get", "never written"))).result
    assert (result.status, result.payload) == (200, b"nothing")


async def test_refusal_names_the_peer_in_the_details_trailer(stub: Any, network: PeerNetwork) -> None:
    error = await refused(stub.Endorse(endorse_request("fail", "no luck")))
    assert error.code() is grpc.StatusCode.ABORTED
    assert error.details() == "failed to endorse transaction, see attached details for more info"
    (detail,) = details_of(error)
    assert (detail.address, detail.msp_id) == (network.first.address, "Org1MSP")
    assert detail.message.startswith("chaincode response 500, ") and "no luck" in detail.message


async def test_answers_that_differ_are_told_in_the_details(stub: Any, network: PeerNetwork) -> None:
    error = await refused(stub.Endorse(endorse_request("chance")))
    assert error.code() is grpc.StatusCode.ABORTED
    (detail,) = details_of(error)
    assert (detail.address, detail.msp_id) == (network.second.address, "Org2MSP")
    assert detail.message.startswith("ProposalResponsePayloads do not match")


async def test_text_with_other_letters_comes_through(stub: Any) -> None:
    error = await refused(stub.Evaluate(evaluate_request("fail", "kein Glück \u2713")))
    (detail,) = details_of(error)
    assert error.code() is grpc.StatusCode.UNKNOWN
    assert "kein Glück \u2713" in detail.message and "kein Glück \u2713" in (error.details() or "")


@pytest.mark.parametrize(
    ("name", "request_", "code", "text"),
    [
        ("Endorse", gateway_pb2.EndorseRequest(), "INVALID_ARGUMENT", "ChaincodeHeaderExtension.ChaincodeId is nil"),
        ("Evaluate", gateway_pb2.EvaluateRequest(), "INVALID_ARGUMENT", "ChaincodeHeaderExtension.ChaincodeId is nil"),
        ("Submit", gateway_pb2.SubmitRequest(), "INVALID_ARGUMENT", "a prepared transaction is required"),
        (
            "Submit",
            gateway_pb2.SubmitRequest(prepared_transaction=common_pb2.Envelope(payload=b"payload")),
            "INVALID_ARGUMENT",
            "a signature of the prepared transaction is required",
        ),
        (
            "CommitStatus",
            gateway_pb2.SignedCommitStatusRequest(request=b"\xff\xff"),
            "INVALID_ARGUMENT",
            "CommitStatusRequest",
        ),
        ("CommitStatus", gateway_pb2.SignedCommitStatusRequest(), "NOT_FOUND", "channel '' not found"),
        ("Endorse", endorse_request(channel="nope"), "NOT_FOUND", "channel 'nope' not found"),
        ("Evaluate", evaluate_request(channel="nope"), "UNKNOWN", "channel 'nope' not found"),
        ("Evaluate", evaluate_request(epoch=1), "FAILED_PRECONDITION", "epoch is non-zero"),
        (
            "Endorse",
            endorse_request(organisations=("Org1MSP", "Org9MSP")),
            "UNAVAILABLE",
            "failed to find any endorsing peers for org(s): Org9MSP",
        ),
        ("Evaluate", evaluate_request(organisations=("Org9MSP",)), "UNAVAILABLE", "no peers available"),
        ("CommitStatus", status_request("00", STRANGER.client), "PERMISSION_DENIED", "gateway/CommitStatus denied"),
        ("CommitStatus", status_request("00", channel="nope"), "NOT_FOUND", "channel 'nope' not found"),
    ],
)
async def test_refused_call_has_its_status_and_text(name: str, request_: Any, code: str, text: str, stub: Any) -> None:
    error = await refused(getattr(stub, name)(request_))
    assert error.code().name == code
    assert text in (error.details() or "")
    details_of(error)


async def test_envelope_with_a_forged_signature_is_aborted_with_the_orderers_answer(stub: Any) -> None:
    prepared = (await stub.Endorse(endorse_request())).prepared_transaction
    prepared.signature = ORG1.admin.sign(prepared.payload)
    error = await refused(stub.Submit(gateway_pb2.SubmitRequest(channel_id=CHANNEL, prepared_transaction=prepared)))
    assert error.code() is grpc.StatusCode.ABORTED
    assert "status=403" in (error.details() or "")


async def test_waiting_for_a_verdict_that_never_comes_ends_with_the_clients_patience(
    stub: Any, network: PeerNetwork
) -> None:
    error = await refused(stub.CommitStatus(status_request("never"), timeout=0.2))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: not network.first.channel._transactions._waiting)


async def test_calls_beyond_the_bounds_are_turned_away(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "IN_FLIGHT_MAX", 0)
    monkeypatch.setattr(door, "WAITING_MAX", 0)
    for call in (stub.Endorse(endorse_request()), stub.Evaluate(evaluate_request())):
        error = await refused(call)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.details() == "too many requests for /gateway.Gateway, exceeding concurrency limit (0)"
    error = await refused(stub.CommitStatus(status_request("00")))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_channel_that_stops_aborts_who_waits(stub: Any, network: PeerNetwork) -> None:
    """The last one here: this channel does not go on."""
    waiting = asyncio.ensure_future(stub.CommitStatus(status_request("00")))
    await until(lambda: "00" in network.first.channel._transactions._waiting)
    network.first.channel.halt("what was agreed on differs")
    error = await refused(waiting)
    assert error.code() is grpc.StatusCode.ABORTED
    text = f"channel {CHANNEL}: channel {CHANNEL} has stopped: what was agreed on differs"
    assert error.details() == text
