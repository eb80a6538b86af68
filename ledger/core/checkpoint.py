"""What is a checkpoint, and what exactly does a peer sign?  The statement, a signature on it, and a proof.

Design, section 3. The statement at block *n* speaks of the vBlock, of the log of all vBlocks and of the state; the
channel's name and a format tag are in it, so that it can be replayed neither on another channel nor in another format.
It begins with a zero byte (the length of its tag), which no message of Fabric's does: the endorsement key may sign it.
What these values are worth is decided in `checkpoint_proof`; what a peer does with them in `checkpoint_tally`.
"""

from dataclasses import dataclass

from ledger.core.encoding import Reader, lp, u8, u32, u64
from ledger.core.errors import MalformedMessage
from ledger.core.hashing import digest
from ledger.core.names import BlockNumber, ChannelId, Digest

FORMAT = 1
"""Version of statement and messages; another one is refused by name."""

STATEMENT_TAG = "peerledger/checkpoint/v1"
STATE_TAG = "peerledger/state/v1"

SIGNATURES_MAX = 4096
"""Signatures in one proof; more are not read."""


@dataclass(frozen=True, slots=True)
class CheckpointRoots:
    """What the ledger says of itself at one height, before anybody signs it."""

    number: BlockNumber
    """The block *n* after which this holds."""

    vblock_hash: Digest
    """vBlockHash(n)."""

    vledger_root: Digest
    """RFC 6962 tree hash over the hashes of vBlocks 0..n."""

    state_root: Digest
    """Root of the state tree after block *n*."""

    config_block: BlockNumber
    """Number of the last config block at or below *n*."""

    config_digest: Digest
    """SHA-256 of that block's envelope."""

    @property
    def state_hash(self) -> Digest:
        """The state as the statement names it: its root and the configuration it is judged by."""
        return digest(lp(STATE_TAG) + self.state_root + u64(self.config_block) + self.config_digest)

    def statement(self, channel: ChannelId) -> "Statement":
        """Say these roots in the name of a channel."""
        return Statement(channel, self.number, self.vblock_hash, self.vledger_root, self.state_hash)


@dataclass(frozen=True, slots=True)
class Statement:
    """What peers agree on at one height: the same on every correct peer."""

    channel: ChannelId
    number: BlockNumber
    vblock_hash: Digest
    vledger_root: Digest
    state_hash: Digest

    @property
    def encoded(self) -> bytes:
        """The bytes that are signed, followed by the signer's serialized identity."""
        return (
            lp(STATEMENT_TAG)
            + lp(self.channel)
            + u64(self.number)
            + self.vblock_hash
            + self.vledger_root
            + self.state_hash
        )

    @staticmethod
    def decode(data: bytes) -> "Statement":
        """Read back `encoded`.

        Raises:
            MalformedMessage: The bytes are no statement of this format.
        """
        reader = Reader(data, "checkpoint statement")
        if (tag := reader.text()) != STATEMENT_TAG:
            raise MalformedMessage("checkpoint statement", rule="format tag", expected=STATEMENT_TAG, found=tag)
        channel = ChannelId(reader.text())
        number = BlockNumber(reader.u64())
        hashes = [Digest(reader.take(32)) for _ in range(3)]
        reader.done()
        return Statement(channel, number, *hashes)


@dataclass(frozen=True, slots=True)
class PeerSignature:
    """One peer's signature on a statement."""

    identity: bytes
    """SerializedIdentity of the signer, as it was signed."""

    signature: bytes
    """DER signature over `signed_bytes(statement, identity)`."""


@dataclass(frozen=True, slots=True)
class CheckpointMessage:
    """A CHECKPOINT message: a signed statement, and what its sender says of itself."""

    statement: Statement
    signed: PeerSignature

    interval_blocks: int
    """The sender's CHK; not signed, a difference is a warning only."""

    libraries: tuple[tuple[str, str], ...] = ()
    """(name, version) of the libraries on which verdicts could depend, ascending; not signed."""


