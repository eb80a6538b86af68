"""How is this peer asked to endorse?  `protos.Endorser`, bytes in and bytes out."""

import asyncio
from concurrent.futures import Executor
from typing import Any, Protocol

import grpc

from ledger.core.errors import Busy, ChannelStopped, InvalidProposal, LedgerError, MalformedMessage, Refused
from ledger.core.proposal import ProposalAnswer
from ledger.wire.proposal import encode_answer, split_signed_proposal

IN_FLIGHT_MAX = 2_500
"""Proposals under way at most, as on Fabric's peers."""

SERVICE, METHOD = "protos.Endorser", "ProcessProposal"


class Processes(Protocol):
    """The endorser; `services.endorser.Endorser`."""

    def process(self, signed: bytes, signature: bytes) -> ProposalAnswer:
        """Answer a proposal; blocks."""
        ...


class EndorserDoor:
    """The service.

    Args:
        endorser: Answers proposals.
        executor: Where it does.
    """

    def __init__(self, endorser: Processes, executor: Executor) -> None:
        """Take the parts."""
        self._endorser = endorser
        self._executor = executor
        self._in_flight = 0

    def handler(self) -> grpc.GenericRpcHandler:
        """Give what a server is to be told of."""
        method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self.process_proposal)
        return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})

    async def process_proposal(self, request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        """Answer a SignedProposal with a ProposalResponse."""
        if self._in_flight >= IN_FLIGHT_MAX:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"too many requests for /{SERVICE}, exceeding concurrency limit ({IN_FLIGHT_MAX})",
            )
        self._in_flight += 1
        try:
            signed, signature = split_signed_proposal(request)
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._executor, self._endorser.process, signed, signature)
        except LedgerError as error:
            code, text = status_of(error)
            await context.abort(code, text)
        finally:
            self._in_flight -= 1
        return encode_answer(answer)


def status_of(error: LedgerError) -> tuple[grpc.StatusCode, str]:
    """Give the status of an error; what a client did wrong is UNKNOWN with Fabric's text, as in Go."""
    match error:
        case InvalidProposal() | MalformedMessage():
            return grpc.StatusCode.UNKNOWN, error.subject
        case Refused():
            return grpc.StatusCode.UNKNOWN, str(error)
        case Busy():
            return grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
        case ChannelStopped():
            return grpc.StatusCode.UNAVAILABLE, str(error)
        case _:
            return grpc.StatusCode.INTERNAL, str(error)
