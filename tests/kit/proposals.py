"""Proposals with any part forged, and the shelf of those that every endorser refuses, with rule and text."""

import datetime
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fabric_protos.common import common_pb2
from fabric_protos.peer import chaincode_pb2, proposal_pb2

from ledger.core.hashing import transaction_id
from tests.kit.certificates import with_s
from tests.kit.channel import CHANNEL
from tests.kit.orderer_node import NOW
from tests.kit.organisations import Signer, make_organisation, shared_organisation

ORG1, ORG2 = shared_organisation("Org1MSP"), shared_organisation("Org2MSP")
STRANGER = make_organisation("StrangerMSP")
IMPOSTOR = make_organisation("Org1MSP").client
"""Of an authority that has the name of the first organisation's, and no more."""

SERIAL = itertools.count(1)
SignedProposal = tuple[bytes, bytes]


@dataclass(frozen=True)
class ProposalDraft:
    """A proposal to be; parts that are None are made as an honest client makes them."""

    creator: Signer = field(default_factory=lambda: ORG1.client)
    chaincode: str = "trial"
    args: Sequence[str | bytes] = ("put", "key", "value")
    channel: str = CHANNEL
    at: datetime.datetime | None = NOW
    kind: int = common_pb2.ENDORSER_TRANSACTION
    epoch: int = 0
    nonce: bytes | None = None
    tx_id: str | None = None
    creator_bytes: bytes | None = None
    transient: Mapping[str, bytes] = field(default_factory=dict)
    is_init: bool = False
    extension: Any = None
    spec: Any = None
    channel_header: bytes | None = None
    header: bytes | None = None
    payload: bytes | None = None
    sign: Callable[[bytes], bytes] | None = None
    unique: int = field(default_factory=lambda: next(SERIAL))

    def but(self, **changes: Any) -> "ProposalDraft":
        """The same with other parts, and another nonce unless one is given."""
        return replace(self, unique=next(SERIAL), **changes)

    def the_nonce(self) -> bytes:
        return b"proposal" + self.unique.to_bytes(16, "big") if self.nonce is None else self.nonce

    def the_creator(self) -> bytes:
        return self.creator.serialized if self.creator_bytes is None else self.creator_bytes

    def id(self) -> str:
        return transaction_id(self.the_nonce(), self.the_creator()) if self.tx_id is None else self.tx_id

    def the_channel_header(self) -> bytes:
        if self.channel_header is not None:
            return self.channel_header
        extension = self.extension
        if extension is None:
            called = chaincode_pb2.ChaincodeID(name=self.chaincode)
            extension = proposal_pb2.ChaincodeHeaderExtension(chaincode_id=called)
        header = common_pb2.ChannelHeader(
            type=self.kind, channel_id=self.channel, epoch=self.epoch, tx_id=self.id(),
            extension=extension.SerializeToString(),
        )  # fmt: skip
        if self.at is not None:
            header.timestamp.FromDatetime(self.at)
        return bytes(header.SerializeToString())

    def the_header(self) -> bytes:
        if self.header is not None:
            return self.header
        signer = common_pb2.SignatureHeader(creator=self.the_creator(), nonce=self.the_nonce())
        made = common_pb2.Header(channel_header=self.the_channel_header(), signature_header=signer.SerializeToString())
        return bytes(made.SerializeToString())

    def the_payload(self) -> bytes:
        if self.payload is not None:
            return self.payload
        spec = self.spec
        if spec is None:
            args = [each.encode() if isinstance(each, str) else each for each in self.args]
            spec = chaincode_pb2.ChaincodeInvocationSpec(
                chaincode_spec=chaincode_pb2.ChaincodeSpec(
                    chaincode_id=chaincode_pb2.ChaincodeID(name=self.chaincode),
                    input=chaincode_pb2.ChaincodeInput(args=args, is_init=self.is_init),
                )
            )
        made = proposal_pb2.ChaincodeProposalPayload(input=spec.SerializeToString(), TransientMap=self.transient)
        return bytes(made.SerializeToString())

    def signed(self) -> SignedProposal:
        """The serialized Proposal and the signature over it."""
        proposal = proposal_pb2.Proposal(header=self.the_header(), payload=self.the_payload()).SerializeToString()
        return proposal, (self.sign or self.creator.sign)(proposal)


def high_s(message: bytes) -> bytes:
    """Sign as the first organisation's client, with the s that Fabric refuses."""
    return with_s(ORG1.client.sign(message), "secp256r1", high=True)


@dataclass(frozen=True)
class Refusal:
    """A proposal that is refused with a gRPC error."""

    make: Callable[[], SignedProposal]
    rule: str
    text: str


def expired() -> Signer:
    return ORG1.issue("user who expired", not_after=NOW - datetime.timedelta(seconds=1))


def expired_stranger() -> Signer:
    return STRANGER.issue("stranger who expired", not_after=NOW - datetime.timedelta(seconds=1))


VALIDATING = "error validating proposal: "
DENIED = f"{VALIDATING}access denied: channel [{CHANNEL}] creator org [Org1MSP]"
UNKNOWN_ORG = f"{VALIDATING}access denied: channel [{CHANNEL}] creator org unknown, creator is malformed"
WINDOW = datetime.timedelta(minutes=15)
SECOND = datetime.timedelta(seconds=1)
ID = transaction_id(b"a nonce", ORG1.client.serialized)


