"""How is a proof written into a file, and what does a file prove?  JSON to `core.proofs` and back, and the whole check.

The form has one spelling for each proof: exactly the members that its kind has, hex in lower case, whole numbers; what
is not needed does not stand in it. A config block is a whole `common.Block` whose metadata slots above 0 are empty:
they are a peer's own, and nobody signed them. docs/proofs.md describes every member.

Steps of `verify_file`:

1. the file has the form;
2. everything that hashes show, and then the rest: `core.proofs.verify_proof`, which asks on its way for
3. the trail: the genesis block is one, and its configuration can be used; each config block is well formed, signed by
   the orderers of the configuration before it, and its configuration follows from that one by the update in it, with
   its admins' signatures and the next sequence number.
"""

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from ledger.core.block import SLOT_COUNT, Block, Header, block_hash, check_slots
from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import SIGNATURES_MAX, CheckpointProof, PeerSignature, Statement
from ledger.core.errors import InvalidBlock, InvalidConfig, MalformedMessage
from ledger.core.hashing import digest
from ledger.core.names import NEVER, ZERO_DIGEST, BlockNumber, ChannelId, Digest, TxId, TxIndex, Verdict
from ledger.core.orderer_signatures import OrdererMetadata, check_orderer_signatures
from ledger.core.proofs import (
    ConfigStep,
    ConfigTrail,
    Kind,
    Proof,
    ProvenCheckpoint,
    ProvenEntry,
    ProvenPrefix,
    ProvenTransaction,
    Subject,
    Verified,
    verify_proof,
)
from ledger.core.state import HASHED, PUBLIC, Entry, StateKey, Version
from ledger.core.state_tree import DEPTH_MAX, StateLeaf, StateProof, path_of, value_hash
from ledger.core.vblock import Leaf, VBlockHeader, tx_root, vblock_hash
from ledger.wire.block import check_well_formed, decode_block, encode_block, is_config_block
from ledger.wire.codec import CODEC
from ledger.wire.config import bundle_from_block, config_payload, next_bundle
from ledger.wire.orderer_metadata import orderer_metadata
from ledger.wire.transaction import decode_transaction

FORMAT, VERSION = "peerledger/proof", 1

FILE_BYTES_MAX = 256 << 20
"""Larger files are not read."""

PATH_LENGTH_MAX = 64
"""Hashes of a path in a log: its sizes have 64 bits."""

CONFIG_BLOCKS_MAX = 100_000

Item = TypeVar("Item")


# -- writing


def encode_proof(proof: Proof) -> bytes:
    """Write a proof as its file."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "kind": proof.kind.value,
        "channel": proof.channel,
        "checkpoint": _checkpoint_members(proof.checkpoint),
    }
    match proof.subject:
        case ProvenTransaction() as transaction:
            document["transaction"] = _transaction_members(transaction)
        case ProvenEntry() as entry:
            document["entry"] = _entry_members(entry)
        case ProvenPrefix(older, path):
            document["older"] = _checkpoint_members(older)
            document["consistency_path"] = _hexes(path)
        case None:
            pass
    document["config_blocks"] = [encode_block(unsigned_slots_left_out(block)).hex() for block in proof.config_blocks]
    return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"


def unsigned_slots_left_out(block: Block) -> Block:
    """Leave out of a block's metadata what nobody signed."""
    return Block(block.header, block.envelopes, (*block.metadata[:1], *(b"",) * (SLOT_COUNT - 1)))


def _hexes(hashes: tuple[bytes, ...]) -> list[str]:
    return [one.hex() for one in hashes]


def _checkpoint_members(checkpoint: ProvenCheckpoint) -> dict[str, Any]:
    statement, block = checkpoint.proof.statement, checkpoint.block
    return {
        "number": statement.number,
        "vblock_hash": statement.vblock_hash.hex(),
        "vledger_root": statement.vledger_root.hex(),
        "state_hash": statement.state_hash.hex(),
        "state_root": checkpoint.state_root.hex(),
        "signatures": [
            {"identity": one.identity.hex(), "signature": one.signature.hex()} for one in checkpoint.proof.signatures
        ],
        "block": {
            "previous_hash": block.header.previous_hash.hex(),
            "data_hash": block.header.data_hash.hex(),
            "orderer_metadata": block.metadata[0].hex(),
        },
        "vblock": _vblock_members(checkpoint.vblock),
        "genesis_path": _hexes(checkpoint.genesis_path),
    }


def _vblock_members(vblock: VBlockHeader) -> dict[str, Any]:
    return {
        "previous_hash": vblock.previous_hash.hex(),
        "block_hash": vblock.block_hash.hex(),
        "transactions": vblock.transaction_count,
        "valid": vblock.valid_count,
        "tx_root": vblock.tx_root.hex(),
        "commit_hash": vblock.commit_hash.hex(),
    }


