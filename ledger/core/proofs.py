"""What does a proof say, and does it?  Proofs that one file carries, checked against a genesis block alone.

Kinds, each resting on a valid checkpoint (two for consistency), whose signers are entitled by the config trail:

    inclusion      a valid transaction stands at a place of the ledger
    rejection      an envelope with this digest was ordered at a place and judged invalid, by which verdict
    presence       a key has this value, version and metadata in the state at the checkpoint
    absence        a key is not in the state at the checkpoint
    consistency    the ledger at one checkpoint is the beginning of the ledger at another
    checkpoint     nothing more than that the checkpoint is valid

The trust root is the genesis block. From it the *trail* of config blocks leads to the orderers and peers that may sign,
as of the checkpoint: nothing is judged by today's date, so a proof stays valid when certificates expire and
organisations leave. The trail is checked by `wire.proofs`, which decodes; from there on everything is here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ledger.core.block import Block, block_hash
from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import CheckpointProof, CheckpointRoots
from ledger.core.checkpoint_proof import CheckpointRules, check_proof, describe_global_policy
from ledger.core.errors import InvalidProof, shown
from ledger.core.hashing import digest
from ledger.core.merkle import leaf_hash as log_leaf
from ledger.core.merkle import verify_consistency, verify_inclusion
from ledger.core.names import NEVER, BlockNumber, ChannelId, Digest, Verdict, verdict_name
from ledger.core.orderer_signatures import OrdererMetadata, check_last_config, check_orderer_signatures
from ledger.core.state import Entry, StateKey
from ledger.core.state_tree import StateProof, verify_absence, verify_presence
from ledger.core.vblock import Leaf, VBlockHeader, leaf_hash, vblock_hash


class Kind(StrEnum):
    """What a proof is of."""

    INCLUSION = "inclusion"
    REJECTION = "rejection"
    PRESENCE = "presence"
    ABSENCE = "absence"
    CONSISTENCY = "consistency"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class ProvenCheckpoint:
    """A valid checkpoint with everything that shows that it is one."""

    proof: CheckpointProof
    """Statement, and signatures in the order in which the policy is evaluated."""

    state_root: Digest
    """With the last config block it makes the statement's state hash."""

    block: Block
    """Header and orderers' signatures of the block that the checkpoint is at; no envelopes."""

    vblock: VBlockHeader
    """That block's vBlock header; its hash is in the statement."""

    genesis_path: tuple[Digest, ...]
    """From the vBlock of the genesis block up to the statement's vLedger root."""

    @property
    def number(self) -> BlockNumber:
        """Block of the checkpoint."""
        return self.proof.statement.number


@dataclass(frozen=True, slots=True)
class ProvenTransaction:
    """One ordered transaction, and the way from its leaf to the vLedger root."""

    leaf: Leaf
    envelope: bytes | None
    """The whole envelope of a valid transaction; None for an invalid one."""

    path: tuple[Digest, ...]
    """From the leaf to the vBlock's transaction root."""

    vblock: VBlockHeader
    log_path: tuple[Digest, ...]
    """From the vBlock to the vLedger root."""


@dataclass(frozen=True, slots=True)
class ProvenEntry:
    """A key's entry, or that it has none, and the way from there to the state root."""

    key: StateKey
    entry: Entry | None
    proof: StateProof


@dataclass(frozen=True, slots=True)
class ProvenPrefix:
    """An older checkpoint, and the way from its log to the newer one's."""

    older: ProvenCheckpoint
    path: tuple[Digest, ...]