def stale(text: str) -> str:
    peer_time = "2026-06-01 12:00:00 +0000 UTC"
    return (
        f"request unauthorized due to incorrect timestamp {text}, peer time {peer_time}, "
        "peer.authentication.timewindow 15m0s"
    )


def without_input() -> Any:
    return chaincode_pb2.ChaincodeInvocationSpec(chaincode_spec=chaincode_pb2.ChaincodeSpec(type=1))


def draft(**parts: Any) -> Callable[[], SignedProposal]:
    return lambda: ProposalDraft(**parts).signed()


def created_by(make: Callable[[], Signer], **parts: Any) -> Callable[[], SignedProposal]:
    return lambda: ProposalDraft(make(), **parts).signed()


REFUSALS: dict[str, Refusal] = {
    # What does not decode, or lacks a part.
    "garbage": Refusal(lambda: (b"\xff\xff", b"signature"), "Proposal message", "error unmarshalling Proposal"),
    "header garbage": Refusal(draft(header=b"\xff\xff"), "Header message", "error unmarshalling Header"),
    "channel header garbage": Refusal(
        draft(channel_header=b"\xff\xff"), "ChannelHeader message", "error unmarshalling ChannelHeader"
    ),
    "payload garbage": Refusal(
        draft(payload=b"\xff\xff"), "ChaincodeProposalPayload message", "error unmarshalling ChaincodeProposalPayload"
    ),
    "no chaincode id": Refusal(
        draft(extension=proposal_pb2.ChaincodeHeaderExtension()),
        "proposal parts",
        "ChaincodeHeaderExtension.ChaincodeId is nil",
    ),
    "no chaincode name": Refusal(
        draft(chaincode=""), "proposal parts", "ChaincodeHeaderExtension.ChaincodeId.Name is empty"
    ),
    "no spec": Refusal(
        draft(spec=chaincode_pb2.ChaincodeInvocationSpec()),
        "proposal parts",
        "chaincode invocation spec did not contain chaincode spec",
    ),
    "no input": Refusal(draft(spec=without_input()), "proposal parts", "chaincode input did not contain any input"),
    # Time, before anything that needs the channel.
    "expired": Refusal(created_by(expired), "creator certificate", "proposal client identity expired"),
    "expired stranger": Refusal(
        created_by(expired_stranger), "creator certificate", "proposal client identity expired"
    ),
    "expired, unknown channel, an hour old": Refusal(
        created_by(expired, channel="nope", at=NOW - 4 * WINDOW),
        "creator certificate",
        "proposal client identity expired",
    ),
    "an hour old": Refusal(draft(at=NOW - 4 * WINDOW), "time window", stale("2026-06-01 11:00:00 +0000 UTC")),
    "a second too old": Refusal(draft(at=NOW - WINDOW - SECOND), "time window", stale("2026-06-01 11:44:59 +0000 UTC")),
    "a second too new": Refusal(draft(at=NOW + WINDOW + SECOND), "time window", stale("2026-06-01 12:15:01 +0000 UTC")),
    "no time": Refusal(draft(at=None), "time window", stale("1970-01-01 00:00:00 +0000 UTC")),
    "an hour old, unknown channel": Refusal(
        draft(at=NOW - 4 * WINDOW, channel="nope"), "time window", stale("2026-06-01 11:00:00 +0000 UTC")
    ),
    # Headers.
    "config update": Refusal(draft(kind=2), "header type", f"{VALIDATING}invalid header type CONFIG_UPDATE"),
    "unknown type": Refusal(draft(kind=77), "header type", f"{VALIDATING}invalid header type 77"),
    "epoch": Refusal(draft(epoch=1), "epoch", f"{VALIDATING}epoch is non-zero"),
    "no nonce": Refusal(draft(nonce=b""), "nonce", f"{VALIDATING}nonce is empty"),
    "no creator": Refusal(draft(creator_bytes=b""), "creator", f"{VALIDATING}creator is empty"),
    "wrong id": Refusal(
        draft(nonce=b"a nonce", tx_id="00"),
        "transaction id",
        f"{VALIDATING}incorrectly computed txid '00' -- expected '{ID}'",
    ),
    "no signature": Refusal(draft(sign=lambda _: b""), "signature", f"{VALIDATING}empty signature bytes"),
    # Who, and whether it is they: deliberately vague.
    "unknown organisation": Refusal(created_by(lambda: STRANGER.client), "creator identity", UNKNOWN_ORG),
    "creator garbage": Refusal(draft(creator_bytes=b"\xff\xff"), "creator identity", UNKNOWN_ORG),
    "creator without certificate": Refusal(draft(creator_bytes=b"\x0a\x07Org1MSP"), "creator identity", UNKNOWN_ORG),
    "authority of the same name": Refusal(created_by(lambda: IMPOSTOR), "creator identity", UNKNOWN_ORG),
    "two roles": Refusal(
        created_by(lambda: ORG1.issue_odd("two roles", ("client", "peer"))), "exactly one role unit", DENIED
    ),
    "no role": Refusal(created_by(lambda: ORG1.issue_odd("no role", ())), "exactly one role unit", DENIED),
    "wrong signature": Refusal(draft(sign=lambda _: ORG1.client.sign(b"other")), "creator signature", DENIED),
    "somebody else's signature": Refusal(draft(sign=ORG1.admin.sign), "creator signature", DENIED),
    "high s": Refusal(draft(sign=high_s), "creator signature", DENIED),
}
"""By name; made for a clock that says `NOW`."""


__all__ = ["REFUSALS", "ProposalDraft", "Refusal", "SignedProposal"]
