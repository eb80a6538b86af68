"""How do proposals, their answers and the transactions made of them look as bytes?

Formats: peer/proposal.proto, proposal_response.proto, transaction.proto, chaincode.proto. What was signed is kept as it
came; the only part that is written anew is the proposal's payload, without the transient data, as every client and peer
of Fabric does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fabric_protos.common import common_pb2
from fabric_protos.peer import (
    chaincode_event_pb2,
    chaincode_pb2,
    proposal_pb2,
    proposal_response_pb2,
    transaction_pb2,
)

from ledger.core.errors import InvalidProposal, MalformedMessage
from ledger.core.hashing import transaction_id
from ledger.core.names import TxId
from ledger.core.proposal import Proposal, ProposalAnswer
from ledger.core.transaction import ENDORSER_TRANSACTION, Endorsement
from ledger.wire.messages import parse

ANSWER_VERSION = 1
"""ProposalResponse.version of an answer with a result."""


# -- proposals


def split_signed_proposal(data: bytes) -> tuple[bytes, bytes]:
    """Take a serialized SignedProposal apart: the Proposal's bytes and the signature.

    Raises:
        InvalidProposal: It does not decode; the subject is the text for the client.
    """
    try:
        message = parse(proposal_pb2.SignedProposal, data, "SignedProposal")
    except MalformedMessage as error:
        raise unreadable(error) from error
    return message.proposal_bytes, message.signature


def read_proposal(signed: bytes, signature: bytes) -> Proposal:
    """Take a serialized Proposal with its signature apart; nothing is checked but that its parts are there.

    Raises:
        InvalidProposal: A part does not decode or is missing; the subject is the text for the client.
    """
    try:
        message = parse(proposal_pb2.Proposal, signed, "Proposal")
        header = parse(common_pb2.Header, message.header, "Header")
        channel = parse(common_pb2.ChannelHeader, header.channel_header, "ChannelHeader")
        signer = parse(common_pb2.SignatureHeader, header.signature_header, "SignatureHeader")
        extension = parse(proposal_pb2.ChaincodeHeaderExtension, channel.extension, "ChaincodeHeaderExtension")
        if not extension.HasField("chaincode_id"):
            raise missing("ChaincodeHeaderExtension.ChaincodeId is nil")
        if not extension.chaincode_id.name:
            raise missing("ChaincodeHeaderExtension.ChaincodeId.Name is empty")
        payload = parse(proposal_pb2.ChaincodeProposalPayload, message.payload, "ChaincodeProposalPayload")
        spec = parse(chaincode_pb2.ChaincodeInvocationSpec, payload.input, "ChaincodeInvocationSpec")
    except MalformedMessage as error:
        raise unreadable(error) from error
    if not spec.HasField("chaincode_spec"):
        raise missing("chaincode invocation spec did not contain chaincode spec")
    if not spec.chaincode_spec.HasField("input"):
        raise missing("chaincode input did not contain any input")
    stamp = channel.timestamp
    return Proposal(
        kind=channel.type,
        channel_id=channel.channel_id,
        epoch=channel.epoch,
        tx_id=TxId(channel.tx_id),
        timestamp=(stamp.seconds, stamp.nanos) if channel.HasField("timestamp") else None,
        creator=signer.creator,
        nonce=signer.nonce,
        chaincode=extension.chaincode_id.name,
        args=tuple(spec.chaincode_spec.input.args),
        transient=dict(payload.TransientMap),
        is_init=spec.chaincode_spec.input.is_init,
        channel_header=header.channel_header,
        signature_header=header.signature_header,
        payload=stripped(payload.input),
        signed=signed,
        signature=signature,
    )


def stripped(chaincode_input: bytes) -> bytes:
    """Write a ChaincodeProposalPayload without transient data."""
    return bytes(proposal_pb2.ChaincodeProposalPayload(input=chaincode_input).SerializeToString())


def missing(text: str) -> InvalidProposal:
    """Say in Fabric's words which part of a proposal is missing."""
    return InvalidProposal(text, rule="proposal parts", expected="every part", found="one missing")


