"""How do blocks, envelopes and read-write sets look to people?  Plain JSON values of what is in the bytes.

Nothing here judges: what does not decode is shown as bytes, with the reason under `undecodable`. Byte strings appear
as base64, with their text beside it where it is readable UTF-8. Hashes and nonces are hex. The same values are shown
by the REST interface and by `peerledger block show`.
"""

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID
from fabric_protos.common import common_pb2
from fabric_protos.msp import identities_pb2
from fabric_protos.peer import chaincode_event_pb2, chaincode_pb2, proposal_pb2, proposal_response_pb2, transaction_pb2

from ledger.core import block as block_slots
from ledger.core.block import Block
from ledger.core.errors import LedgerError, MalformedMessage
from ledger.core.hashing import digest, header_hash
from ledger.core.names import verdict_name
from ledger.core.rwset import CollectionSet, MerkleSummary, NamespaceSet, RangeQuery, Read, Write
from ledger.core.state import Version
from ledger.wire.messages import parse
from ledger.wire.render_config import render_config_envelope
from ledger.wire.rwset import decode_rwset

Json = dict[str, Any]
"""A JSON object."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def render_bytes(value: bytes) -> Json:
    """Show a byte string as base64, with its text where it is readable UTF-8 and null where not."""
    return {"base64": b64encode(value).decode(), "text": readable_text(value)}


def readable_text(value: bytes) -> str | None:
    """Return the text of UTF-8 bytes that a person can read, None for others."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if all(char.isprintable() or char in "\n\r\t" for char in text) else None


def render_block(block: Block) -> Json:
    """Show a block: header with its hash, metadata slots, and each transaction with its verdict.

    Verdicts are those in slot 2, thus of the peer that gave the block; they are null where it is empty.
    """
    header = block.header
    verdicts = block.metadata[block_slots.SLOT_VERDICTS] if len(block.metadata) > block_slots.SLOT_VERDICTS else b""
    return {
        "number": header.number,
        "block_hash": header_hash(header.number, header.previous_hash, header.data_hash).hex(),
        "previous_hash": header.previous_hash.hex(),
        "data_hash": header.data_hash.hex(),
        "commit_hash": _commit_hash(block),
        "orderer_signatures": _orderer_signatures(block),
        "transactions": [
            {"index": index, **_verdict(verdicts, index), **render_envelope(envelope)}
            for index, envelope in enumerate(block.envelopes)
        ],
    }


def _verdict(verdicts: bytes, index: int) -> Json:
    if index >= len(verdicts):
        return {"verdict": None, "verdict_code": None}
    return {"verdict": verdict_name(verdicts[index]), "verdict_code": verdicts[index]}


def _commit_hash(block: Block) -> str | None:
    if len(block.metadata) <= block_slots.SLOT_COMMIT_HASH or not block.metadata[block_slots.SLOT_COMMIT_HASH]:
        return None
    try:
        return str(parse(common_pb2.Metadata, block.metadata[block_slots.SLOT_COMMIT_HASH], "slot 4").value.hex())
    except MalformedMessage:
        return None


def _orderer_signatures(block: Block) -> list[Json]:
    """List who signed the block; signatures of byzantine orderers name a number, which only the configuration knows."""
    try:
        metadata = parse(common_pb2.Metadata, block.metadata[block_slots.SLOT_SIGNATURES], "slot 0")
        signers = []
        for signature in metadata.signatures:
            if signature.identifier_header:
                header = parse(common_pb2.IdentifierHeader, signature.identifier_header, "IdentifierHeader")
                signers.append({"consenter": header.identifier})
            else:
                header = parse(common_pb2.SignatureHeader, signature.signature_header, "SignatureHeader")
                signers.append(render_identity(header.creator))
    except (MalformedMessage, IndexError):
        return []
    return signers


