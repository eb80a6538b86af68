"""How do checkpoints travel?  Messages of `ledger.v1.Checkpointing` to and from the values of `core.checkpoint`.

Lengths are checked here, before anything looks at the contents: a hash has 32 bytes, a channel's name at most 249, an
identity and a signature no more than any real one. Another format version is refused by name, not guessed at.
"""

from typing import Any, assert_never

from google.protobuf.message import DecodeError

from ledger.core.checkpoint import (
    FORMAT,
    SIGNATURES_MAX,
    Ask,
    CheckpointMessage,
    CheckpointProof,
    Hello,
    Notice,
    PeerSignature,
    Statement,
)
from ledger.core.errors import MalformedMessage
from ledger.core.names import BlockNumber, ChannelId, Digest
from ledger.wire.ledger_v1 import checkpointing_pb2 as pb

NOTICE_BYTES_MAX = 16 * 1024 * 1024
"""A notice; the largest honest one is a proof of `SIGNATURES_MAX` signatures."""

CHANNEL_LENGTH_MAX = 249
IDENTITY_BYTES_MAX = 16 * 1024
SIGNATURE_BYTES_MAX = 1024
LIBRARIES_MAX = 32
TEXT_LENGTH_MAX = 255


def encode_notice(notice: Notice) -> bytes:
    """Encode what one peer says to another."""
    message: Any = pb.Notice()
    match notice:
        case Hello():
            message.hello.channel = notice.channel
            message.hello.format = notice.format
            message.hello.peer = notice.peer
            message.hello.interval_blocks = notice.interval_blocks
            message.hello.libraries.update(dict(notice.libraries))
            if notice.latest_valid is not None:
                message.hello.latest_valid = notice.latest_valid
            if notice.newest_computed is not None:
                message.hello.newest_computed = notice.newest_computed
        case CheckpointMessage():
            message.message.format = FORMAT
            message.message.interval_blocks = notice.interval_blocks
            message.message.libraries.update(dict(notice.libraries))
            _put_statement(message.message.statement, notice.statement)
            _put_signature(message.message.signed, notice.signed)
        case CheckpointProof():
            put_proof(message.proof, notice)
        case Ask():
            message.ask.number = notice.number
        case _:
            assert_never(notice)
    raw: bytes = message.SerializeToString()
    return raw


def decode_notice(data: bytes) -> Notice:
    """Decode what another peer says.

    Raises:
        MalformedMessage: The bytes are no notice, a length is out of bounds ("length"), or the format is another
            ("format version").
    """
    _bounded("notice", len(data), NOTICE_BYTES_MAX)
    try:
        message: Any = pb.Notice.FromString(data)
    except DecodeError as error:
        raise MalformedMessage("checkpoint notice", rule="protobuf", expected="a Notice", found=data) from error
    match message.WhichOneof("content"):
        case "hello":
            return _hello(message.hello)
        case "message":
            _check_format(message.message.format)
            return CheckpointMessage(
                _statement(message.message.statement),
                _signature(message.message.signed),
                message.message.interval_blocks,
                _libraries(message.message.libraries),
            )
        case "proof":
            return proof_from(message.proof)
        case "ask":
            return Ask(BlockNumber(message.ask.number))
        case _:
            raise MalformedMessage("checkpoint notice", rule="content", expected="hello, message, proof or ask")


def put_proof(message: Any, proof: CheckpointProof) -> None:
    """Fill in a proof's message, wherever it stands."""
    message.format = FORMAT
    _put_statement(message.statement, proof.statement)
    for signed in proof.signatures:
        _put_signature(message.signatures.add(), signed)


def proof_from(message: Any) -> CheckpointProof:
    """Read a proof from its message.

    Raises:
        MalformedMessage: A length is out of bounds ("length"), or the format is another ("format version").
    """
    _check_format(message.format)
    _bounded("signatures", len(message.signatures), SIGNATURES_MAX)
    signatures = tuple(_signature(signed) for signed in message.signatures)
    return CheckpointProof(_statement(message.statement), signatures)


def _hello(message: Any) -> Hello:
    """Read a greeting; another format is kept as it is, so that the answer can name it."""
    _bounded("channel", len(message.channel), CHANNEL_LENGTH_MAX)
    _bounded("peer", len(message.peer), TEXT_LENGTH_MAX)
    return Hello(
        channel=ChannelId(message.channel),
        peer=message.peer,
        interval_blocks=message.interval_blocks,
        libraries=_libraries(message.libraries),
        latest_valid=BlockNumber(message.latest_valid) if message.HasField("latest_valid") else None,
        newest_computed=BlockNumber(message.newest_computed) if message.HasField("newest_computed") else None,
        format=message.format,
    )


def _put_statement(message: Any, statement: Statement) -> None:
    message.channel = statement.channel
    message.number = statement.number
    message.vblock_hash = statement.vblock_hash
    message.vledger_root = statement.vledger_root
    message.state_hash = statement.state_hash


def _statement(message: Any) -> Statement:
    _bounded("channel", len(message.channel), CHANNEL_LENGTH_MAX)
    for name in ("vblock_hash", "vledger_root", "state_hash"):
        length = len(getattr(message, name))
        if length != 32:
            raise MalformedMessage(f"checkpoint {name}", rule="length", expected=32, found=length)
    return Statement(
        ChannelId(message.channel),
        BlockNumber(message.number),
        Digest(message.vblock_hash),
        Digest(message.vledger_root),
        Digest(message.state_hash),
    )


def _put_signature(message: Any, signed: PeerSignature) -> None:
    message.identity = signed.identity
    message.signature = signed.signature


def _signature(message: Any) -> PeerSignature:
    _bounded("identity", len(message.identity), IDENTITY_BYTES_MAX)
    _bounded("signature", len(message.signature), SIGNATURE_BYTES_MAX)
    return PeerSignature(message.identity, message.signature)


def _libraries(message: Any) -> tuple[tuple[str, str], ...]:
    _bounded("libraries", len(message), LIBRARIES_MAX)
    for name, version in message.items():
        _bounded("library name and version", len(name) + len(version), TEXT_LENGTH_MAX)
    return tuple(sorted(message.items()))


def _check_format(version: int) -> None:
    if version != FORMAT:
        raise MalformedMessage("checkpoint message", rule="format version", expected=FORMAT, found=version)


def _bounded(what: str, size: int, size_max: int) -> None:
    if size > size_max:
        raise MalformedMessage(f"checkpoint {what}", rule="length", expected=f"at most {size_max}", found=size)


__all__ = ["decode_notice", "encode_notice", "proof_from", "put_proof"]