Subject = ProvenTransaction | ProvenEntry | ProvenPrefix | None
"""What a proof is about besides its checkpoint."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One proof, as it stands in a file."""

    channel: ChannelId
    config_blocks: tuple[Block, ...]
    """Every config block above the genesis block, up to the checkpoint."""

    checkpoint: ProvenCheckpoint
    subject: Subject = None

    @property
    def kind(self) -> Kind:
        """What it is of."""
        match self.subject:
            case ProvenTransaction(leaf):
                return Kind.INCLUSION if leaf.verdict == Verdict.VALID else Kind.REJECTION
            case ProvenEntry(_, entry):
                return Kind.ABSENCE if entry is None else Kind.PRESENCE
            case ProvenPrefix():
                return Kind.CONSISTENCY
            case None:
                return Kind.CHECKPOINT


@dataclass(frozen=True, slots=True)
class ConfigStep:
    """A config block of the trail."""

    number: BlockNumber
    envelope_digest: Digest
    after: Bundle
    """The configuration that it put in force."""


@dataclass(frozen=True, slots=True)
class ConfigTrail:
    """The configurations of a channel, each of which was shown to follow from the one before."""

    genesis_block: Digest
    """Header hash of the genesis block."""

    genesis_vblock: Digest
    """Hash of its vBlock, which anybody can compute from the block."""

    steps: tuple[ConfigStep, ...]
    """The genesis block first."""

    @property
    def channel(self) -> ChannelId:
        """Name of the channel."""
        return ChannelId(self.steps[0].after.channel_id)

    def at(self, number: int) -> ConfigStep:
        """Give the last config block at or below a number."""
        return [step for step in self.steps if step.number <= number][-1]


@dataclass(frozen=True, slots=True)
class Verified:
    """What a proof that holds has shown."""

    facts: Mapping[str, object]
    """As data: the kind, the channel, the checkpoint, and what is said of them; numbers and lower-case hex."""

    signers: tuple[str, ...]
    """Who signed the checkpoint, `MSP name`."""

    policy: str
    """What they satisfy."""

    config_blocks: tuple[BlockNumber, ...]
    """The trail."""


Judge = Callable[[Proof], tuple[ConfigTrail, Mapping[BlockNumber, OrdererMetadata]]]
"""Judges the config blocks of a proof, and decodes what the orderers signed at each of its checkpoints."""


def verify_proof(proof: Proof, judge: Judge) -> Verified:
    """Check a proof; signatures come last.

    1. Each vBlock header at a checkpoint is that of its block, and hashes to the statement's vBlock hash.
    2. What the proof is about follows from the hashes in the statement.
    3. The config blocks follow from the genesis block, which is about the proof's channel.
    4. No config block is above the checkpoint: what nothing rests on does not belong into a proof.
    5. Each checkpoint is valid (`verify_checkpoint`).

    Args:
        proof: The proof.
        judge: Does step 3's work; raises `Refused`.

    Raises:
        InvalidProof, InvalidBlock, InvalidCheckpoint, InvalidConfig, PolicyNotSatisfied: A step fails; the rule is
            named.
    """
    # 1.
    checkpoint, subject = proof.checkpoint, proof.subject
    checkpoints = (checkpoint, subject.older) if isinstance(subject, ProvenPrefix) else (checkpoint,)
    for each in checkpoints:
        verify_vblock(each)

    # 2.
    facts: dict[str, object] = {"kind": proof.kind.value, "channel": proof.channel, "checkpoint": checkpoint.number}
    match subject:
        case ProvenTransaction():
            verify_transaction(subject, checkpoint)
            facts |= transaction_facts(subject)
        case ProvenEntry():
            verify_entry(subject, checkpoint)
            facts |= entry_facts(subject)
        case ProvenPrefix(older, path):
            verify_prefix(older, path, checkpoint)
            facts |= {"older": older.number, **statement_facts(older, "older_"), **statement_facts(checkpoint, "")}
        case None:
            facts |= statement_facts(checkpoint, "")

    # 3.
    trail, metadata = judge(proof)
    if proof.channel != trail.channel:
        raise InvalidProof("proof", rule="channel", expected=trail.channel, found=shown(proof.channel))

    # 4.
    if trail.steps[-1].number > checkpoint.number:
        raise InvalidProof(
            "config trail", rule="config blocks", expected=f"none above checkpoint {checkpoint.number}",
            found=trail.steps[-1].number,
        )  # fmt: skip

    # 5.
    signers, *_ = [verify_checkpoint(each, trail, metadata[each.number]) for each in checkpoints]
    numbers = tuple(step.number for step in trail.steps[1:])
    return Verified(facts, signers, describe_global_policy(trail.at(checkpoint.number).after), numbers)


