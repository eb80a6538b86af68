"""What is in an envelope?  Bytes of a block to `core.transaction.Transaction`, faults included, in Fabric's order.

Numbered as a peer checks them (fabric: core/common/validation/msgvalidation.go, then
core/committer/txvalidator/v20/plugindispatcher). Stage HEADER:

1. the envelope decodes (255), then its payload (2), which has a header with channel header and signature header (3);
2. the header type is CONFIG, CONFIG_UPDATE or ENDORSER_TRANSACTION, the epoch 0, nonce and creator are there (3).

Stage BODY, after the creator's signature:

3. CONFIG_UPDATE has no place in a block (7);
4. the transaction id is that of nonce and creator (8);
5. the transaction has exactly one action, whose header has nonce and creator, whose parts decode, and whose proposal
   hash is that of headers and proposal (5).

Stage CHAINCODE, after the look for an earlier transaction of that id:

6. the header extension decodes (19), the chaincode action is there and decodes (21), its read-write set decodes (22);
7. both name a chaincode (255), the same one, with a version (25); an event decodes and is of that chaincode (255);
8. no namespace stands twice in the set (23).

Nothing else is looked at: status, timestamp, arguments and unknown fields are whatever the client wrote.
"""

from hashlib import sha256
from typing import Any

from fabric_protos.common import common_pb2
from fabric_protos.peer import chaincode_event_pb2, proposal_pb2, proposal_response_pb2, transaction_pb2

from ledger.core.errors import Fault, MalformedMessage, shown
from ledger.core.hashing import transaction_id
from ledger.core.names import TxId, Verdict
from ledger.core.rwset import ReadWriteSet
from ledger.core.transaction import (
    CONFIG,
    CONFIG_UPDATE,
    ENDORSER_TRANSACTION,
    Action,
    Endorsement,
    Event,
    Stage,
    Transaction,
)
from ledger.core.unrecordable import NO_ENDORSED_ACTION, NO_HEADER, UNDECODABLE_BODY
from ledger.wire.block import split_envelope
from ledger.wire.messages import parse, parts_of
from ledger.wire.rwset import decode_rwset

KINDS = (CONFIG, CONFIG_UPDATE, ENDORSER_TRANSACTION)
"""Header types that pass the header check."""


class Faulty(Exception):
    """Carries the first fault out of the steps."""

    def __init__(self, verdict: Verdict, rule: str, detail: str = "") -> None:
        """Say which rule was broken and how."""
        super().__init__(rule)
        self.fault = Fault(int(verdict), rule, detail)


def decode_transaction(envelope: bytes) -> Transaction:
    """Take an envelope apart; never raises: what is wrong with it is in the value.

    Args:
        envelope: A serialized `common.Envelope` of a well-formed block.
    """
    with parts_of(envelope):
        return from_envelope(envelope)


def from_envelope(envelope: bytes) -> Transaction:
    """Go through step 1 up to the payload, and through the others with its header."""
    parts = split_envelope(envelope)
    if parts is not None:
        payload_bytes, signature = parts
    else:
        try:
            message = parse(common_pb2.Envelope, envelope, "Envelope")
        except MalformedMessage as error:
            return undecoded(b"", b"", Fault(int(Verdict.INVALID_OTHER_REASON), "envelope message", str(error)))
        payload_bytes, signature = message.payload, message.signature
    try:
        payload = parse(common_pb2.Payload, payload_bytes, "Payload")
    except MalformedMessage as error:
        return undecoded(payload_bytes, signature, Fault(int(Verdict.BAD_PAYLOAD), "payload message", str(error)))
    return from_payload(payload, payload_bytes, signature)


def undecoded(payload: bytes, signature: bytes, fault: Fault, tx_id: str = "") -> Transaction:
    """Make the value of an envelope without a readable header."""
    return Transaction(TxId(tx_id), -1, "", payload, signature, b"", b"", None, fault, Stage.HEADER)