def render_envelope(envelope: bytes) -> Json:
    """Show an envelope: its headers, creator, and what its type makes of its data; undecodable parts say why."""
    shown: Json = {"envelope_digest": digest(envelope).hex(), "size_bytes": len(envelope)}
    try:
        message = parse(common_pb2.Envelope, envelope, "Envelope")
        payload = parse(common_pb2.Payload, message.payload, "Payload")
        shown["signature"] = b64encode(message.signature).decode()
        channel_header = parse(common_pb2.ChannelHeader, payload.header.channel_header, "ChannelHeader")
        shown |= _channel_header(channel_header)
        signature_header = parse(common_pb2.SignatureHeader, payload.header.signature_header, "SignatureHeader")
        shown["creator"] = render_identity(signature_header.creator)
        shown["nonce"] = signature_header.nonce.hex()
        shown |= _data(channel_header.type, payload.data)
    except MalformedMessage as error:
        shown["undecodable"] = str(error)
    return shown


def _channel_header(header: Any) -> Json:
    return {
        "type": _type_name(header.type),
        "channel_id": header.channel_id,
        "tx_id": header.tx_id,
        "epoch": header.epoch,
        "timestamp": _time(header.timestamp),
    }


def _type_name(number: int) -> str:
    known = common_pb2.HeaderType.DESCRIPTOR.values_by_number.get(number)
    return known.name if known is not None else str(number)


