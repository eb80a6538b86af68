"""What does an orderer read of envelopes and write into blocks?"""

from fabric_protos.common import common_pb2

from ledger.core.block import Block, Header
from ledger.core.broadcast_rules import BAD_REQUEST, BroadcastRefused, Offered
from ledger.core.errors import MalformedMessage
from ledger.core.hashing import data_hash, header_der
from ledger.core.names import BlockNumber
from ledger.core.ports import Signer
from ledger.wire.messages import parse

CONFIG = common_pb2.CONFIG
CONFIG_UPDATE = common_pb2.CONFIG_UPDATE
ORDERER_TRANSACTION = 4


def read_offered(envelope: bytes) -> Offered:
    """Take an envelope apart as far as an orderer looks.

    Raises:
        BroadcastRefused: Its channel can't be determined.
    """
    try:
        outer = parse(common_pb2.Envelope, envelope, "Envelope")
        payload = parse(common_pb2.Payload, outer.payload, "Payload")
        if not payload.HasField("header"):
            raise BroadcastRefused(BAD_REQUEST, "could not determine channel ID: header not set")
        channel = parse(common_pb2.ChannelHeader, payload.header.channel_header, "ChannelHeader")
        signer = parse(common_pb2.SignatureHeader, payload.header.signature_header, "SignatureHeader")
    except MalformedMessage as error:
        raise BroadcastRefused(BAD_REQUEST, f"could not determine channel ID: {error}") from error
    return Offered(
        envelope, outer.payload, outer.signature, channel.channel_id, channel.type, channel.tx_id, signer.creator
    )


def make_block(
    number: BlockNumber,
    previous_hash: bytes,
    envelopes: tuple[bytes, ...],
    last_config: BlockNumber,
    signer: Signer,
    nonce: bytes,
) -> Block:
    """Make and sign a block.

    Args:
        number: Its number.
        previous_hash: Header hash of the block before it.
        envelopes: Its envelopes.
        last_config: Number of the newest config block at or below it.
        signer: The orderer.
        nonce: 24 random bytes for the signature header.
    """
    header = Header(number, previous_hash, data_hash(envelopes))
    config = common_pb2.LastConfig(index=last_config)
    value = common_pb2.OrdererBlockMetadata(last_config=config).SerializeToString()
    signature_header = common_pb2.SignatureHeader(creator=signer.serialized, nonce=nonce).SerializeToString()
    signed = value + signature_header + header_der(number, previous_hash, header.data_hash)
    slot_0 = common_pb2.Metadata(
        value=value,
        signatures=[common_pb2.MetadataSignature(signature_header=signature_header, signature=signer.sign(signed))],
    ).SerializeToString()
    slot_1 = common_pb2.Metadata(value=config.SerializeToString()).SerializeToString()
    return Block(header, envelopes, (slot_0, slot_1, b"", b"", b""))


def config_envelope(channel_id: str, config: bytes, timestamp_s: int, signer: Signer, nonce: bytes) -> bytes:
    """Wrap a ConfigEnvelope as an orderer does: type CONFIG, no id, signed by itself."""
    channel_header = common_pb2.ChannelHeader(type=CONFIG, version=1, channel_id=channel_id)
    channel_header.timestamp.seconds = timestamp_s
    header = common_pb2.Header(
        channel_header=channel_header.SerializeToString(),
        signature_header=common_pb2.SignatureHeader(creator=signer.serialized, nonce=nonce).SerializeToString(),
    )
    payload = common_pb2.Payload(header=header, data=config).SerializeToString()
    return bytes(common_pb2.Envelope(payload=payload, signature=signer.sign(payload)).SerializeToString())