@dataclass(frozen=True, slots=True)
class CheckpointProof:
    """The signatures that make a checkpoint valid, in the order in which the policies are evaluated."""

    statement: Statement
    signatures: tuple[PeerSignature, ...]


@dataclass(frozen=True, slots=True)
class Hello:
    """The first thing that each side of a conversation says."""

    channel: ChannelId
    peer: str
    """Name of the speaker, for people."""

    interval_blocks: int
    """Its CHK."""

    libraries: tuple[tuple[str, str], ...] = ()
    latest_valid: BlockNumber | None = None
    """Height of the latest checkpoint that it knows to be valid."""

    newest_computed: BlockNumber | None = None
    """Newest height at which it computed a checkpoint."""

    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks for the proof of one height or, while there is none, for the messages known about it."""

    number: BlockNumber


Notice = Hello | CheckpointMessage | CheckpointProof | Ask
"""Whatever one peer says to another about checkpoints."""


def signed_bytes(statement: Statement, identity: bytes) -> bytes:
    """Return what a peer with this serialized identity signs."""
    return statement.encoded + identity


def encode_message(message: CheckpointMessage) -> bytes:
    """Encode a message for the disk."""
    parts = [lp(message.statement.encoded), lp(message.signed.identity), lp(message.signed.signature)]
    parts += [u64(message.interval_blocks), u32(len(message.libraries))]
    parts += [lp(name) + lp(version) for name, version in message.libraries]
    return b"".join(parts)


def read_message(reader: Reader) -> CheckpointMessage:
    """Read back `encode_message`, leaving the reader behind it.

    Raises:
        MalformedMessage: The bytes are no message.
    """
    statement = Statement.decode(reader.lp())
    signed = PeerSignature(reader.lp(), reader.lp())
    interval_blocks = reader.u64()
    libraries = tuple((reader.text(), reader.text()) for _ in range(_count(reader)))
    return CheckpointMessage(statement, signed, interval_blocks, libraries)


def encode_proof(proof: CheckpointProof) -> bytes:
    """Encode a proof for the disk and for receipts; its order is kept."""
    parts = [u8(FORMAT), lp(proof.statement.encoded), u32(len(proof.signatures))]
    parts += [lp(one.identity) + lp(one.signature) for one in proof.signatures]
    return b"".join(parts)


def read_proof(reader: Reader) -> CheckpointProof:
    """Read back `encode_proof`, leaving the reader behind it.

    Raises:
        MalformedMessage: The bytes are no proof of this format.
    """
    if (version := reader.u8()) != FORMAT:
        raise MalformedMessage("checkpoint proof", rule="format version", expected=FORMAT, found=version)
    statement = Statement.decode(reader.lp())
    return CheckpointProof(statement, tuple(PeerSignature(reader.lp(), reader.lp()) for _ in range(_count(reader))))


def decode_proof(data: bytes) -> CheckpointProof:
    """Read a proof that fills `data`.

    Raises:
        MalformedMessage: The bytes are no proof of this format, or more than that.
    """
    reader = Reader(data, "checkpoint proof")
    proof = read_proof(reader)
    reader.done()
    return proof


def _count(reader: Reader) -> int:
    """Read a count that is small in everything we write."""
    count = reader.u32()
    if count > SIGNATURES_MAX:
        raise MalformedMessage(reader.subject, rule="count", expected=f"at most {SIGNATURES_MAX}", found=count)
    return count


__all__ = [
    "FORMAT",
    "Ask",
    "CheckpointMessage",
    "CheckpointProof",
    "CheckpointRoots",
    "Hello",
    "Notice",
    "PeerSignature",
    "Statement",
    "decode_proof",
    "encode_message",
    "encode_proof",
    "read_message",
    "read_proof",
    "signed_bytes",
]
