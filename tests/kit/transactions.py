"""Endorsed transactions with real signatures, any part of which a test may forge."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from fabric_protos.common import common_pb2
from fabric_protos.peer import chaincode_event_pb2, chaincode_pb2, proposal_pb2, proposal_response_pb2, transaction_pb2

from ledger.core.hashing import transaction_id
from ledger.core.rwset import CollectionSet, MetadataWrite, NamespaceSet, RangeQuery, Read, ReadWriteSet, Write
from ledger.core.state import Version
from ledger.core.transaction import CONFIG, ENDORSER_TRANSACTION
from ledger.wire.rwset import encode_rwset
from tests.kit.organisations import Signer

NONCES = itertools.count(1)
NOTHING = ReadWriteSet()


def writes(namespace: str, *keys: str, value: bytes = b"value") -> ReadWriteSet:
    """A set that writes keys blindly."""
    return ReadWriteSet((NamespaceSet(namespace, writes=tuple(Write(key, value) for key in keys)),))


def in_namespace(
    namespace: str,
    *,
    reads: Sequence[tuple[str, tuple[int, int] | None]] = (),
    ranges: Sequence[RangeQuery] = (),
    writes: Sequence[Write] = (),
    metadata: Sequence[MetadataWrite] = (),
    collections: Sequence[CollectionSet] = (),
) -> NamespaceSet:
    """One namespace of a set; versions as pairs."""
    versions = [Read(key, None if version is None else Version(*version)) for key, version in reads]  # type: ignore[arg-type]
    return NamespaceSet(namespace, tuple(versions), tuple(ranges), tuple(writes), tuple(metadata), tuple(collections))


@dataclass(frozen=True)
class Draft:
    """A transaction to be; parts that are None are made as an honest client and honest endorsers make them."""

    channel: str
    creator: Signer
    endorsers: Sequence[Signer]
    results: ReadWriteSet | bytes = NOTHING
    chaincode: str = "asset"
    version: str = "1.0"
    args: Sequence[bytes] = (b"put",)
    kind: int = ENDORSER_TRANSACTION
    epoch: int = 0
    nonce: bytes | None = None
    tx_id: str | None = None
    extension: bytes | None = None
    creator_bytes: bytes | None = None
    action_header: bytes | None = None
    proposal: bytes | None = None
    proposal_hash: bytes | None = None
    event: bytes = b""
    status: int = 200
    chaincode_action: bytes | None = None
    response_payload: bytes | None = None
    action_payload: bytes | None = None
    data: bytes | None = None
    payload: bytes | None = None
    signature: bytes | None = None
    extra_endorsements: Sequence[tuple[bytes, bytes]] = ()
    unique: int = field(default_factory=lambda: next(NONCES))

    def but(self, **changes: Any) -> "Draft":
        """The same draft with other parts, and another nonce unless one is given."""
        return replace(self, unique=next(NONCES), **changes)

    def the_nonce(self) -> bytes:
        return self.unique.to_bytes(24, "big") if self.nonce is None else self.nonce

    def the_creator(self) -> bytes:
        return self.creator.serialized if self.creator_bytes is None else self.creator_bytes

    def id(self) -> str:
        """The id in the header."""
        return transaction_id(self.the_nonce(), self.the_creator()) if self.tx_id is None else self.tx_id

    def header(self) -> Any:
        extension = self.extension
        if extension is None:
            extension = proposal_pb2.ChaincodeHeaderExtension(
                chaincode_id=chaincode_pb2.ChaincodeID(name=self.chaincode)
            ).SerializeToString()
        channel_header = common_pb2.ChannelHeader(
            type=self.kind,
            channel_id=self.channel,
            tx_id=self.id(),
            epoch=self.epoch,
            extension=extension if self.kind == ENDORSER_TRANSACTION else b"",
        )
        signature_header = common_pb2.SignatureHeader(creator=self.the_creator(), nonce=self.the_nonce())
        return common_pb2.Header(
            channel_header=channel_header.SerializeToString(), signature_header=signature_header.SerializeToString()
        )

    def the_proposal(self) -> bytes:
        if self.proposal is not None:
            return self.proposal
        spec = chaincode_pb2.ChaincodeInvocationSpec(
            chaincode_spec=chaincode_pb2.ChaincodeSpec(
                chaincode_id=chaincode_pb2.ChaincodeID(name=self.chaincode),
                input=chaincode_pb2.ChaincodeInput(args=self.args),
            )
        )
        return bytes(proposal_pb2.ChaincodeProposalPayload(input=spec.SerializeToString()).SerializeToString())

    def the_action(self) -> bytes:
        if self.chaincode_action is not None:
            return self.chaincode_action
        results = self.results if isinstance(self.results, bytes) else encode_rwset(self.results)
        action = proposal_pb2.ChaincodeAction(
            results=results,
            events=self.event,
            response=proposal_response_pb2.Response(status=self.status),
            chaincode_id=chaincode_pb2.ChaincodeID(name=self.chaincode, version=self.version),
        )
        return bytes(action.SerializeToString())

    def the_response(self, header: Any, action_header: bytes) -> bytes:
        if self.response_payload is not None:
            return self.response_payload
        proposal_hash = self.proposal_hash
        if proposal_hash is None:
            proposal_hash = sha256(header.channel_header + action_header + self.the_proposal()).digest()
        return bytes(
            proposal_response_pb2.ProposalResponsePayload(
                proposal_hash=proposal_hash, extension=self.the_action()
            ).SerializeToString()
        )

    def the_data(self, header: Any) -> bytes:
        if self.data is not None:
            return self.data
        action_header = header.signature_header if self.action_header is None else self.action_header
        payload = self.action_payload
        if payload is None:
            response = self.the_response(header, action_header)
            signed = [(each.serialized, each.sign(response + each.serialized)) for each in self.endorsers]
            endorsements = [
                proposal_response_pb2.Endorsement(endorser=endorser, signature=signature)
                for endorser, signature in (*self.extra_endorsements, *signed)
            ]
            action = transaction_pb2.ChaincodeEndorsedAction(
                proposal_response_payload=response, endorsements=endorsements
            )
            payload = transaction_pb2.ChaincodeActionPayload(
                chaincode_proposal_payload=self.the_proposal(), action=action
            ).SerializeToString()
        actions = [transaction_pb2.TransactionAction(header=action_header, payload=payload)]
        return bytes(transaction_pb2.Transaction(actions=actions).SerializeToString())

    def the_payload(self) -> bytes:
        if self.payload is not None:
            return self.payload
        header = self.header()
        return bytes(common_pb2.Payload(header=header, data=self.the_data(header)).SerializeToString())

    def envelope(self) -> bytes:
        """The serialized envelope."""
        payload = self.the_payload()
        signature = self.creator.sign(payload) if self.signature is None else self.signature
        return bytes(common_pb2.Envelope(payload=payload, signature=signature).SerializeToString())


def event(chaincode: str, name: str = "happened", tx_id: str = "", payload: bytes = b"") -> bytes:
    """A serialized chaincode event."""
    return bytes(
        chaincode_event_pb2.ChaincodeEvent(
            chaincode_id=chaincode, event_name=name, tx_id=tx_id, payload=payload
        ).SerializeToString()
    )


def config_envelope(channel: str, creator: Signer, config: bytes, nonce: bytes = b"nonce", epoch: int = 0) -> bytes:
    """A CONFIG envelope as an orderer makes it: without id."""
    return Draft(channel, creator, (), kind=CONFIG, tx_id="", nonce=nonce, epoch=epoch, data=config).envelope()
