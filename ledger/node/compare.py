"""Where do two ledgers of one channel differ?  Two stopped peers' data directories, or two running peers by address.

vBlocks are a chain, so the first one that differs is found by halving: log2(n) looks at each side. The states are then
compared entry by entry where both directories have one of the same height: at their last blocks, or at a checkpoint
that both keep. A running peer does not show its state over REST, so of two of these the newest checkpoint that both
computed is compared: its state hash says whether the states differ at all, and a peer that diverged finds the keys
itself (`services.checkpointing.finding`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from ledger.core.divergence import KEYS_MAX, key_facts, vblock_facts
from ledger.core.errors import Conflict, NotFound
from ledger.core.names import BlockNumber, ChannelId, Digest, TxId, TxIndex
from ledger.core.state import Entry, StateKey
from ledger.core.vblock import Leaf, VBlockHeader
from ledger.storage.keys import state_key
from ledger.storage.ledger_store import LedgerStore

Entries = Iterable[tuple[StateKey, Entry]]


class Side(Protocol):
    """One of two ledgers."""

    height: int

    def vblock_hash(self, number: BlockNumber) -> str:
        """Give a vBlock's hash as hex."""
        ...

    def vblock(self, number: BlockNumber) -> tuple[VBlockHeader, tuple[Leaf, ...]]:
        """Give a vBlock's header and leaves."""
        ...


class FolderSide:
    """The ledger of a stopped peer."""

    def __init__(self, data: Path, channel: str | None, stack: ExitStack) -> None:
        """Open it; raises `NotFound`, `Conflict`, `StorageDamaged`."""
        self.channel = channel_in(data, channel)
        self.store = LedgerStore.open(data, self.channel)
        stack.callback(self.store.close)
        self.height = self.store.height

    def vblock_hash(self, number: BlockNumber) -> str:
        """Read it."""
        return self.store.summary(number).vblock_hash.hex()

    def vblock(self, number: BlockNumber) -> tuple[VBlockHeader, tuple[Leaf, ...]]:
        """Read it."""
        found = self.store.vblock(number)
        return found.header, found.leaves


class RestSide:
    """The ledger of a running peer.

    Args:
        ask: Asks its REST interface for a document of the channel.
    """

    def __init__(self, ask: Callable[[str], Any]) -> None:
        """Ask how high it is."""
        self._ask = ask
        self._known: dict[int, Any] = {}
        info = ask("")
        self.channel = ChannelId(info["channel"])
        self.height = int(info["height"])

    def vblock_hash(self, number: BlockNumber) -> str:
        """Ask for it."""
        return str(self._document(number)["vblock_hash"])

    def vblock(self, number: BlockNumber) -> tuple[VBlockHeader, tuple[Leaf, ...]]:
        """Ask for it, if that was not done."""
        found = self._document(number)
        raw = found["header"]
        header = VBlockHeader(
            number,
            Digest(bytes.fromhex(raw["previous_hash"])),
            Digest(bytes.fromhex(raw["block_hash"])),
            raw["transaction_count"],
            raw["valid_count"],
            Digest(bytes.fromhex(raw["tx_root"])),
            bytes.fromhex(raw["commit_hash"]),
        )
        leaves = tuple(
            Leaf(TxIndex(one["index"]), one["verdict_code"], Digest(bytes.fromhex(one["envelope_digest"])),
                 TxId(one["tx_id"]))
            for one in found["leaves"]
        )  # fmt: skip
        return header, leaves

    def statements(self) -> dict[int, Mapping[str, Any]]:
        """Ask for what it says at each of its newest checkpoints."""
        listed = self._ask("/checkpoints")["checkpoints"]
        return {int(one["number"]): self._ask(f"/checkpoints/{one['number']}")["statement"] for one in listed[:8]}

    def _document(self, number: int) -> Any:
        if number not in self._known:
            self._known[number] = self._ask(f"/vblocks/{number}")
        return self._known[number]


def channel_in(data: Path, wanted: str | None) -> ChannelId:
    """Find the channel of a data directory; raises `NotFound`."""
    found = sorted(path.name for path in (data / "channels").glob("*") if path.is_dir())
    chosen = [name for name in found if wanted in (None, name)]
    if len(chosen) != 1:
        raise NotFound(f"{data} holds {', '.join(found) or 'no channel'}; name one of them with --channel")
    return ChannelId(chosen[0])


