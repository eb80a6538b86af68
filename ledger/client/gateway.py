"""How does a Python application use a channel?  Through a peer's gateway, any peer of Fabric's included.

    signer = load_signer("Org1MSP", certificate_pem, key_pem)
    async with connect("127.0.0.1:7051", signer, ClientTls(roots)) as gateway:
        contract = gateway.network("mychannel").contract("assets")
        await contract.submit("create", "car-1", "Anna", "300")
        print(await contract.evaluate("read", "car-1"))

`submit` comes back once the transaction is committed and valid, on this gateway's peer. `submit_async` comes back once
it is ordered; its `status` waits for the verdict. A transaction refused for a conflict may be built anew and submitted
again: nothing of it was done.
"""

import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from fabric_protos.common import common_pb2
from fabric_protos.gateway import gateway_pb2, gateway_pb2_grpc
from fabric_protos.peer import proposal_pb2
from grpc_status import rpc_status

from ledger.client.errors import CallRefused, NodeAnswer, TransactionInvalid
from ledger.client.tls import ClientTls, open_channel
from ledger.core.names import TxId, Verdict
from ledger.core.policy.parse import parse_policy
from ledger.core.ports import Signer
from ledger.wire.lifecycle_calls import ProposedDefinition, encode_commit_arguments
from ledger.wire.policy import encode_application_policy
from ledger.wire.proposal import make_proposal, result_of

EVALUATE_TIMEOUT_S = 30.0
ENDORSE_TIMEOUT_S = 60.0
SUBMIT_TIMEOUT_S = 30.0
COMMIT_TIMEOUT_S = 120.0

Argument = str | bytes


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """What became of a transaction."""

    transaction_id: str
    code: int
    """Its validation code; 0 is VALID."""

    block_number: int

    @property
    def is_valid(self) -> bool:
        """Whether its writes are in the state."""
        return self.code == Verdict.VALID


class SubmittedTransaction:
    """A transaction that an orderer accepted.

    Attributes:
        transaction_id: Its id.
        result: What the chaincode returned.
    """

    def __init__(self, network: "Network", transaction_id: TxId, result: bytes) -> None:
        """Remember where to ask."""
        self._network = network
        self.transaction_id = transaction_id
        self.result = result

    async def status(self, timeout_s: float = COMMIT_TIMEOUT_S) -> CommitStatus:
        """Wait for the verdict; raises `CallRefused`."""
        return await self._network.commit_status(self.transaction_id, timeout_s)


class Contract:
    """A chaincode on a channel."""

    def __init__(self, network: "Network", name: str) -> None:
        """Name the chaincode."""
        self._network = network
        self.name = name

    async def evaluate(
        self,
        function: str,
        *arguments: Argument,
        transient: Mapping[str, bytes] | None = None,
        organisations: Sequence[str] = (),
    ) -> bytes:
        """Run a function on one peer and give its result; nothing is ordered.

        Raises:
            CallRefused: It failed.
        """
        network = self._network
        tx_id, proposed = network.propose(self.name, function, arguments, transient)
        request = gateway_pb2.EvaluateRequest(
            transaction_id=tx_id, channel_id=network.channel_id, proposed_transaction=proposed,
            target_organizations=list(organisations),
        )  # fmt: skip
        response = await network.gateway.call("Evaluate", request, tx_id, EVALUATE_TIMEOUT_S)
        return bytes(response.result.payload)

    async def submit(
        self,
        function: str,
        *arguments: Argument,
        transient: Mapping[str, bytes] | None = None,
        organisations: Sequence[str] = (),
    ) -> bytes:
        """Have a function endorsed, ordered and committed; give its result.

        Raises:
            CallRefused: It was not endorsed or not ordered.
            TransactionInvalid: It was ordered and found invalid.
        """
        submitted = await self.submit_async(function, *arguments, transient=transient, organisations=organisations)
        status = await submitted.status()
        if not status.is_valid:
            raise TransactionInvalid(status.transaction_id, status.code, status.block_number)
        return submitted.result

    async def submit_async(
        self,
        function: str,
        *arguments: Argument,
        transient: Mapping[str, bytes] | None = None,
        organisations: Sequence[str] = (),
    ) -> SubmittedTransaction:
        """Have a function endorsed and ordered; the verdict is asked for later.

        Raises:
            CallRefused: It was not endorsed, or not ordered; with UNAVAILABLE it may be ordered all the same.
        """
        network = self._network
        tx_id, payload = await self.endorse(function, *arguments, transient=transient, organisations=organisations)
        envelope = common_pb2.Envelope(payload=payload, signature=network.gateway.signer.sign(payload))
        await network.gateway.call(
            "Submit",
            gateway_pb2.SubmitRequest(
                transaction_id=tx_id, channel_id=network.channel_id, prepared_transaction=envelope
            ),
            tx_id,
            SUBMIT_TIMEOUT_S,
        )
        return SubmittedTransaction(network, tx_id, result_of(payload))

    async def endorse(
        self,
        function: str,
        *arguments: Argument,
        transient: Mapping[str, bytes] | None = None,
        organisations: Sequence[str] = (),
    ) -> tuple[TxId, bytes]:
        """Have a function endorsed; give the transaction's id and its payload, which is to be signed.

        Raises:
            CallRefused: It was not.
        """
        network = self._network
        tx_id, proposed = network.propose(self.name, function, arguments, transient)
        request = gateway_pb2.EndorseRequest(
            transaction_id=tx_id, channel_id=network.channel_id, proposed_transaction=proposed,
            endorsing_organizations=list(organisations),
        )  # fmt: skip
        response = await network.gateway.call("Endorse", request, tx_id, ENDORSE_TIMEOUT_S)
        return tx_id, bytes(response.prepared_transaction.payload)