def from_payload(payload: Any, payload_bytes: bytes, signature: bytes) -> Transaction:
    """Go through steps 1 to 8 from the header on."""
    if not payload.HasField("header"):
        return undecoded(payload_bytes, signature, Fault(int(NO_HEADER), "header", "none"))
    header = payload.header
    try:
        channel_header = parse(common_pb2.ChannelHeader, header.channel_header, "ChannelHeader")
    except MalformedMessage as error:
        fault = Fault(int(Verdict.BAD_COMMON_HEADER), "channel header message", str(error))
        return undecoded(payload_bytes, signature, fault)
    claimed = channel_header.tx_id
    try:
        signature_header = parse(common_pb2.SignatureHeader, header.signature_header, "SignatureHeader")
    except MalformedMessage as error:
        fault = Fault(int(Verdict.BAD_COMMON_HEADER), "signature header message", str(error))
        return undecoded(payload_bytes, signature, fault, claimed)
    nonce, creator, kind = signature_header.nonce, signature_header.creator, channel_header.type
    computed = transaction_id(nonce, creator)
    action, fault_found, stage = None, None, Stage.HEADER
    try:
        check_header(kind, channel_header.epoch, nonce, creator)
        stage = Stage.BODY
        if kind == CONFIG_UPDATE:
            raise Faulty(Verdict.UNSUPPORTED_TX_PAYLOAD, "header type", "CONFIG_UPDATE in a block")
        if kind == ENDORSER_TRANSACTION:
            if claimed != computed:
                raise Faulty(
                    Verdict.BAD_PROPOSAL_TXID, "transaction id", f"expected {computed}, found {shown(claimed)}"
                )
            endorsed, endorsements = endorsed_action(payload.data, header)
            stage = Stage.CHAINCODE
            action = chaincode_action(channel_header.extension, endorsed, endorsements)
    except Faulty as faulty:
        fault_found = faulty.fault
    return Transaction(
        TxId(claimed or computed),
        kind,
        channel_header.channel_id,
        payload_bytes,
        signature,
        creator,
        payload.data if kind == CONFIG else b"",
        action,
        fault_found,
        stage,
    )


def check_header(kind: int, epoch: int, nonce: bytes, creator: bytes) -> None:
    """Check the fields of both headers (step 2)."""
    if kind not in KINDS:
        raise Faulty(Verdict.BAD_COMMON_HEADER, "header type", f"expected one of {KINDS}, found {kind}")
    if epoch != 0:
        raise Faulty(Verdict.BAD_COMMON_HEADER, "epoch", f"expected 0, found {epoch}")
    if not nonce:
        raise Faulty(Verdict.BAD_COMMON_HEADER, "nonce", "expected some bytes, found none")
    if not creator:
        raise Faulty(Verdict.BAD_COMMON_HEADER, "creator", "expected an identity, found none")


def endorsed_action(data: bytes, header: Any) -> tuple[Any, Any]:
    """Check the structure of an endorser transaction (step 5).

    Returns:
        The decoded ProposalResponsePayload with its bytes, and the endorsements.
    """
    try:
        return checked_action(data, header)
    except MalformedMessage as error:
        raise Faulty(UNDECODABLE_BODY, f"{error.subject} message", str(error)) from error


def checked_action(data: bytes, header: Any) -> tuple[Any, Any]:
    """Check the structure; undecodable parts raise `MalformedMessage`."""
    invalid = Verdict.INVALID_ENDORSER_TRANSACTION
    if not data:
        raise Faulty(invalid, "transaction", "expected a Transaction message, found nothing")
    actions = parse(transaction_pb2.Transaction, data, "Transaction").actions
    if len(actions) != 1:
        raise Faulty(NO_ENDORSED_ACTION, "action count", f"expected 1, found {len(actions)}")
    action_header = actions[0].header
    if action_header != header.signature_header:  # Equal ones were checked already.
        signature_header = parse(common_pb2.SignatureHeader, action_header, "SignatureHeader")
        if not (signature_header.nonce and signature_header.creator):
            raise Faulty(invalid, "action header", "expected nonce and creator, found none")
    payload = parse(transaction_pb2.ChaincodeActionPayload, actions[0].payload, "ChaincodeActionPayload")
    if not payload.HasField("action"):
        raise Faulty(NO_ENDORSED_ACTION, "endorsed action", "expected a ChaincodeEndorsedAction, found none")
    response_bytes = payload.action.proposal_response_payload
    response = parse(proposal_response_pb2.ProposalResponsePayload, response_bytes, "ProposalResponsePayload")
    proposal = payload.chaincode_proposal_payload
    if not proposal:
        raise Faulty(invalid, "proposal payload", "expected a ChaincodeProposalPayload, found nothing")
    computed = sha256(header.channel_header + action_header + proposal).digest()
    if computed != response.proposal_hash:
        raise Faulty(invalid, "proposal hash", f"expected {computed.hex()}, found {shown(response.proposal_hash)}")
    return (response, response_bytes), payload.action.endorsements