def compare_vblocks(first: Side, second: Side) -> tuple[dict[str, object] | None, int]:
    """Find the first vBlock that differs among those that both have.

    Returns:
        What differs, None for nothing, and how many vBlocks of each side were looked at.
    """
    low, high = 0, min(first.height, second.height)
    looks = 0
    while low < high:  # Equal below `low`, different from `high` on, or nothing there.
        middle = BlockNumber((low + high) // 2)
        looks += 1
        if first.vblock_hash(middle) == second.vblock_hash(middle):
            low = middle + 1
        else:
            high = middle
    if low == min(first.height, second.height):
        return None, looks
    number = BlockNumber(low)
    (ours, our_leaves), (theirs, their_leaves) = first.vblock(number), second.vblock(number)
    return vblock_facts(ours, theirs, our_leaves, their_leaves), looks


def compare_folders(first: Path, second: Path, channel: str | None) -> dict[str, object]:
    """Compare the ledgers of two stopped peers."""
    with ExitStack() as stack:
        one, other = FolderSide(first, channel, stack), FolderSide(second, channel, stack)
        check_channels(one.channel, other.channel)
        vblock, looks = compare_vblocks(one, other)
        state, reason = _folder_states(one.store, other.store, stack)
        return _facts(one, other, vblock, looks, state, reason)


def compare_peers(first: Callable[[str], Any], second: Callable[[str], Any]) -> dict[str, object]:
    """Compare the ledgers of two running peers."""
    one, other = RestSide(first), RestSide(second)
    check_channels(one.channel, other.channel)
    vblock, looks = compare_vblocks(one, other)
    mine, others = one.statements(), other.statements()
    common = sorted(mine.keys() & others.keys())
    reason = "no checkpoint is known to both"
    if common:
        number = common[-1]
        differs = [name for name in ("vledger_root", "state_hash") if mine[number][name] != others[number][name]]
        reason = f"at checkpoint {number} " + (f"these differ: {', '.join(differs)}" if differs else "all is the same")
    return _facts(one, other, vblock, looks, None, reason)


def check_channels(first: ChannelId, second: ChannelId) -> None:
    """Check that two ledgers are of one channel; raises `Conflict`."""
    if first != second:
        raise Conflict(f"channel {first} can't be compared with channel {second}")


def _facts(
    one: Any, other: Any, vblock: object, looks: int, state: dict[str, object] | None, reason: str
) -> dict[str, object]:
    return {
        "channel": one.channel,
        "heights": [one.height, other.height],
        "vblock": vblock,
        "vblocks_compared": looks,
        "state": state,
        "state_reason": reason,
    }


def _folder_states(one: LedgerStore, other: LedgerStore, stack: ExitStack) -> tuple[dict[str, object] | None, str]:
    """Compare the states where both have one of the same height."""
    first: Entries
    second: Entries
    if one.height == other.height:
        at, first, second = one.height - 1, one.iter_state(), other.iter_state()
    else:
        common = [n for n in one.captured() if n in other.captured() and one.roots(n) and other.roots(n)]
        if not common:
            return None, "the heights differ, and no checkpoint is kept by both"
        at = common[-1]
        first = stack.enter_context(one.checkpoint_view(common[-1])).entries()
        second = stack.enter_context(other.checkpoint_view(common[-1])).entries()
    found = list(islice(differing(first, second), KEYS_MAX + 1))
    keys = [key_facts(*each) for each in found[:KEYS_MAX]]
    return {"ours_at": at, "theirs_at": at, "keys": keys, "more": len(found) > KEYS_MAX}, ""


def differing(first: Entries, second: Entries) -> Iterator[tuple[StateKey, Entry | None, Entry | None]]:
    """Yield the keys at which two states differ, both in the database's order."""
    left, right = iter(first), iter(second)
    mine, other = next(left, None), next(right, None)
    while mine is not None or other is not None:
        order = 0
        if mine is None or other is None:
            order = -1 if mine is not None else 1
        elif mine[0] != other[0]:
            order = -1 if state_key(mine[0]) < state_key(other[0]) else 1
        one, two = mine if order <= 0 else None, other if order >= 0 else None
        if (known := one or two) is not None and (one is None or two is None or one[1] != two[1]):
            yield known[0], one and one[1], two and two[1]
        if one is not None:
            mine = next(left, None)
        if two is not None:
            other = next(right, None)


__all__ = ["compare_folders", "compare_peers", "compare_vblocks", "differing"]
