"""What do the built-in query chaincodes answer with?  Results of `qscc` and `cscc`, and what they take out of blocks.

Formats: common/ledger.proto, peer/query.proto, peer/transaction.proto, common/configtx.proto.
"""

from collections.abc import Sequence
from functools import lru_cache

from fabric_protos.common import common_pb2, configtx_pb2, ledger_pb2
from fabric_protos.msp import msp_config_pb2
from fabric_protos.peer import query_pb2, transaction_pb2

from ledger.wire.messages import parse


def encode_chain_info(height: int, block_hash: bytes, previous_hash: bytes) -> bytes:
    """Encode BlockchainInfo."""
    message = ledger_pb2.BlockchainInfo(height=height, currentBlockHash=block_hash, previousBlockHash=previous_hash)
    return bytes(message.SerializeToString())


def encode_processed_transaction(envelope: bytes, verdict: int) -> bytes:
    """Encode ProcessedTransaction.

    Raises:
        MalformedMessage: The envelope does not decode.
    """
    message = transaction_pb2.ProcessedTransaction(
        transactionEnvelope=parse(common_pb2.Envelope, envelope, "Envelope"), validationCode=verdict
    )
    return bytes(message.SerializeToString())


def encode_channels(channel_ids: Sequence[str]) -> bytes:
    """Encode ChannelQueryResponse."""
    message = query_pb2.ChannelQueryResponse(channels=[query_pb2.ChannelInfo(channel_id=each) for each in channel_ids])
    return bytes(message.SerializeToString())


def previous_hash_of(block: bytes) -> bytes:
    """Take the previous block's hash out of a serialized block."""
    return bytes(parse(common_pb2.Block, block, "Block").header.previous_hash)


def config_block_number(block: bytes) -> int:
    """Tell which config block was the last one when a block was made."""
    metadata = parse(common_pb2.Block, block, "Block").metadata.metadata
    slot = parse(common_pb2.Metadata, metadata[common_pb2.SIGNATURES], "Metadata")
    return int(parse(common_pb2.OrdererBlockMetadata, slot.value, "OrdererBlockMetadata").last_config.index)


def config_in(config_envelope: bytes) -> bytes:
    """Take the Config out of a ConfigEnvelope."""
    envelope = parse(configtx_pb2.ConfigEnvelope, config_envelope, "ConfigEnvelope")
    return bytes(envelope.config.SerializeToString(deterministic=True))


@lru_cache(maxsize=64)
def application_msp_ids(config_envelope: bytes) -> tuple[str, ...]:
    """Name the organisations of the application group, ascending."""
    envelope = parse(configtx_pb2.ConfigEnvelope, config_envelope, "ConfigEnvelope")
    names = []
    for organisation in envelope.config.channel_group.groups["Application"].groups.values():
        config = parse(msp_config_pb2.MSPConfig, organisation.values["MSP"].value, "MSPConfig")
        names.append(parse(msp_config_pb2.FabricMSPConfig, config.config, "FabricMSPConfig").name)
    return tuple(sorted(names))


def payload_time(payload: bytes) -> tuple[int, int]:
    """Take the client's time, seconds and nanoseconds, out of an envelope's payload."""
    header = parse(common_pb2.Payload, payload, "Payload").header
    timestamp = parse(common_pb2.ChannelHeader, header.channel_header, "ChannelHeader").timestamp
    return timestamp.seconds, timestamp.nanos
