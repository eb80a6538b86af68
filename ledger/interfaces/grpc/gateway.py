"""How do Fabric's client SDKs reach this peer?  `gateway.Gateway`, all its calls.

A refused call has a status, and in its details what every node answered, as the SDKs show it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import grpc
from fabric_protos.common import common_pb2
from fabric_protos.gateway import gateway_pb2, gateway_pb2_grpc
from fabric_protos.peer import chaincode_event_pb2, proposal_response_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import status_pb2
from grpc_status import rpc_status

from ledger.core.errors import MalformedMessage
from ledger.core.policy.evaluate import SignedData
from ledger.services.gateway import Code, Gateway, GatewayRefused
from ledger.wire.messages import parse

IN_FLIGHT_MAX = 500
"""Calls under way at most, as on Fabric's peers; those that wait for a verdict have a bound of their own."""

WAITING_MAX = 5_000
"""CommitStatus calls that wait at most."""

Answer = TypeVar("Answer")


class GatewayDoor(gateway_pb2_grpc.GatewayServicer):  # type: ignore[misc]  # Generated, untyped.
    """The service.

    Args:
        gateway: Does the work.
    """

    def __init__(self, gateway: Gateway) -> None:
        """Take the gateway."""
        self._gateway = gateway
        self._in_flight = 0
        self._waiting = 0
        self._listening = 0

    async def Evaluate(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Run a chaincode on one peer."""
        proposed = request.proposed_transaction
        organisations = tuple(request.target_organizations)
        answer = await self._bounded(
            context, partial(self._gateway.evaluate, proposed.proposal_bytes, proposed.signature, organisations)
        )
        result = proposal_response_pb2.Response(status=answer.status, message=answer.message, payload=answer.payload)
        return gateway_pb2.EvaluateResponse(result=result)

    async def Endorse(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Collect endorsements and give the transaction to be signed."""
        proposed = request.proposed_transaction
        organisations = tuple(request.endorsing_organizations)
        payload = await self._bounded(
            context, partial(self._gateway.endorse, proposed.proposal_bytes, proposed.signature, organisations)
        )
        return gateway_pb2.EndorseResponse(prepared_transaction=common_pb2.Envelope(payload=payload))

    async def Submit(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Hand a signed transaction to an orderer."""
        envelope = request.prepared_transaction
        if not envelope.payload or not envelope.signature:
            what = "prepared transaction" if not envelope.payload else "signature of the prepared transaction"
            await abort(context, GatewayRefused(Code.INVALID_ARGUMENT, f"a {what} is required"))
        await self._bounded(context, partial(self._gateway.submit, request.channel_id, envelope.SerializeToString()))
        return gateway_pb2.SubmitResponse()

    async def CommitStatus(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Wait for a transaction's verdict."""
        try:
            asked = parse(gateway_pb2.CommitStatusRequest, request.request, "CommitStatusRequest")
        except MalformedMessage as error:
            await abort(context, GatewayRefused(Code.INVALID_ARGUMENT, str(error)))
        if self._waiting >= WAITING_MAX:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WAITING_MAX} calls wait for verdicts already")
        signed = SignedData(request.request, asked.identity, request.signature)
        self._waiting += 1
        try:
            committed = await self._gateway.commit_status(asked.channel_id, asked.transaction_id, signed)
        except GatewayRefused as refused:
            await abort(context, refused)
        finally:
            self._waiting -= 1
        return gateway_pb2.CommitStatusResponse(result=committed.verdict, block_number=committed.block)

    async def ChaincodeEvents(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        """Send the events of a chaincode, block by block."""
        try:
            asked = parse(gateway_pb2.ChaincodeEventsRequest, request.request, "ChaincodeEventsRequest")
            start = start_of(asked)
        except (MalformedMessage, GatewayRefused) as error:
            refused = error if isinstance(error, GatewayRefused) else GatewayRefused(Code.INVALID_ARGUMENT, str(error))
            await abort(context, refused)
            return
        if self._listening >= WAITING_MAX:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WAITING_MAX} clients listen already")
        signed = SignedData(request.request, asked.identity, request.signature)
        self._listening += 1
        try:
            async for number, events in self._gateway.chaincode_events(
                asked.channel_id, asked.chaincode_id, signed, start, asked.after_transaction_id
            ):
                messages = [
                    chaincode_event_pb2.ChaincodeEvent(
                        chaincode_id=event.chaincode, tx_id=event.tx_id, event_name=event.name, payload=event.payload
                    )
                    for event in events
                ]
                yield gateway_pb2.ChaincodeEventsResponse(events=messages, block_number=number)
        except GatewayRefused as refused:
            await abort(context, refused)
        finally:
            self._listening -= 1

    async def _bounded(
        self, context: grpc.aio.ServicerContext[Any, Any], work: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Do the work of a call, within the bound and with errors as statuses."""
        if self._in_flight >= IN_FLIGHT_MAX:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"too many requests for /gateway.Gateway, exceeding concurrency limit ({IN_FLIGHT_MAX})",
            )
        self._in_flight += 1
        try:
            return await work()
        except GatewayRefused as refused:
            await abort(context, refused)
            raise AssertionError("abort raises") from refused
        finally:
            self._in_flight -= 1


def start_of(asked: Any) -> int | None:
    """Find the first block that is asked for; None for the next one to come.

    Raises:
        GatewayRefused: The position is of a kind that events can't begin at.
    """
    kind = asked.start_position.WhichOneof("Type") if asked.HasField("start_position") else None
    match kind:
        case None | "next_commit":
            return None
        case "specified":
            return int(asked.start_position.specified.number)
        case _:
            raise GatewayRefused(Code.INVALID_ARGUMENT, f"invalid start position type: {kind}")


async def abort(context: grpc.aio.ServicerContext[Any, Any], refused: GatewayRefused) -> None:
    """End a call with a status and its details."""
    code = grpc.StatusCode[refused.code.value]
    details = []
    for fault in refused.faults:
        packed = AnyMessage()
        packed.Pack(gateway_pb2.ErrorDetail(address=fault.address, msp_id=fault.msp_id, message=fault.message))
        details.append(packed)
    status = rpc_status.to_status(status_pb2.Status(code=code.value[0], message=refused.message, details=details))
    context.set_trailing_metadata(status.trailing_metadata)
    await context.abort(code, refused.message)