def unreadable(error: MalformedMessage) -> InvalidProposal:
    """Say which part of a proposal does not decode."""
    return InvalidProposal(
        f"error unmarshalling {error.subject}", rule=f"{error.subject} message", expected=error.expected,
        found=error.found,
    )  # fmt: skip


def make_proposal(
    channel_id: str,
    chaincode: str,
    args: Sequence[bytes],
    *,
    creator: bytes,
    nonce: bytes,
    time_ns: int,
    transient: Mapping[str, bytes] | None = None,
) -> tuple[TxId, bytes]:
    """Write a Proposal as a client does.

    Args:
        channel_id: Channel; "" for a call without channel.
        chaincode: What is called.
        args: Function name and parameters.
        creator: SerializedIdentity of the client.
        nonce: 24 random bytes, never used before.
        time_ns: Nanoseconds since 1970.
        transient: Data for the chaincode's eyes only.

    Returns:
        The transaction id, and the bytes to sign.
    """
    tx_id = transaction_id(nonce, creator)
    called = chaincode_pb2.ChaincodeID(name=chaincode)
    channel_header = common_pb2.ChannelHeader(
        type=ENDORSER_TRANSACTION,
        channel_id=channel_id,
        tx_id=tx_id,
        extension=proposal_pb2.ChaincodeHeaderExtension(chaincode_id=called).SerializeToString(),
    )
    channel_header.timestamp.FromNanoseconds(time_ns)
    header = common_pb2.Header(
        channel_header=channel_header.SerializeToString(),
        signature_header=common_pb2.SignatureHeader(creator=creator, nonce=nonce).SerializeToString(),
    )
    spec = chaincode_pb2.ChaincodeInvocationSpec(
        chaincode_spec=chaincode_pb2.ChaincodeSpec(
            type=chaincode_pb2.ChaincodeSpec.GOLANG,
            chaincode_id=called,
            input=chaincode_pb2.ChaincodeInput(args=list(args)),
        )
    )
    payload = proposal_pb2.ChaincodeProposalPayload(input=spec.SerializeToString(), TransientMap=dict(transient or {}))
    message = proposal_pb2.Proposal(header=header.SerializeToString(), payload=payload.SerializeToString())
    return tx_id, bytes(message.SerializeToString())


def encode_signed_proposal(signed: bytes, signature: bytes) -> bytes:
    """Write a SignedProposal."""
    return bytes(proposal_pb2.SignedProposal(proposal_bytes=signed, signature=signature).SerializeToString())


# -- answers


def encode_result(
    proposal: Proposal,
    *,
    results: bytes,
    event: tuple[str, bytes] | None,
    response: tuple[int, str, bytes],
    version: str,
) -> bytes:
    """Write the ProposalResponsePayload of a simulation: equal bytes on every endorser.

    Args:
        proposal: What was simulated.
        results: Serialized TxReadWriteSet.
        event: Name and payload of the chaincode's event.
        response: Status, message and payload of the chaincode's response.
        version: Version of the chaincode's definition.
    """
    status, message, payload = response
    action = proposal_pb2.ChaincodeAction(
        results=results,
        response=proposal_response_pb2.Response(status=status, message=message, payload=payload),
        chaincode_id=chaincode_pb2.ChaincodeID(name=proposal.chaincode, version=version),
    )
    if event is not None:
        action.events = chaincode_event_pb2.ChaincodeEvent(
            chaincode_id=proposal.chaincode, tx_id=proposal.tx_id, event_name=event[0], payload=event[1]
        ).SerializeToString()
    message_out = proposal_response_pb2.ProposalResponsePayload(
        proposal_hash=proposal.hash, extension=action.SerializeToString()
    )
    return bytes(message_out.SerializeToString())


def encode_answer(answer: ProposalAnswer) -> bytes:
    """Write a ProposalResponse."""
    message = proposal_response_pb2.ProposalResponse(
        response=proposal_response_pb2.Response(status=answer.status, message=answer.message, payload=answer.payload)
    )
    if answer.response_payload:
        message.version = ANSWER_VERSION
        message.payload = answer.response_payload
        for namespace in answer.namespaces:
            message.interest.chaincodes.add(name=namespace)
    if answer.endorsement is not None:
        message.endorsement.endorser = answer.endorsement.endorser
        message.endorsement.signature = answer.endorsement.signature
    return bytes(message.SerializeToString())