def chaincode_action(extension_bytes: bytes, endorsed: tuple[Any, bytes], endorsements: Any) -> Action:
    """Check what was called and what it did (steps 6 to 8)."""
    response, response_bytes = endorsed
    try:
        extension = parse(proposal_pb2.ChaincodeHeaderExtension, extension_bytes, "ChaincodeHeaderExtension")
    except MalformedMessage as error:
        raise Faulty(Verdict.BAD_HEADER_EXTENSION, "header extension message", str(error)) from error
    if not response.extension:
        raise Faulty(Verdict.BAD_RESPONSE_PAYLOAD, "chaincode action", "expected a ChaincodeAction, found nothing")
    try:
        action = parse(proposal_pb2.ChaincodeAction, response.extension, "ChaincodeAction")
    except MalformedMessage as error:
        raise Faulty(Verdict.BAD_RESPONSE_PAYLOAD, "chaincode action message", str(error)) from error
    try:
        rwset = decode_rwset(action.results)
    except MalformedMessage as error:
        raise Faulty(Verdict.BAD_RWSET, f"{error.subject} message", str(error)) from error
    name, version = invoked_chaincode(extension, action)
    event = chaincode_event(action.events, name) if action.events else None
    check_namespaces(rwset)
    return Action(
        name,
        version,
        rwset,
        event,
        response_bytes,
        tuple([Endorsement(each.endorser, each.signature) for each in endorsements]),
    )


def invoked_chaincode(extension: Any, action: Any) -> tuple[str, str]:
    """Check that header and action name the same chaincode; return it and its version."""
    if not extension.HasField("chaincode_id"):
        raise Faulty(Verdict.INVALID_OTHER_REASON, "chaincode id in header extension", "none")
    if not action.HasField("chaincode_id"):
        raise Faulty(Verdict.INVALID_OTHER_REASON, "chaincode id in action", "none")
    name, found = extension.chaincode_id.name, action.chaincode_id
    if not name:
        raise Faulty(Verdict.INVALID_CHAINCODE, "chaincode name", "expected a name, found none")
    if name != found.name:
        raise Faulty(Verdict.INVALID_CHAINCODE, "chaincode name", f"expected {shown(name)}, found {shown(found.name)}")
    if not found.version:
        raise Faulty(Verdict.INVALID_CHAINCODE, "chaincode version", "expected a version, found none")
    return name, found.version


def chaincode_event(data: bytes, chaincode: str) -> Event:
    """Check that an event decodes and is of the chaincode invoked."""
    try:
        event = parse(chaincode_event_pb2.ChaincodeEvent, data, "ChaincodeEvent")
    except MalformedMessage as error:
        raise Faulty(Verdict.INVALID_OTHER_REASON, "event message", str(error)) from error
    if event.chaincode_id != chaincode:
        raise Faulty(
            Verdict.INVALID_OTHER_REASON,
            "event chaincode",
            f"expected {shown(chaincode)}, found {shown(event.chaincode_id)}",
        )
    return Event(event.chaincode_id, event.tx_id, event.event_name, event.payload)


def check_namespaces(rwset: ReadWriteSet) -> None:
    """Check that no namespace stands twice in the set (step 8)."""
    names = {each.namespace for each in rwset.namespaces}
    if len(names) != len(rwset.namespaces):
        raise Faulty(Verdict.ILLEGAL_WRITESET, "namespace twice", shown([each.namespace for each in rwset.namespaces]))


__all__ = ["decode_transaction"]