def verify_vblock(checkpoint: ProvenCheckpoint) -> None:
    """Check that the vBlock header at a checkpoint is that of its block, and the one that was agreed on.

    Raises:
        InvalidProof: It is not.
    """
    statement, vblock = checkpoint.proof.statement, checkpoint.vblock
    subject = f"checkpoint {checkpoint.number}"
    found = block_hash(checkpoint.block)
    if (vblock.number, vblock.block_hash) != (checkpoint.number, found):
        raise InvalidProof(subject, rule="block hash", expected=vblock.block_hash, found=found)
    found = vblock_hash(statement.channel, vblock)
    if found != statement.vblock_hash:
        raise InvalidProof(subject, rule="vBlock hash", expected=statement.vblock_hash, found=found)


def verify_checkpoint(checkpoint: ProvenCheckpoint, trail: ConfigTrail, metadata: OrdererMetadata) -> tuple[str, ...]:
    """Check that a checkpoint is valid, whose vBlock header was checked.

    1. Its statement is about the channel.
    2. State root and last config block make the statement's state hash.
    3. The ledger begins with the genesis block: its vBlock is the first in the statement's vLedger root.
    4. The orderers signed the block, by the configuration before it, and name the trail's last config block: else one
       that removed some of the signers could have been left out.
    5. The signatures satisfy the channel's policy, by the configuration after the block, in their order.

    Returns:
        Who signed, `MSP name`.

    Raises:
        InvalidProof, InvalidBlock, InvalidCheckpoint, PolicyNotSatisfied: A step fails.
    """
    statement, number = checkpoint.proof.statement, checkpoint.number
    subject = f"checkpoint {number}"

    # 1.
    if statement.channel != trail.channel:
        raise InvalidProof(subject, rule="channel", expected=trail.channel, found=shown(statement.channel))

    # 2.
    last = trail.at(number)
    found = CheckpointRoots(
        number, statement.vblock_hash, statement.vledger_root, checkpoint.state_root, last.number, last.envelope_digest
    ).state_hash
    if found != statement.state_hash:
        raise InvalidProof(subject, rule="state hash", expected=statement.state_hash, found=found)

    # 3.
    first, path = log_leaf(trail.genesis_vblock), checkpoint.genesis_path
    try:
        verify_inclusion(first, 0, number + 1, path, statement.vledger_root)
    except InvalidProof as error:
        raise InvalidProof(
            subject, rule="genesis block", expected="a ledger that begins with it", found=error
        ) from error

    # 4.
    if number > 0:
        check_orderer_signatures(checkpoint.block, metadata, trail.at(number - 1).after)
        check_last_config(checkpoint.block, metadata, last.number)
    elif checkpoint.vblock.block_hash != trail.genesis_block:
        raise InvalidProof(
            subject, rule="genesis block", expected=trail.genesis_block, found=checkpoint.vblock.block_hash
        )

    # 5.
    signers = check_proof(checkpoint.proof, last.after, CheckpointRules())
    return tuple(f"{each.identity.msp_id} {each.name}" for each in signers)