def _time(timestamp: Any) -> str | None:
    """Give a client's claimed time; None where it is none that a calendar knows."""
    if not timestamp.seconds and not timestamp.nanos:
        return None
    try:
        return (_EPOCH + timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // 1000)).isoformat()
    except OverflowError:
        return None


def _data(kind: int, data: bytes) -> Json:
    match kind:
        case common_pb2.ENDORSER_TRANSACTION:
            transaction = parse(transaction_pb2.Transaction, data, "Transaction")
            return {"actions": [_action(action) for action in transaction.actions]}
        case common_pb2.CONFIG:
            return {"config": render_config_envelope(data)}
        case _:
            return {"data": render_bytes(data)}


def _action(action: Any) -> Json:
    """Show one action of an endorser transaction, as far as it decodes."""
    shown: Json = {}
    try:
        payload = parse(transaction_pb2.ChaincodeActionPayload, action.payload, "ChaincodeActionPayload")
        shown["endorsers"] = [render_identity(endorsement.endorser) for endorsement in payload.action.endorsements]
        shown |= _invocation(payload.chaincode_proposal_payload)
        result = _chaincode_action(payload)
        shown["chaincode"] = {"name": result.chaincode_id.name, "version": result.chaincode_id.version}
        shown["response"] = {
            "status": result.response.status,
            "message": result.response.message,
            "payload": render_bytes(result.response.payload),
        }
        shown["event"] = _event(result.events)
        shown["rwset"] = render_rwset(result.results)
    except MalformedMessage as error:
        shown["undecodable"] = str(error)
    return shown


def render_change(envelope: bytes, namespace: str, key: str) -> Json:
    """Show what a valid transaction wrote under a public key: its last write of it, with id and claimed time.

    Raises:
        MalformedMessage: The envelope is no endorser transaction.
    """
    payload = parse(common_pb2.Payload, parse(common_pb2.Envelope, envelope, "Envelope").payload, "Payload")
    channel_header = parse(common_pb2.ChannelHeader, payload.header.channel_header, "ChannelHeader")
    shown: Json = {"tx_id": channel_header.tx_id, "timestamp": _time(channel_header.timestamp)}
    for action in parse(transaction_pb2.Transaction, payload.data, "Transaction").actions:
        for written in decode_rwset(_results(action)).namespaces:
            if written.namespace != namespace:
                continue
            for write in written.writes:
                if write.key == key:
                    shown |= {"delete": write.deletes, "value": None if write.deletes else render_bytes(write.value)}
    return shown


def _results(action: Any) -> bytes:
    payload = parse(transaction_pb2.ChaincodeActionPayload, action.payload, "ChaincodeActionPayload")
    return bytes(_chaincode_action(payload).results)


def _chaincode_action(payload: Any) -> Any:
    response = parse(
        proposal_response_pb2.ProposalResponsePayload,
        payload.action.proposal_response_payload,
        "ProposalResponsePayload",
    )
    return parse(proposal_pb2.ChaincodeAction, response.extension, "ChaincodeAction")


def _invocation(proposal_payload: bytes) -> Json:
    proposal = parse(proposal_pb2.ChaincodeProposalPayload, proposal_payload, "ChaincodeProposalPayload")
    spec = parse(chaincode_pb2.ChaincodeInvocationSpec, proposal.input, "ChaincodeInvocationSpec").chaincode_spec
    return {"invoked": spec.chaincode_id.name, "arguments": [render_bytes(argument) for argument in spec.input.args]}


def _event(data: bytes) -> Json | None:
    if not data:
        return None
    event = parse(chaincode_event_pb2.ChaincodeEvent, data, "ChaincodeEvent")
    return {"name": event.event_name, "chaincode": event.chaincode_id, "payload": render_bytes(event.payload)}


def render_identity(serialized: bytes) -> Json:
    """Show who signed: MSP ID, common name and subject of the certificate, digest of what names it."""
    try:
        identity = parse(identities_pb2.SerializedIdentity, serialized, "SerializedIdentity")
    except MalformedMessage:
        return {"undecodable": render_bytes(serialized)}
    common_name, subject = _subject(identity.id_bytes)
    return {"msp_id": identity.mspid, "name": common_name, "subject": subject, "digest": digest(serialized).hex()}


@lru_cache(maxsize=4096)
def _subject(pem: bytes) -> tuple[str | None, str | None]:
    """Read common name and subject of a certificate; both None where it can't be read."""
    try:
        subject = x509.load_pem_x509_certificate(pem).subject
        names = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        return (names[0] if names else None), subject.rfc4514_string()
    except ValueError:
        return None, None


def render_rwset(results: bytes) -> Json:
    """Show a serialized TxReadWriteSet; one that does not decode says why."""
    try:
        rwset = decode_rwset(results)
    except LedgerError as error:
        return {"undecodable": str(error), "bytes": render_bytes(results)}
    return {"namespaces": [_namespace(namespace) for namespace in rwset.namespaces]}


def _namespace(namespace: NamespaceSet) -> Json:
    return {
        "namespace": namespace.namespace,
        "reads": [_read(read) for read in namespace.reads],
        "range_queries": [_range(query) for query in namespace.range_queries],
        "writes": [_write(write) for write in namespace.writes],
        "metadata_writes": [
            {"key": write.key, "entries": {name: render_bytes(value) for name, value in write.entries}}
            for write in namespace.metadata_writes
        ],
        "collections": [_collection(collection) for collection in namespace.collections],
    }


def render_version(version: Version | None) -> Json | None:
    """Show the last writer of an entry; None for a key that was absent."""
    return None if version is None else {"block": version.block, "index": version.index}


def _read(read: Read) -> Json:
    return {"key": read.key, "version": render_version(read.version)}


def _write(write: Write) -> Json:
    if write.deletes:
        return {"key": write.key, "delete": True}
    return {"key": write.key, "value": render_bytes(write.value)}


def _range(query: RangeQuery) -> Json:
    return {
        "start": query.start,
        "end": query.end,
        "exhausted": query.exhausted,
        "reads": None if query.raw_reads is None else [_read(read) for read in query.raw_reads],
        "merkle": None if query.merkle is None else _merkle(query.merkle),
    }


def _merkle(summary: MerkleSummary) -> Json:
    return {
        "max_degree": summary.max_degree,
        "max_level": summary.max_level,
        "hashes": [value.hex() for value in summary.hashes],
    }


def _collection(collection: CollectionSet) -> Json:
    return {
        "collection": collection.collection,
        "reads": [
            {"key_hash": read.key_hash.hex(), "version": render_version(read.version)} for read in collection.reads
        ],
        "writes": [
            {
                "key_hash": write.key_hash.hex(),
                "value_hash": write.value_hash.hex(),
                "delete": write.is_delete,
                "purge": write.is_purge,
            }
            for write in collection.writes
        ],
        "metadata_writes": [
            {"key_hash": write.key_hash.hex(), "entries": {name: render_bytes(value) for name, value in write.entries}}
            for write in collection.metadata_writes
        ],
        "private_rwset_hash": collection.pvt_rwset_hash.hex(),
    }
