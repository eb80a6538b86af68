"""Where does a peer that diverged begin to differ?  The driver of `core.divergence`: asks others until it is found.

It sleeps until there is a divergence, at the start or later. Then it asks the other peers one after the other:

1. Our state at that checkpoint is kept from now on, whatever its age.
2. The first differing vBlock is found by halving, if the logs differ at all, and the transactions in it that differ.
3. The differing keys are found by going down both state trees. Where the other side has moved on to a later checkpoint
   its state there is compared with ours, and what it says was written after our checkpoint is left out.
4. What was found is recorded, logged, and shown; it survives restarts.

A peer that can't answer, or answers with what was not agreed on, is named with the reason, and the next one is asked.
If all is not found, the rest is looked for again later, with growing pauses. Nothing here is needed for anything else:
whatever fails is shown and tried again.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from ledger.core.channel_config import Bundle
from ledger.core.checkpoint_proof import CheckpointRules, check_proof
from ledger.core.divergence import (
    KEYS_MAX,
    Bisection,
    LogAnswer,
    StateOffer,
    check_entry,
    check_leaves,
    check_log_answer,
    check_state_offer,
    halved,
    key_facts,
    summary,
    vblock_facts,
)
from ledger.core.errors import InvalidProof, NotFound, Refused, WorldFailed
from ledger.core.names import BlockNumber, ChannelId
from ledger.core.state import Entry, StateKey
from ledger.core.state_tree import path_of
from ledger.core.tree_descent import Place, Subtree, asked, begin, heard
from ledger.core.vblock import Leaf
from ledger.storage.checkpoint_state import CheckpointStateView
from ledger.storage.checkpoints import CheckpointStore, Divergence
from ledger.storage.ledger_store import LedgerStore
from ledger.telemetry.metrics import Metrics

log = logging.getLogger("peerledger.checkpointing")

PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 300.0
"""Pauses before the others are asked again."""

Result = TypeVar("Result")
Facts = dict[str, Any]


class Asking(Protocol):
    """Questions to one other peer; raise `NotFound`, `WorldFailed`, `MalformedMessage`."""

    name: str
    questions: int

    async def log_entry(self, checkpoint: BlockNumber, number: BlockNumber) -> LogAnswer:
        """Ask for a vBlock under the log of a checkpoint."""
        ...

    async def leaves(self, number: BlockNumber) -> tuple[Leaf, ...]:
        """Ask for the leaves of a block."""
        ...

    async def state(self, checkpoint: BlockNumber) -> StateOffer:
        """Ask for the state at a checkpoint."""
        ...

    async def subtrees(self, checkpoint: BlockNumber, places: tuple[Place, ...]) -> tuple[Subtree, ...]:
        """Ask what is below places of the state tree."""
        ...

    async def entries(
        self, checkpoint: BlockNumber, keys: tuple[StateKey, ...], paths: tuple[bytes, ...]
    ) -> tuple[tuple[StateKey, Entry], ...]:
        """Ask for entries."""
        ...


class CompareLink(Protocol):
    """A way to one other peer."""

    name: str

    def open(self, channel: ChannelId) -> AbstractAsyncContextManager[Asking]:
        """Connect."""
        ...


class DivergenceFinder:
    """Finds where this peer differs, on one channel.

    Args:
        store: The channel's ledger.
        records: Its checkpoint records, which have the divergence.
        links: Ways to the other peers.
        bundle_at: Gives the configuration in force after a block.
        executor: Where the disk is read.
        metrics: Where figures go.
    """

    def __init__(
        self,
        store: LedgerStore,
        records: CheckpointStore,
        links: Sequence[CompareLink],
        bundle_at: Callable[[BlockNumber], Bundle],
        *,
        executor: Executor,
        metrics: Metrics | None = None,
    ) -> None:
        """Look for nothing yet."""
        self._store = store
        self._records = records
        self._links = tuple(links)
        self._bundle_at = bundle_at
        self._executor = executor
        self._metrics = metrics
        self._wake = asyncio.Event()
        self._trying = ""

    @property
    def found(self) -> Mapping[str, Any] | None:
        """What was found of the present divergence; None before."""
        raw = self._records.finding
        return json.loads(raw) if raw else None

    @property
    def text(self) -> str:
        """The same in a line; before, why nothing is found yet; empty without a divergence."""
        if self._records.divergence is None:
            return ""
        found = self.found
        return str(found["summary"]) if found is not None else self._trying or "where it begins is being looked for"

    def wake(self) -> None:
        """Hear that this peer diverged, on the event loop."""
        self._wake.set()

    async def run(self) -> None:
        """Look for it whenever there is a divergence; until cancelled."""
        while True:
            pause_s = PAUSE_S_MIN
            while (divergence := self._records.divergence) is not None and not self._is_complete():
                await self._in_executor(self._keep, divergence.computed.number)
                await self._look(divergence)
                if self._is_complete():
                    break
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
            self._show()
            self._wake.clear()
            await self._wake.wait()

    def _is_complete(self) -> bool:
        found = self.found
        return found is not None and found["state"] is not None

    def _keep(self, number: BlockNumber) -> None:
        with contextlib.suppress(NotFound):  # If our state there is gone, the vBlocks can be compared all the same.
            self._store.keep_checkpoint(number)

    async def _look(self, divergence: Divergence) -> None:
        """Ask the other peers until one lets us find everything; record the most that was found."""
        refused: dict[str, str] = {}
        partial: Facts | None = None
        for link in self._links:
            try:
                async with link.open(self._store.channel_id) as asking:
                    found = await self._compare(asking, divergence)
            except (Refused, NotFound, WorldFailed) as error:
                refused[link.name] = str(error)
                extra = {"channel": self._store.channel_id, "peer": link.name, "reason": str(error)}
                log.warning("divergence_not_compared", extra=extra)
                continue
            if found["state"] is not None:
                await self._record(found, refused)
                return
            partial = partial or found
        if partial is not None and self.found is None:
            await self._record(partial, refused)
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        self._trying = f"where it begins is not found yet: {reasons or 'there is no other peer to ask'}"

    async def _record(self, found: Facts, refused: Mapping[str, str]) -> None:
        found = {**found, "refused": dict(refused)}
        found["summary"] = summary(found)
        await self._in_executor(self._records.record_finding, json.dumps(found).encode())
        extra = {"channel": self._store.channel_id, "number": found["checkpoint"], "peer": found["compared_with"]}
        log.error("divergence_found", extra={**extra, "found": found["summary"]})
        self._show()

    def _show(self) -> None:
        if self._metrics is None:
            return
        found = self.found or {}
        vblock, state = found.get("vblock"), found.get("state")
        channel = self._store.channel_id
        self._metrics.divergence_vblock.labels(channel).set(vblock["number"] if vblock else -1)
        self._metrics.divergence_keys.labels(channel).set(len(state["keys"]) if state else 0)

    # -- comparing with one peer

    async def _compare(self, asking: Asking, divergence: Divergence) -> Facts:
        """Compare with one peer; raises what it refuses or can't do."""
        vblock = await self._first_vblock(asking, divergence)
        number = divergence.computed.number
        state, reason = None, ""
        try:
            with await self._in_executor(self._store.checkpoint_view, number) as view:
                state = await self._state(asking, divergence, view)
        except NotFound as error:
            reason = str(error)
        return {
            "checkpoint": number,
            "compared_with": asking.name,
            "vblock": vblock,
            "state": state,
            "state_reason": reason,
            "questions": asking.questions,
        }

    async def _first_vblock(self, asking: Asking, divergence: Divergence) -> Facts | None:
        """Find the first differing vBlock; None if the logs are the same."""
        computed, proof = divergence.computed, divergence.proof
        if computed.vledger_root == proof.statement.vledger_root:
            return None
        bisection = Bisection(0, computed.number)
        while (wanted := bisection.wanted) is not None:
            answer = await asking.log_entry(computed.number, wanted)
            check_log_answer(answer, wanted, proof)
            own = await self._in_executor(self._store.summary, wanted)
            bisection = halved(bisection, own.vblock_hash, answer, computed.channel)
        theirs = bisection.theirs
        if theirs is None:
            return None  # The vBlocks are all the same: our own log is damaged, not the ledger.
        number = theirs.header.number
        ours = await self._in_executor(self._store.vblock, number)
        leaves: tuple[Leaf, ...] = ours.leaves
        if theirs.header.tx_root != ours.header.tx_root:
            leaves = await asking.leaves(number)
            check_leaves(theirs.header, leaves)
        return vblock_facts(ours.header, theirs.header, ours.leaves, leaves)

    async def _state(self, asking: Asking, divergence: Divergence, view: CheckpointStateView) -> Facts:
        """Find the differing keys; raises `NotFound` where the other side has no state to show."""
        number = divergence.computed.number
        offer = await asking.state(number)
        check_state_offer(offer)
        self._check_offered(offer, divergence)
        there = offer.proof.statement.number
        descent = begin(offer.roots.state_root, KEYS_MAX)
        while wanted := asked(descent):
            answers = await asking.subtrees(there, wanted)
            descent = await self._in_executor(heard, descent, answers, view.shown)

        differing = {one.path: one for one in descent.differences}
        ours = await self._in_executor(view.at_paths, [path for path, one in differing.items() if one.ours is not None])
        theirs: dict[bytes, tuple[StateKey, Entry]] = {}
        missing = {path for path, one in differing.items() if one.theirs is not None}
        while missing:
            keys = tuple(ours[path][0] for path in sorted(missing) if path in ours)
            paths = () if keys else tuple(sorted(missing))  # Paths cost a walk: they come alone, at the end.
            answered = {path_of(key): (key, entry) for key, entry in await asking.entries(there, keys, paths)}
            for path, (key, entry) in answered.items():
                if path in missing:
                    check_entry(differing[path], key, entry)
            if not missing & answered.keys():
                found = f"none of {len(missing)}"
                raise InvalidProof("entries of another peer", rule="entry", expected="those asked for", found=found)
            theirs |= {path: one for path, one in answered.items() if path in missing}
            missing -= answered.keys()
        found_keys = []
        for path in differing:
            mine, other = ours.get(path), theirs.get(path)
            if other is not None and other[1].version.block > number:
                continue  # Written after the checkpoint: no difference that we know of.
            if (known := mine or other) is not None:
                found_keys.append(key_facts(known[0], mine and mine[1], other and other[1]))
        return {"ours_at": number, "theirs_at": there, "keys": found_keys, "more": descent.is_cut}

    def _check_offered(self, offer: StateOffer, divergence: Divergence) -> None:
        """Check that the state that is offered was agreed on: at our checkpoint, or validly at a later one."""
        agreed, offered = divergence.proof.statement, offer.proof.statement
        if offered.number == agreed.number:
            if offered != agreed:
                raise InvalidProof("state of another peer", rule="statement", expected=agreed, found=offered)
            return
        if offered.channel != agreed.channel or offered.number < agreed.number:
            raise InvalidProof("state of another peer", rule="checkpoint", expected=agreed.number, found=offered.number)
        check_proof(offer.proof, self._bundle_at(agreed.number), CheckpointRules())

    async def _in_executor(self, function: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


__all__ = ["DivergenceFinder"]