def verify_transaction(transaction: ProvenTransaction, checkpoint: ProvenCheckpoint) -> None:
    """Check a transaction's way to the vLedger root.

    1. A valid one comes with its envelope, whose digest is in the leaf; an invalid one does not.
    2. Its leaf is in the transaction root of its vBlock header.
    3. That vBlock is in the vLedger root.

    Raises:
        InvalidProof: A step fails.
    """
    leaf, vblock = transaction.leaf, transaction.vblock
    subject = f"transaction {leaf.index} of block {vblock.number}"
    if (leaf.verdict == Verdict.VALID) != (transaction.envelope is not None):
        raise InvalidProof(
            subject, rule="envelope", expected="the envelope of a valid transaction, and of no other",
            found=verdict_name(leaf.verdict),
        )  # fmt: skip
    if transaction.envelope is not None and digest(transaction.envelope) != leaf.envelope_digest:
        raise InvalidProof(
            subject, rule="envelope digest", expected=leaf.envelope_digest, found=digest(transaction.envelope)
        )
    verify_inclusion(leaf_hash(leaf), leaf.index, vblock.transaction_count, transaction.path, vblock.tx_root)
    statement = checkpoint.proof.statement
    found = log_leaf(vblock_hash(statement.channel, vblock))
    verify_inclusion(found, vblock.number, checkpoint.number + 1, transaction.log_path, statement.vledger_root)


def verify_entry(entry: ProvenEntry, checkpoint: ProvenCheckpoint) -> None:
    """Check that a key has an entry, or none, in the state at a checkpoint; raises `InvalidProof`."""
    if entry.entry is None:
        verify_absence(checkpoint.state_root, entry.key, entry.proof)
    else:
        verify_presence(checkpoint.state_root, entry.key, entry.entry, entry.proof)


def verify_prefix(older: ProvenCheckpoint, path: tuple[Digest, ...], newer: ProvenCheckpoint) -> None:
    """Check that the ledger at one checkpoint is the beginning of that at another; raises `InvalidProof`."""
    first, second = older.proof.statement, newer.proof.statement
    if first.number >= second.number:
        raise InvalidProof(
            "consistency", rule="older checkpoint", expected=f"below {second.number}", found=first.number
        )
    verify_consistency(first.number + 1, second.number + 1, path, first.vledger_root, second.vledger_root)


# -- facts


def statement_facts(checkpoint: ProvenCheckpoint, prefix: str) -> dict[str, object]:
    """Say what was agreed on at a checkpoint."""
    statement = checkpoint.proof.statement
    return {
        f"{prefix}vblock_hash": statement.vblock_hash.hex(),
        f"{prefix}vledger_root": statement.vledger_root.hex(),
        f"{prefix}state_hash": statement.state_hash.hex(),
    }


def transaction_facts(transaction: ProvenTransaction) -> dict[str, object]:
    """Say what is known of a transaction."""
    leaf = transaction.leaf
    return {
        "block": transaction.vblock.number,
        "index": leaf.index,
        "verdict": leaf.verdict,
        "tx_id": leaf.tx_id,
        "envelope_digest": leaf.envelope_digest.hex(),
    }


def entry_facts(entry: ProvenEntry) -> dict[str, object]:
    """Say what is known of a key."""
    key = entry.key
    facts: dict[str, object] = {"namespace": key.namespace, "collection": key.collection, "key": key.key.hex()}
    if entry.entry is not None:
        value, version, metadata, expiry = entry.entry
        facts |= {"value": value.hex(), "block": version.block, "index": version.index, "metadata": metadata.hex()}
        facts["expiry"] = None if expiry == NEVER else expiry
    return facts