class Network:
    """A channel, as its gateway's peer sees it."""

    def __init__(self, gateway: "Gateway", channel_id: str) -> None:
        """Name the channel."""
        self.gateway = gateway
        self.channel_id = channel_id

    def contract(self, name: str) -> Contract:
        """Give a chaincode of the channel."""
        return Contract(self, name)

    async def commit_status(self, transaction_id: TxId, timeout_s: float = COMMIT_TIMEOUT_S) -> CommitStatus:
        """Wait for the verdict of any transaction of the channel; raises `CallRefused`."""
        signer = self.gateway.signer
        request = gateway_pb2.CommitStatusRequest(
            transaction_id=transaction_id, channel_id=self.channel_id, identity=signer.serialized
        ).SerializeToString()
        signed = gateway_pb2.SignedCommitStatusRequest(request=request, signature=signer.sign(request))
        response = await self.gateway.call("CommitStatus", signed, transaction_id, timeout_s)
        return CommitStatus(transaction_id, response.result, response.block_number)

    def propose(
        self, chaincode: str, function: str, arguments: Sequence[Argument], transient: Mapping[str, bytes] | None
    ) -> tuple[TxId, Any]:
        """Make and sign a proposal; give its transaction id and the SignedProposal."""
        signer = self.gateway.signer
        args = [one.encode() if isinstance(one, str) else one for one in (function, *arguments)]
        tx_id, proposal = make_proposal(
            self.channel_id, chaincode, args, creator=signer.serialized, nonce=os.urandom(24),
            time_ns=time.time_ns(), transient=transient,
        )  # fmt: skip
        return tx_id, proposal_pb2.SignedProposal(proposal_bytes=proposal, signature=signer.sign(proposal))


class Gateway:
    """A connection to a peer's gateway.

    Args:
        address: host:port.
        signer: Who submits.
        tls: Whom to trust; None for a peer without TLS.
    """

    def __init__(self, address: str, signer: Signer, tls: ClientTls | None) -> None:
        """Open the connection lazily."""
        self.address = address
        self.signer = signer
        self._channel = open_channel(address, tls)
        self._stub = gateway_pb2_grpc.GatewayStub(self._channel)

    def network(self, channel_id: str) -> Network:
        """Give a channel of the peer."""
        return Network(self, channel_id)

    async def call(self, name: str, request: Any, transaction_id: str, timeout_s: float) -> Any:
        """Make a call of the gateway service; raises `CallRefused`."""
        try:
            return await getattr(self._stub, name)(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            text = error.details() or ""
            raise CallRefused(name, error.code().name, text, answers_in(error), transaction_id) from error

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


@asynccontextmanager
async def connect(address: str, signer: Signer, tls: ClientTls | None) -> AsyncIterator[Gateway]:
    """Connect to a peer's gateway at `host:port`; the connection opens at the first call."""
    gateway = Gateway(address, signer, tls)
    try:
        yield gateway
    finally:
        await gateway.close()


def answers_in(error: grpc.aio.AioRpcError) -> tuple[NodeAnswer, ...]:
    """Take the answers of single nodes out of a refusal's details."""
    try:
        status = rpc_status.from_call(error)
    except ValueError:
        return ()
    found = []
    for packed in status.details if status is not None else ():
        detail = gateway_pb2.ErrorDetail()
        if packed.Unpack(detail):
            found.append(NodeAnswer(detail.address, detail.msp_id, detail.message))
    return tuple(found)


async def commit_definition(
    network: Network, name: str, version: str = "1.0", sequence: int = 1, policy: str | None = None
) -> None:
    """Commit a chaincode definition to a channel.

    Args:
        network: The channel.
        name: Name of the chaincode.
        version: Version of the definition.
        sequence: 1 for the first definition, one more for each change.
        policy: Endorsement policy, as `AND('Org1MSP.peer','Org2MSP.peer')`; the channel's default without it.

    Raises:
        InvalidPolicy: The policy is none.
        CallRefused, TransactionInvalid: It was not committed.
    """
    parameter = b"" if policy is None else encode_application_policy(parse_policy(policy))
    definition = ProposedDefinition(name, sequence, version, "", "", parameter, b"", False)
    await network.contract("_lifecycle").submit("CommitChaincodeDefinition", encode_commit_arguments(definition))


__all__ = [
    "CommitStatus",
    "Contract",
    "Gateway",
    "Network",
    "SubmittedTransaction",
    "commit_definition",
    "connect",
]
