"""Where did this peer begin to differ from the others?  The first vBlock, and the keys of the state.

Everything hangs from the checkpoint that the others validly agreed on: its vLedger root and its state hash are signed
by as many peers as this peer's own rule asks for. So whoever answers the questions need not be believed:

1. *The first differing vBlock.*  vBlocks are a chain, so from the first one that differs on all do: it is found by
   halving. Each answer is a vBlock's header with the way from it to the signed root (`check_log_answer`).
2. *The transactions in it* that differ: the leaves of that block, which its transaction root holds.
3. *The keys of the state* that differ: both trees are gone down together from the signed state hash
   (`core.tree_descent`), then the entries are shown, each of which its leaf holds.

Values never appear in what is found, only their hashes: of private data nothing else is known to anybody who compares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ledger.core.checkpoint import CheckpointProof, CheckpointRoots
from ledger.core.errors import InvalidProof
from ledger.core.hashing import digest
from ledger.core.merkle import leaf_hash, verify_inclusion
from ledger.core.names import NEVER, BlockNumber, ChannelId, Digest, verdict_name
from ledger.core.state import Entry, StateKey
from ledger.core.state_tree import path_of, value_hash
from ledger.core.tree_descent import LeafDifference
from ledger.core.vblock import Leaf, VBlockHeader, tx_root, vblock_hash

TRANSACTIONS_MAX = 20
"""Differing transactions that are told."""

KEYS_MAX = 100
"""Differing keys that are looked for."""

KEYS_IN_A_LINE = 3
"""Differing keys that one line names."""


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """What the other side says of one vBlock."""

    header: VBlockHeader
    path: tuple[Digest, ...]
    """From the vBlock to the vLedger root of the checkpoint."""


@dataclass(frozen=True, slots=True)
class StateOffer:
    """A checkpoint at which the other side can show its state."""

    proof: CheckpointProof
    """What made it valid."""

    roots: CheckpointRoots
    """What the other side computed there."""


@dataclass(frozen=True, slots=True)
class Bisection:
    """Halving: equal below `low`, different at `high` and above."""

    low: int
    high: int
    theirs: LogAnswer | None = None
    """What the other side says of the vBlock at `high`, if it was asked."""

    @property
    def wanted(self) -> BlockNumber | None:
        """The vBlock to ask about next; None at the end, where `high` is the first that differs."""
        if self.low < self.high:
            return BlockNumber((self.low + self.high) // 2)
        return BlockNumber(self.high) if self.theirs is None else None


def halved(bisection: Bisection, own_hash: bytes, answer: LogAnswer, channel: ChannelId) -> Bisection:
    """Take in the answer about the vBlock that was wanted, which was checked."""
    number = answer.header.number
    if vblock_hash(channel, answer.header) == own_hash:
        return replace(bisection, low=number + 1)
    return replace(bisection, high=number, theirs=answer)


def check_log_answer(answer: LogAnswer, number: int, checkpoint: CheckpointProof) -> None:
    """Check that a vBlock is in the log of a checkpoint; raises `InvalidProof`."""
    statement, header = checkpoint.statement, answer.header
    if header.number != number:
        raise InvalidProof("vBlock of another peer", rule="block number", expected=number, found=header.number)
    leaf = leaf_hash(vblock_hash(statement.channel, header))
    verify_inclusion(leaf, number, statement.number + 1, answer.path, statement.vledger_root)


def check_leaves(header: VBlockHeader, leaves: Sequence[Leaf]) -> None:
    """Check that leaves are those of a vBlock; raises `InvalidProof`."""
    if (found := tx_root(leaves)) != header.tx_root:
        raise InvalidProof("leaves of another peer", rule="transaction root", expected=header.tx_root, found=found)


def check_state_offer(offer: StateOffer) -> None:
    """Check that roots are those of the statement that was agreed on; raises `InvalidProof`."""
    found = offer.roots.statement(offer.proof.statement.channel)
    if found != offer.proof.statement:
        expected = offer.proof.statement.state_hash
        raise InvalidProof("state of another peer", rule="state hash", expected=expected, found=found.state_hash)


def check_entry(difference: LeafDifference, key: StateKey, entry: Entry) -> None:
    """Check that an entry is the one at a differing leaf of the other side; raises `InvalidProof`."""
    subject = "entry of another peer"
    if path_of(key) != difference.path:
        raise InvalidProof(subject, rule="leaf path", expected=difference.path, found=path_of(key))
    if value_hash(entry) != difference.theirs:
        raise InvalidProof(subject, rule="value hash", expected=difference.theirs, found=value_hash(entry))


# -- what is found, as data for people and programs


def vblock_facts(
    ours: VBlockHeader, theirs: VBlockHeader, our_leaves: Sequence[Leaf], their_leaves: Sequence[Leaf]
) -> dict[str, object]:
    """Say how the first differing vBlock differs, and in which transactions."""
    names = ("block_hash", "transaction_count", "valid_count", "tx_root", "commit_hash")
    transactions = transaction_facts(our_leaves, their_leaves)
    return {
        "number": ours.number,
        "differs": [name for name in names if getattr(ours, name) != getattr(theirs, name)],
        "ours": _header_facts(ours),
        "theirs": _header_facts(theirs),
        "transactions": transactions[:TRANSACTIONS_MAX],
        "more_transactions": len(transactions) > TRANSACTIONS_MAX,
    }


def _header_facts(header: VBlockHeader) -> dict[str, object]:
    return {
        "block_hash": header.block_hash.hex(),
        "transaction_count": header.transaction_count,
        "valid_count": header.valid_count,
        "tx_root": header.tx_root.hex(),
        "commit_hash": header.commit_hash.hex(),
    }


def transaction_facts(ours: Sequence[Leaf], theirs: Sequence[Leaf]) -> list[dict[str, object]]:
    """List the transactions of one block that two peers see differently."""
    found: list[dict[str, object]] = []
    for index in range(max(len(ours), len(theirs))):
        mine = ours[index] if index < len(ours) else None
        other = theirs[index] if index < len(theirs) else None
        if mine != other:
            found.append({"index": index, "ours": _leaf_facts(mine), "theirs": _leaf_facts(other)})
    return found


def _leaf_facts(leaf: Leaf | None) -> dict[str, object] | None:
    if leaf is None:
        return None
    verdict = verdict_name(leaf.verdict)
    return {"verdict": verdict, "tx_id": leaf.tx_id, "envelope_digest": leaf.envelope_digest.hex()}


def key_facts(key: StateKey, ours: Entry | None, theirs: Entry | None) -> dict[str, object]:
    """Say how two peers differ about a key."""
    mine, other = _entry_facts(ours), _entry_facts(theirs)
    differs = ["presence"] if mine is None or other is None else [name for name in mine if mine[name] != other[name]]
    return {
        "kind": "hashed private data" if key.collection else "public",
        "namespace": key.namespace,
        "collection": key.collection,
        "key": key.key.hex(),
        "differs": differs,
        "ours": mine,
        "theirs": other,
    }


def _entry_facts(entry: Entry | None) -> dict[str, object] | None:
    if entry is None:
        return None
    return {
        "value": digest(entry.value).hex(),
        "version": f"{entry.version.block}.{entry.version.index}",
        "metadata": digest(entry.metadata).hex() if entry.metadata else "",
        "expiry": None if entry.expiry == NEVER else entry.expiry,
    }


def summary(facts: Mapping[str, object]) -> str:
    """Say in a line what was found."""
    parts = []
    vblock, state = facts.get("vblock"), facts.get("state")
    if isinstance(vblock, Mapping):
        parts.append(f"first differing vBlock: {vblock['number']} ({', '.join(vblock['differs'])})")
        parts += [
            f"transaction {one['index']} of it: {_verdict(one['ours'])} here, {_verdict(one['theirs'])} there"
            for one in vblock["transactions"][:KEYS_IN_A_LINE]
        ]
    else:
        parts.append("no vBlock differs")
    if isinstance(state, Mapping):
        keys = state["keys"]
        more = "or more " if state["more"] else ""
        names = ", ".join(map(_key_text, keys[:KEYS_IN_A_LINE])) + (", …" if len(keys) > KEYS_IN_A_LINE else "")
        parts.append(f"{len(keys)} {more}differing key{'s' if len(keys) != 1 else ''}" + (f": {names}" if keys else ""))
    else:
        parts.append(f"keys not compared: {facts.get('state_reason', '')}")
    return "; ".join(parts)


def _verdict(leaf: Mapping[str, object] | None) -> str:
    return str(leaf["verdict"]) if leaf is not None else "missing"


def _key_text(one: Mapping[str, object]) -> str:
    raw = bytes.fromhex(str(one["key"]))
    text = raw.decode(errors="replace")
    shown = repr(text) if text.isprintable() else f"0x{raw.hex()}"
    where = ".".join(str(part) for part in (one["namespace"], one["collection"]) if part) or "the channel"
    return f"{shown} of {where} ({', '.join(map(str, one['differs']))})"  # type: ignore[call-overload]  # A list.


__all__ = [
    "KEYS_MAX",
    "Bisection",
    "LogAnswer",
    "StateOffer",
    "check_entry",
    "check_leaves",
    "check_log_answer",
    "check_state_offer",
    "halved",
    "key_facts",
    "summary",
    "transaction_facts",
    "vblock_facts",
]