def decode_answer(data: bytes) -> ProposalAnswer:
    """Read a ProposalResponse.

    Raises:
        MalformedMessage: It does not decode or has no response.
    """
    message = parse(proposal_response_pb2.ProposalResponse, data, "ProposalResponse")
    if not message.HasField("response"):
        raise MalformedMessage("ProposalResponse", rule="response", expected="one", found="none")
    endorsement = None
    if message.HasField("endorsement"):
        endorsement = Endorsement(message.endorsement.endorser, message.endorsement.signature)
    response = message.response
    return ProposalAnswer(
        response.status,
        response.message,
        response.payload,
        message.payload,
        endorsement,
        tuple(dict.fromkeys(each.name for each in message.interest.chaincodes)),
    )


# -- transactions


def assemble(proposal: Proposal, response_payload: bytes, endorsements: Sequence[Endorsement]) -> bytes:
    """Write the Payload of the transaction that a proposal and its endorsements make; the client signs it.

    Endorsements by one endorser count once.
    """
    distinct = {one.endorser: one for one in reversed(endorsements)}
    kept = [one for one in endorsements if distinct[one.endorser] is one]
    action = transaction_pb2.ChaincodeActionPayload(
        chaincode_proposal_payload=proposal.payload,
        action=transaction_pb2.ChaincodeEndorsedAction(
            proposal_response_payload=response_payload,
            endorsements=[
                proposal_response_pb2.Endorsement(endorser=one.endorser, signature=one.signature) for one in kept
            ],
        ),
    )
    transaction = transaction_pb2.Transaction(
        actions=[
            transaction_pb2.TransactionAction(header=proposal.signature_header, payload=action.SerializeToString())
        ]
    )
    payload = common_pb2.Payload(
        header=common_pb2.Header(channel_header=proposal.channel_header, signature_header=proposal.signature_header),
        data=transaction.SerializeToString(),
    )
    return bytes(payload.SerializeToString())


def encode_envelope(payload: bytes, signature: bytes) -> bytes:
    """Write an Envelope."""
    return bytes(common_pb2.Envelope(payload=payload, signature=signature).SerializeToString())


def result_of(payload: bytes) -> bytes:
    """Take what the chaincode returned out of the Payload of a transaction.

    Raises:
        MalformedMessage: It is no endorser transaction.
    """
    found = actions_in(parse(common_pb2.Payload, payload, "Payload").data)
    if not found:
        raise MalformedMessage("Transaction", rule="action count", expected=1, found=0)
    return bytes(chaincode_action(found[0]).response.payload)


def actions_in(transaction: bytes) -> tuple[bytes, ...]:
    """Take the ProposalResponsePayload of each action out of a Transaction.

    Raises:
        MalformedMessage: It does not decode.
    """
    kind = "ChaincodeActionPayload"
    actions = parse(transaction_pb2.Transaction, transaction, "Transaction").actions
    return tuple(
        parse(transaction_pb2.ChaincodeActionPayload, one.payload, kind).action.proposal_response_payload
        for one in actions
    )


def chaincode_action(response_payload: bytes) -> Any:
    """Take the ChaincodeAction out of a ProposalResponsePayload.

    Raises:
        MalformedMessage: It does not decode.
    """
    response = parse(proposal_response_pb2.ProposalResponsePayload, response_payload, "ProposalResponsePayload")
    return parse(proposal_pb2.ChaincodeAction, response.extension, "ChaincodeAction")


__all__ = [
    "actions_in",
    "assemble",
    "chaincode_action",
    "decode_answer",
    "encode_answer",
    "encode_envelope",
    "encode_result",
    "encode_signed_proposal",
    "make_proposal",
    "read_proposal",
    "result_of",
    "split_signed_proposal",
]