def in_words(verified: Verified) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tell people what a proof has shown, and what it has not.

    Returns:
        Sentences of what is proved, and of what is not.
    """
    facts = verified.facts
    number, kind = facts["checkpoint"], Kind(str(facts["kind"]))
    proved: list[str] = []
    not_proved: list[str] = []
    match kind:
        case Kind.INCLUSION:
            proved.append(
                f"Transaction {facts['tx_id']} stands at index {facts['index']} of block {facts['block']} of channel "
                f"{facts['channel']} and was judged VALID. Its envelope, whole in the proof, has the SHA-256 "
                f"{facts['envelope_digest']}."
            )
        case Kind.REJECTION:
            verdict = verdict_name(int(str(facts["verdict"])))
            proved.append(
                f"An envelope with the SHA-256 {facts['envelope_digest']} was ordered at index {facts['index']} of "
                f"block {facts['block']} of channel {facts['channel']} and was judged invalid: {verdict}."
            )
            not_proved.append(
                f"Who sent it. It claimed {_claimed(facts)}, and a claimed id proves nothing about the sender: anybody "
                "can write one into an envelope. Whoever holds the envelope can compare its SHA-256."
            )
        case Kind.PRESENCE:
            proved.append(
                f"In the state of channel {facts['channel']} after block {number}, {_key(facts)} has the value "
                f"{_text(str(facts['value']))}, written by transaction {facts['index']} of block {facts['block']}."
            )
            not_proved.append(f"What became of the key after block {number}.")
        case Kind.ABSENCE:
            proved.append(
                f"In the state of channel {facts['channel']} after block {number} there is no entry of {_key(facts)}."
            )
            not_proved.append(f"Whether the key was there before block {number}, or came after it.")
        case Kind.CONSISTENCY:
            proved.append(
                f"The validated ledger of channel {facts['channel']} at checkpoint {facts['older']} is the beginning "
                f"of that at checkpoint {number}: nothing up to block {facts['older']} was changed in between. "
                f"Checkpoint {facts['older']} is valid by the same rules."
            )
        case Kind.CHECKPOINT:
            proved.append(
                f"Peers agreed on the ledger of channel {facts['channel']} up to block {number}: vBlock hash "
                f"{facts['vblock_hash']}, vLedger root {facts['vledger_root']}, state hash {facts['state_hash']}."
            )
    proved.append(
        f"Checkpoint {number} is valid: {', '.join(verified.signers)} signed it, which satisfies {verified.policy} by "
        f"the configuration after block {number}."
    )
    trail = ", ".join(map(str, verified.config_blocks))
    proved.append(
        f"Who was entitled to sign follows from your genesis block through the config blocks {trail}, each signed by "
        "the orderers before it and made by an update that its admins signed."
        if trail
        else "Who was entitled to sign stands in your genesis block: the orderers say that no config block came after."
    )
    not_proved.append(f"That block {number} is recent, or what the configuration and the ledger are after it.")
    not_proved.append("When anything happened by the clock: blocks carry no agreed time.")
    return tuple(map(_printable, proved)), tuple(map(_printable, not_proved))


def _printable(sentence: str) -> str:
    """Leave out what would control a terminal: ids and names were chosen by somebody."""
    return "".join(letter if letter.isprintable() else "?" for letter in sentence)


def _claimed(facts: Mapping[str, object]) -> str:
    return f"the id {shown(facts['tx_id'])}" if facts["tx_id"] else "no id that could be read"


def _key(facts: Mapping[str, object]) -> str:
    if facts["collection"]:
        return (
            f"the key with the SHA-256 {facts['key']} in collection {facts['collection']} of {facts['namespace']} "
            "(hashed private data: the value, too, is a hash)"
        )
    return f"the key {_text(str(facts['key']))} of {facts['namespace'] or 'the channel'}"


def _text(raw: str) -> str:
    """Show hex as text where it is plain text, else as it is."""
    try:
        text = bytes.fromhex(raw).decode()
    except UnicodeDecodeError:
        return f"0x{shown(raw)}"
    return repr(shown(text)) if text.isprintable() else f"0x{shown(raw)}"


__all__ = [
    "ConfigStep",
    "ConfigTrail",
    "Kind",
    "Proof",
    "ProvenCheckpoint",
    "ProvenEntry",
    "ProvenPrefix",
    "ProvenTransaction",
    "Subject",
    "Verified",
    "in_words",
    "verify_proof",
]