def _transaction_members(transaction: ProvenTransaction) -> dict[str, Any]:
    leaf, envelope = transaction.leaf, transaction.envelope
    return {
        "block": transaction.vblock.number,
        "index": leaf.index,
        "verdict": leaf.verdict,
        "tx_id": leaf.tx_id,
        **({"envelope_digest": leaf.envelope_digest.hex()} if envelope is None else {"envelope": envelope.hex()}),
        "path": _hexes(transaction.path),
        "vblock": _vblock_members(transaction.vblock),
        "log_path": _hexes(transaction.log_path),
    }


def _entry_members(entry: ProvenEntry) -> dict[str, Any]:
    key, found, proof = entry.key, entry.entry, entry.proof
    members: dict[str, Any] = {"namespace": key.namespace, "collection": key.collection, "key": key.key.hex()}
    if found is not None:
        members |= {
            "value": found.value.hex(),
            "block": found.version.block,
            "index": found.version.index,
            "metadata": found.metadata.hex(),
            "expiry": None if found.expiry == NEVER else found.expiry,
        }
    else:
        leaf = proof.leaf
        members["other"] = None if leaf is None else {"path": leaf.path.hex(), "value_hash": leaf.value_hash.hex()}
    members["siblings"] = _hexes(proof.siblings)
    return members


# -- reading


def decode_proof(data: bytes) -> Proof:
    """Read a proof's file (step 1).

    Raises:
        MalformedMessage: It does not have the form; the subject says where.
    """
    document = _Members(_json(data), "proof")
    for name, expected in (("format", FORMAT), ("version", VERSION)):
        found = document.take(name)
        if found != expected or type(found) is not type(expected):
            raise MalformedMessage("proof", rule=name, expected=expected, found=found)
    kind = document.text("kind")
    if kind not in tuple(Kind):
        raise MalformedMessage("proof", rule="kind", expected=", ".join(Kind), found=kind)
    channel = ChannelId(document.text("channel"))
    checkpoint = document.inner("checkpoint", lambda members: _checkpoint(channel, members))
    subject: Subject = None
    match Kind(kind):
        case Kind.INCLUSION:
            subject = document.inner("transaction", lambda members: _transaction(members, is_valid=True))
        case Kind.REJECTION:
            subject = document.inner("transaction", lambda members: _transaction(members, is_valid=False))
        case Kind.PRESENCE:
            subject = document.inner("entry", lambda members: _entry(members, is_present=True))
        case Kind.ABSENCE:
            subject = document.inner("entry", lambda members: _entry(members, is_present=False))
        case Kind.CONSISTENCY:
            older = document.inner("older", lambda members: _checkpoint(channel, members))
            subject = ProvenPrefix(older, document.path("consistency_path"))
        case Kind.CHECKPOINT:
            pass
    blocks = tuple(map(_config_block, document.texts("config_blocks", CONFIG_BLOCKS_MAX)))
    document.done()
    return Proof(channel, blocks, checkpoint, subject)


