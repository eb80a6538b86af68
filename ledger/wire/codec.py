"""Decodes what stands inside identities and state, for rules that may not know protobuf: `core.ports.Codec`."""

from fabric_protos.msp import identities_pb2

from ledger.core.policy.ast import ApplicationPolicy, SignaturePolicy
from ledger.wire.messages import parse
from ledger.wire.policy import decode_application_policy, decode_signature_policy


class ProtobufCodec:
    """The codec of Fabric's messages."""

    def serialized_identity(self, data: bytes) -> tuple[str, bytes]:
        """Decode SerializedIdentity to (MSP ID, id bytes)."""
        message = parse(identities_pb2.SerializedIdentity, data, "SerializedIdentity")
        return message.mspid, message.id_bytes

    def signature_policy(self, data: bytes) -> SignaturePolicy:
        """Decode SignaturePolicyEnvelope."""
        return decode_signature_policy(data)

    def application_policy(self, data: bytes) -> ApplicationPolicy:
        """Decode ApplicationPolicy."""
        return decode_application_policy(data)


CODEC = ProtobufCodec()
"""The one codec: it holds nothing."""


def encode_identity(msp_id: str, pem: bytes) -> bytes:
    """Encode SerializedIdentity."""
    return bytes(identities_pb2.SerializedIdentity(mspid=msp_id, id_bytes=pem).SerializeToString())
