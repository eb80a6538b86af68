"""How do the questions of a peer that diverged travel?  `ledger.v1.Comparing` to and from `core.divergence`.

Lengths and counts are checked here, before anything looks at the contents: what an asker may want at once, and the
depth of what it is shown.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, assert_never

from google.protobuf.message import DecodeError

from ledger.core.checkpoint import FORMAT, CheckpointRoots
from ledger.core.divergence import LogAnswer, StateOffer
from ledger.core.errors import MalformedMessage
from ledger.core.names import BlockNumber, ChannelId, Digest, TxIndex
from ledger.core.state import HASHED, Entry, StateKey, Version
from ledger.core.state_tree import DEPTH_MAX, StateLeaf
from ledger.core.tree_descent import PLACES_MAX, Branch, Hidden, Place, Subtree
from ledger.core.vblock import VBlockHeader
from ledger.wire.checkpoint import proof_from, put_proof
from ledger.wire.ledger_v1 import comparing_pb2 as pb

ENTRIES_MAX = 256
"""Keys and paths in one question."""

QUESTION_BYTES_MAX = 4 * 2**20
ANSWER_BYTES_MAX = 100 * 2**20
"""An entry is shown whole, and nothing bounds a value but the size of a message."""

DIGEST_BYTES = 32
EMPTY, LEAF, HIDDEN, BRANCH = b"\0", b"\1", b"\2", b"\3"


class LogQuestion(NamedTuple):
    """Asks for a vBlock under the log of a checkpoint."""

    channel: ChannelId
    checkpoint: BlockNumber
    number: BlockNumber


class StateQuestion(NamedTuple):
    """Asks for the state at a checkpoint."""

    channel: ChannelId
    checkpoint: BlockNumber


class SubtreesQuestion(NamedTuple):
    """Asks what is below some places of the state tree at a checkpoint."""

    channel: ChannelId
    checkpoint: BlockNumber
    places: tuple[Place, ...]


class EntriesQuestion(NamedTuple):
    """Asks for entries of the state at a checkpoint."""

    channel: ChannelId
    checkpoint: BlockNumber
    keys: tuple[StateKey, ...] = ()
    paths: tuple[bytes, ...] = ()


def _parse(kind: Any, data: bytes, subject: str, bytes_max: int) -> Any:
    if len(data) > bytes_max:
        raise MalformedMessage(subject, rule="length", expected=f"at most {bytes_max} bytes", found=len(data))
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedMessage(subject, rule="protobuf", expected=f"a {subject}", found=data) from error


def _digest(data: bytes, subject: str) -> Digest:
    if len(data) != DIGEST_BYTES:
        raise MalformedMessage(subject, rule="hash length", expected=DIGEST_BYTES, found=len(data))
    return Digest(data)


def _check_format(found: int) -> None:
    if found != FORMAT:
        raise MalformedMessage("comparing", rule="format version", expected=FORMAT, found=found)


# -- questions


def encode_log_question(asked: LogQuestion) -> bytes:
    """Ask for a vBlock."""
    message: Any = pb.LogEntryRequest(
        channel=asked.channel, format=FORMAT, checkpoint=asked.checkpoint, number=asked.number
    )
    return bytes(message.SerializeToString())


def decode_log_question(data: bytes) -> LogQuestion:
    """Read a question for a vBlock; raises `MalformedMessage`."""
    message = _parse(pb.LogEntryRequest, data, "log question", QUESTION_BYTES_MAX)
    _check_format(message.format)
    return LogQuestion(ChannelId(message.channel), BlockNumber(message.checkpoint), BlockNumber(message.number))


def encode_state_question(asked: StateQuestion) -> bytes:
    """Ask for the state at a checkpoint."""
    message: Any = pb.StateOfferRequest(channel=asked.channel, format=FORMAT, checkpoint=asked.checkpoint)
    return bytes(message.SerializeToString())


def decode_state_question(data: bytes) -> StateQuestion:
    """Read a question for a state; raises `MalformedMessage`."""
    message = _parse(pb.StateOfferRequest, data, "state question", QUESTION_BYTES_MAX)
    _check_format(message.format)
    return StateQuestion(ChannelId(message.channel), BlockNumber(message.checkpoint))


def encode_subtrees_question(asked: SubtreesQuestion) -> bytes:
    """Ask for subtrees."""
    message: Any = pb.SubtreesRequest(channel=asked.channel, checkpoint=asked.checkpoint)
    for place in asked.places:
        message.places.add(depth=place.depth, path=place.path)
    return bytes(message.SerializeToString())


def decode_subtrees_question(data: bytes) -> SubtreesQuestion:
    """Read a question for subtrees; raises `MalformedMessage`."""
    subject = "subtrees question"
    message = _parse(pb.SubtreesRequest, data, subject, QUESTION_BYTES_MAX)
    if not 0 < len(message.places) <= PLACES_MAX:
        expected = f"1 to {PLACES_MAX} places"
        raise MalformedMessage(subject, rule="number of places", expected=expected, found=len(message.places))
    places = []
    for one in message.places:
        path = _digest(one.path, subject)
        if one.depth > DEPTH_MAX or int.from_bytes(path, "big") & ((1 << (DEPTH_MAX - one.depth)) - 1):
            raise MalformedMessage(subject, rule="place", expected="a path of zeros behind its depth", found=one.depth)
        places.append(Place(one.depth, path))
    return SubtreesQuestion(ChannelId(message.channel), BlockNumber(message.checkpoint), tuple(places))


def encode_entries_question(asked: EntriesQuestion) -> bytes:
    """Ask for entries."""
    message: Any = pb.EntriesRequest(channel=asked.channel, checkpoint=asked.checkpoint, paths=asked.paths)
    for key in asked.keys:
        message.keys.add(kind=key.kind, namespace=key.namespace, collection=key.collection, key=key.key)
    return bytes(message.SerializeToString())


def decode_entries_question(data: bytes) -> EntriesQuestion:
    """Read a question for entries; raises `MalformedMessage`."""
    subject = "entries question"
    message = _parse(pb.EntriesRequest, data, subject, QUESTION_BYTES_MAX)
    if not 0 < len(message.keys) + len(message.paths) <= ENTRIES_MAX:
        found = len(message.keys) + len(message.paths)
        raise MalformedMessage(subject, rule="number of keys", expected=f"1 to {ENTRIES_MAX}", found=found)
    keys = tuple(_key(one, subject) for one in message.keys)
    paths = tuple(_digest(path, subject) for path in message.paths)
    return EntriesQuestion(ChannelId(message.channel), BlockNumber(message.checkpoint), keys, paths)


def _key(one: Any, subject: str) -> StateKey:
    if one.kind > HASHED:
        raise MalformedMessage(subject, rule="kind of an entry", expected=f"at most {HASHED}", found=one.kind)
    return StateKey(one.kind, one.namespace, one.collection, one.key)


# -- answers


def encode_log_answer(answer: LogAnswer) -> bytes:
    """Write a vBlock."""
    header = answer.header
    message: Any = pb.LogEntry(
        number=header.number, previous_hash=header.previous_hash, block_hash=header.block_hash,
        transaction_count=header.transaction_count, valid_count=header.valid_count, tx_root=header.tx_root,
        commit_hash=header.commit_hash, path=b"".join(answer.path),
    )  # fmt: skip
    return bytes(message.SerializeToString())


def decode_log_answer(data: bytes) -> LogAnswer:
    """Read a vBlock; raises `MalformedMessage`."""
    subject = "log answer"
    message = _parse(pb.LogEntry, data, subject, ANSWER_BYTES_MAX)
    path = message.path
    if len(path) % DIGEST_BYTES or len(path) > 64 * DIGEST_BYTES:
        raise MalformedMessage(subject, rule="path length", expected="at most 64 hashes", found=len(path))
    header = VBlockHeader(
        BlockNumber(message.number),
        _digest(message.previous_hash, subject),
        _digest(message.block_hash, subject),
        message.transaction_count,
        message.valid_count,
        _digest(message.tx_root, subject),
        message.commit_hash,
    )
    return LogAnswer(header, tuple(Digest(path[at : at + DIGEST_BYTES]) for at in range(0, len(path), DIGEST_BYTES)))


def encode_state_offer(offer: StateOffer) -> bytes:
    """Write what can be shown of the state."""
    roots = offer.roots
    message: Any = pb.StateAtCheckpoint(
        state_root=roots.state_root, config_block=roots.config_block, config_digest=roots.config_digest
    )
    put_proof(message.proof, offer.proof)
    return bytes(message.SerializeToString())


def decode_state_offer(data: bytes) -> StateOffer:
    """Read what can be shown of the state; raises `MalformedMessage`."""
    subject = "state answer"
    message = _parse(pb.StateAtCheckpoint, data, subject, ANSWER_BYTES_MAX)
    proof = proof_from(message.proof)
    statement = proof.statement
    roots = CheckpointRoots(
        statement.number,
        statement.vblock_hash,
        statement.vledger_root,
        _digest(message.state_root, subject),
        BlockNumber(message.config_block),
        _digest(message.config_digest, subject),
    )
    return StateOffer(proof, roots)


def encode_subtrees(subtrees: Iterable[Subtree]) -> bytes:
    """Write subtrees."""
    message: Any = pb.Subtrees(subtrees=[encode_subtree(one) for one in subtrees])
    return bytes(message.SerializeToString())


def decode_subtrees(data: bytes) -> tuple[Subtree, ...]:
    """Read subtrees; raises `MalformedMessage`."""
    message = _parse(pb.Subtrees, data, "subtrees", ANSWER_BYTES_MAX)
    if len(message.subtrees) > PLACES_MAX:
        found = len(message.subtrees)
        raise MalformedMessage("subtrees", rule="number of places", expected=f"at most {PLACES_MAX}", found=found)
    return tuple(map(decode_subtree, message.subtrees))


def encode_subtree(subtree: Subtree) -> bytes:
    """Write one subtree in preorder."""
    match subtree:
        case None:
            return EMPTY
        case StateLeaf(path, value_hash):
            return LEAF + path + value_hash
        case Hidden(known):
            return HIDDEN + known
        case Branch(left, right):
            return BRANCH + encode_subtree(left) + encode_subtree(right)
        case _:
            assert_never(subtree)


def decode_subtree(data: bytes) -> Subtree:
    """Read one subtree, no deeper than a path; raises `MalformedMessage`."""
    found, end = _subtree_at(data, 0, 0)
    if end != len(data):
        raise MalformedMessage("subtree", rule="length", expected=end, found=len(data))
    return found


def _subtree_at(data: bytes, at: int, depth: int) -> tuple[Subtree, int]:
    kind, at = data[at : at + 1], at + 1
    if kind == EMPTY:
        return None, at
    if kind == LEAF and at + 2 * DIGEST_BYTES <= len(data):
        middle, end = at + DIGEST_BYTES, at + 2 * DIGEST_BYTES
        return StateLeaf(data[at:middle], Digest(data[middle:end])), end
    if kind == HIDDEN and at + DIGEST_BYTES <= len(data):
        return Hidden(Digest(data[at : at + DIGEST_BYTES])), at + DIGEST_BYTES
    if kind == BRANCH and depth < DEPTH_MAX:
        left, at = _subtree_at(data, at, depth + 1)
        right, at = _subtree_at(data, at, depth + 1)
        return Branch(left, right), at
    raise MalformedMessage("subtree", rule="preorder", expected="a whole node", found=data[at - 1 : at + 8])


def encode_entries(entries: Sequence[tuple[StateKey, Entry]]) -> bytes:
    """Write entries."""
    message: Any = pb.Entries()
    for key, entry in entries:
        message.entries.add(
            kind=key.kind, namespace=key.namespace, collection=key.collection, key=key.key, value=entry.value,
            block=entry.version.block, index=entry.version.index, metadata=entry.metadata, expiry=entry.expiry,
        )  # fmt: skip
    return bytes(message.SerializeToString())


def decode_entries(data: bytes) -> tuple[tuple[StateKey, Entry], ...]:
    """Read entries; raises `MalformedMessage`."""
    message = _parse(pb.Entries, data, "entries", ANSWER_BYTES_MAX)
    if len(message.entries) > ENTRIES_MAX:
        expected = f"at most {ENTRIES_MAX}"
        raise MalformedMessage("entries", rule="number of keys", expected=expected, found=len(message.entries))
    return tuple(
        (
            _key(one, "entries"),
            Entry(one.value, Version(BlockNumber(one.block), TxIndex(one.index)), one.metadata, one.expiry),
        )
        for one in message.entries
    )


__all__ = [
    "ENTRIES_MAX",
    "EntriesQuestion",
    "LogQuestion",
    "StateQuestion",
    "SubtreesQuestion",
    "decode_entries",
    "decode_entries_question",
    "decode_log_answer",
    "decode_log_question",
    "decode_state_offer",
    "decode_state_question",
    "decode_subtree",
    "decode_subtrees",
    "decode_subtrees_question",
    "encode_entries",
    "encode_entries_question",
    "encode_log_answer",
    "encode_log_question",
    "encode_state_offer",
    "encode_state_question",
    "encode_subtree",
    "encode_subtrees",
    "encode_subtrees_question",
]