def _json(data: bytes) -> Any:
    """Parse JSON strictly: UTF-8, no name twice, no fractions, no constants that JSON does not have."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name comes twice")
        return found

    def refuse(text: str) -> Any:
        raise ValueError(f"{text} is no whole number")

    if len(data) > FILE_BYTES_MAX:
        raise MalformedMessage("proof", rule="length", expected=f"at most {FILE_BYTES_MAX} bytes", found=len(data))
    try:
        return json.loads(data.decode(), object_pairs_hook=distinct, parse_float=refuse, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage("proof", rule="JSON", expected="a JSON document", found=error) from error


class _Members:
    """Takes the members of a JSON object one by one; in the end none may be left.

    Args:
        value: What should be the object.
        subject: What it is, for errors.
    """

    def __init__(self, value: Any, subject: str) -> None:
        if not isinstance(value, dict):
            raise MalformedMessage(subject, rule="form", expected="a JSON object", found=value)
        self._left: dict[str, Any] = dict(value)
        self._subject = subject

    def take(self, name: str) -> Any:
        """Take a member, whatever it is."""
        if name not in self._left:
            raise MalformedMessage(self._subject, rule="member", expected=name, found="none")
        return self._left.pop(name)

    def refuse(self, name: str, expected: str, found: object) -> MalformedMessage:
        """Make the error for a member of another form."""
        return MalformedMessage(f"{self._subject}, {name}", rule="form", expected=expected, found=found)

    def text(self, name: str) -> str:
        """Take a text that can be written as UTF-8."""
        found = self.take(name)
        if not isinstance(found, str) or _SURROGATE.search(found):
            raise self.refuse(name, "a text", found)
        return found

    def number(self, name: str, bits: int) -> int:
        """Take a whole number of so many bits."""
        found = self.take(name)
        if type(found) is not int or not 0 <= found < 1 << bits:
            raise self.refuse(name, f"a whole number of {bits} bits", found)
        return found

    def raw(self, name: str) -> bytes:
        """Take bytes, written as lower-case hex."""
        return self._raw(name, self.text(name))

    def digest(self, name: str) -> Digest:
        """Take a hash."""
        return self._digest(name, self.text(name))

    def texts(self, name: str, count_max: int) -> list[str]:
        """Take a list of texts, which are not looked at here."""
        return [one if isinstance(one, str) else "" for one in self._items(name, count_max)]

    def path(self, name: str, length_max: int = PATH_LENGTH_MAX) -> tuple[Digest, ...]:
        """Take a list of hashes."""
        return tuple(self._digest(name, one) for one in self._items(name, length_max))

    def inner(self, name: str, read: "Callable[[_Members], Item]") -> Item:
        """Take an object and read all of it."""
        members = _Members(self.take(name), name)
        found = read(members)
        members.done()
        return found

    def each(self, name: str, count_max: int, read: "Callable[[_Members], Item]") -> tuple[Item, ...]:
        """Take a list of objects and read all of each."""
        found = []
        for one in self._items(name, count_max):
            members = _Members(one, name)
            found.append(read(members))
            members.done()
        return tuple(found)

    def done(self) -> None:
        """Refuse whatever was not taken."""
        if self._left:
            raise MalformedMessage(
                self._subject, rule="member", expected="no more", found=", ".join(map(repr, sorted(self._left)))
            )

    def _items(self, name: str, count_max: int) -> list[Any]:
        found = self.take(name)
        if not isinstance(found, list) or len(found) > count_max:
            raise self.refuse(name, f"a list of at most {count_max}", found)
        return found

    def _raw(self, name: str, found: object) -> bytes:
        raw = _unhex(found)
        if raw is None:
            raise self.refuse(name, "lower-case hex", found)
        return raw

    def _digest(self, name: str, found: object) -> Digest:
        raw = self._raw(name, found)
        if len(raw) != len(ZERO_DIGEST):
            raise self.refuse(name, "a hash of 32 bytes", found)
        return Digest(raw)


_SURROGATE = re.compile("[\ud800-\udfff]")
_HEX = re.compile(r"([0-9a-f]{2})*")


def _unhex(found: object) -> bytes | None:
    return bytes.fromhex(found) if isinstance(found, str) and _HEX.fullmatch(found) else None


def _checkpoint(channel: ChannelId, members: _Members) -> ProvenCheckpoint:
    number = BlockNumber(members.number("number", 64))
    hashes = [members.digest(name) for name in ("vblock_hash", "vledger_root", "state_hash")]
    header, slot = members.inner(
        "block",
        lambda block: (
            Header(number, block.raw("previous_hash"), block.raw("data_hash")),
            block.raw("orderer_metadata"),
        ),
    )
    signatures = members.each(
        "signatures", SIGNATURES_MAX, lambda one: PeerSignature(one.raw("identity"), one.raw("signature"))
    )
    return ProvenCheckpoint(
        CheckpointProof(Statement(channel, number, *hashes), signatures),
        members.digest("state_root"),
        Block(header, (), (slot, *(b"",) * (SLOT_COUNT - 1))),
        members.inner("vblock", lambda vblock: _vblock(number, vblock)),
        members.path("genesis_path"),
    )


def _vblock(number: BlockNumber, members: _Members) -> VBlockHeader:
    return VBlockHeader(
        number,
        members.digest("previous_hash"),
        members.digest("block_hash"),
        members.number("transactions", 32),
        members.number("valid", 32),
        members.digest("tx_root"),
        members.raw("commit_hash"),
    )


def _transaction(members: _Members, *, is_valid: bool) -> ProvenTransaction:
    number = BlockNumber(members.number("block", 64))
    index, verdict = TxIndex(members.number("index", 32)), members.number("verdict", 8)
    if (verdict == Verdict.VALID) != is_valid:
        raise members.refuse("verdict", "0 of an inclusion, another of a rejection", verdict)
    envelope = members.raw("envelope") if is_valid else None
    found = digest(envelope) if envelope is not None else members.digest("envelope_digest")
    leaf = Leaf(index, verdict, found, TxId(members.text("tx_id")))
    return ProvenTransaction(
        leaf,
        envelope,
        members.path("path"),
        members.inner("vblock", lambda vblock: _vblock(number, vblock)),
        members.path("log_path"),
    )


def _entry(members: _Members, *, is_present: bool) -> ProvenEntry:
    namespace, collection, raw = members.text("namespace"), members.text("collection"), members.raw("key")
    key = StateKey(HASHED if collection else PUBLIC, namespace, collection, raw)
    siblings = members.path("siblings", DEPTH_MAX)
    if not is_present:
        other = members.take("other")
        leaf = None
        if other is not None:
            inner = _Members(other, "other")
            leaf = StateLeaf(inner.digest("path"), inner.digest("value_hash"))
            inner.done()
        return ProvenEntry(key, None, StateProof(siblings, leaf))
    value = members.raw("value")
    version = Version(BlockNumber(members.number("block", 64)), TxIndex(members.number("index", 32)))
    metadata, expiry = members.raw("metadata"), members.take("expiry")
    if expiry is not None and (type(expiry) is not int or not 0 <= expiry < NEVER):
        raise members.refuse("expiry", "a block number, or null for never", expiry)
    entry = Entry(value, version, metadata, NEVER if expiry is None else expiry)
    return ProvenEntry(key, entry, StateProof(siblings, StateLeaf(path_of(key), value_hash(entry))))


def _config_block(text: str) -> Block:
    """Read a config block: whole, in the one spelling, with nothing in its metadata that nobody signed."""
    raw = _unhex(text)
    if raw is None:
        raise MalformedMessage("proof, config_blocks", rule="form", expected="lower-case hex", found=text)
    block = decode_block(raw)
    if encode_block(unsigned_slots_left_out(block)) != raw:
        raise MalformedMessage(
            f"config block {block.number}", rule="spelling", expected="a block without unsigned metadata", found=raw
        )
    return block


# -- checking


def verify_file(data: bytes, genesis: bytes) -> Verified:
    """Check a proof's file against a genesis block (steps 1 to 3).

    Args:
        data: The file.
        genesis: The genesis block, serialized: the trust root.

    Returns:
        What was shown.

    Raises:
        Refused: A step fails; the rule is named.
    """

    def judge(proof: Proof) -> tuple[ConfigTrail, dict[BlockNumber, OrdererMetadata]]:
        trail = follow_trail(decode_block(genesis), proof.config_blocks)
        checkpoints = [proof.checkpoint]
        if isinstance(proof.subject, ProvenPrefix):
            checkpoints.append(proof.subject.older)
        return trail, {
            each.number: orderer_metadata(each.block, trail.at(max(each.number - 1, 0)).after) for each in checkpoints
        }

    return verify_proof(decode_proof(data), judge)


def follow_trail(genesis: Block, blocks: tuple[Block, ...]) -> ConfigTrail:
    """Follow config blocks from the genesis block on (step 3).

    Raises:
        InvalidBlock, InvalidConfig: A step fails.
    """
    if genesis.number != 0:
        raise InvalidBlock("genesis block", rule="block number", expected=0, found=genesis.number)
    check_well_formed(genesis)
    bundle = bundle_from_block(genesis, CODEC)
    steps = [ConfigStep(BlockNumber(0), digest(genesis.envelopes[0]), bundle)]
    for block in blocks:
        bundle = next_step(block, steps[-1].number, bundle)
        steps.append(ConfigStep(block.number, digest(block.envelopes[0]), bundle))
    return ConfigTrail(block_hash(genesis), genesis_vblock(ChannelId(bundle.channel_id), genesis), tuple(steps))


def next_step(block: Block, previous: BlockNumber, before: Bundle) -> Bundle:
    """Check one config block of a trail; give the configuration after it."""
    if block.number <= previous:
        raise InvalidBlock(
            f"config block {block.number}", rule="block number", expected=f"above {previous}", found=block.number
        )
    if not is_config_block(block):
        raise InvalidBlock(f"block {block.number}", rule="config block", expected="one CONFIG envelope", found="other")
    check_slots(block)
    check_well_formed(block)
    check_orderer_signatures(block, orderer_metadata(block, before), before)
    channel, content = config_payload(block.envelopes[0])
    if channel != before.channel_id:
        raise InvalidConfig(f"config block {block.number}", rule="channel", expected=before.channel_id, found=channel)
    return next_bundle(before, content, CODEC)


def genesis_vblock(channel: ChannelId, genesis: Block) -> Digest:
    """Compute the vBlock hash of a genesis block: its one transaction is valid."""
    envelope = genesis.envelopes[0]
    leaf = Leaf(TxIndex(0), int(Verdict.VALID), digest(envelope), decode_transaction(envelope).tx_id)
    header = VBlockHeader(BlockNumber(0), ZERO_DIGEST, block_hash(genesis), 1, 1, tx_root([leaf]), b"")
    return vblock_hash(channel, header)


__all__ = ["decode_proof", "encode_proof", "follow_trail", "unsigned_slots_left_out", "verify_file"]
