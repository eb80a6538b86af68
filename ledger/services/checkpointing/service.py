"""What does a peer do at a checkpoint height?  It computes, signs once, and carries out what the machine wants.

The committer says that a checkpoint height was committed; off the commit path the roots are computed, signed once and
told to the others, whose signatures are tallied until the policies hold. The order of things that must survive a crash:

1. Our statement is recorded, synced, and only then sent. After a crash between the two the same statement is found in
   the record and sent again; a different one for that height is refused by the record.
2. Proof and latest valid checkpoint are one synced record. Keeping the checkpointed state and pruning follow from it
   and are done again at the next start, so a crash between them costs nothing.
3. A divergence is recorded before anybody is told: the next start finds the peer stopped.

One task, `_judge`, takes events one at a time and carries out all effects of one before it looks at the next. Whoever
brought the event only waits for it: that a conversation ends can't tear an event from its effects. Whether a height may
be signed is decided there too, so after everything that was heard before.

Disk and signatures go through one executor; everything else is on the event loop.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TypeVar

from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import CheckpointMessage, CheckpointProof, Statement
from ledger.core.checkpoint_proof import CheckpointRules, Scope, describe_global_policy
from ledger.core.checkpoint_status import (
    CheckpointState,
    CheckpointStatus,
    describe_missing,
    status_of_height,
    status_of_proof,
)
from ledger.core.checkpoint_tally import (
    Abandon,
    Abandoned,
    Computed,
    Counted,
    Diverged,
    Dropped,
    Effect,
    Event,
    Evidence,
    OwnSignatureSeen,
    Persist,
    Send,
    Tally,
    TallySettings,
    Valid,
    step,
)
from ledger.core.errors import AbandonRefused, NotFound, PeerUnreachable, WorldFailed
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId
from ledger.core.policy import extended
from ledger.services.checkpointing.conversations import Conversations, leaves, log, pending_numbers
from ledger.services.checkpointing.ports import (
    CheckpointSource,
    Line,
    Link,
    NewestOrdered,
    OnDiverged,
    OnValid,
    PeerSigner,
)
from ledger.services.checkpointing.signing import OwnWord, divergence_text
from ledger.services.checkpointing.values import CheckpointingSettings, CheckpointingStatus
from ledger.storage.checkpoints import CheckpointStore
from ledger.telemetry.metrics import Metrics

Result = TypeVar("Result")

EVENTS_WAITING_MAX = 16
"""Events that wait for the machine; who brings another waits until there is room."""

COMPUTE_ATTEMPTS_MAX = 3
"""Times that computing a checkpoint is tried before it is given up and the next one gets its turn."""


class CheckpointingService:
    """Agrees on the checkpoints of one channel with its other peers.

    Args:
        channel: Name of the channel.
        signer: This peer's identity.
        source: Its ledger.
        store: Its checkpoint records.
        links: Ways to the other peers.
        settings: The peer's settings for the channel.
        executor: Where disk and signatures go, one thread.
        on_valid: Hears of checkpoints that pruning may rest on, also, once at the start, of the latest known.
        on_diverged: Hears that this peer diverged, also at a start that finds it so.
        newest_ordered: Asks the orderers for their newest block.
        metrics: Where figures go.

    Raises:
        InvalidPolicy: The local policy is not one.
    """

    def __init__(
        self,
        channel: ChannelId,
        signer: PeerSigner,
        source: CheckpointSource,
        store: CheckpointStore,
        links: Sequence[Link],
        settings: CheckpointingSettings,
        *,
        executor: Executor,
        on_valid: OnValid,
        on_diverged: OnDiverged,
        newest_ordered: NewestOrdered,
        metrics: Metrics | None = None,
    ) -> None:
        """Take what was recorded; nothing is computed or sent before `run`."""
        self.channel = channel
        self.settings = settings
        self._source = source
        self._store = store
        self._links = tuple(links)
        self._executor = executor
        self._on_valid = on_valid
        self._on_diverged = on_diverged
        self._metrics = metrics
        local = extended.parse(settings.local_policy) if settings.local_policy is not None else None
        self._rules = CheckpointRules(local, settings.either_policy_prunes)
        self._own = OwnWord(signer, store, settings, newest_ordered)
        self.tally = self._recorded()
        self._bundle: Bundle | None = None
        self._received: Counter[str] = Counter()
        self._conversations = Conversations(channel, settings, self, self._count)
        self._events: asyncio.Queue[tuple[Event, asyncio.Future[None]]] = asyncio.Queue(EVENTS_WAITING_MAX)
        self._waiting: set[asyncio.Future[None]] = set()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = False
        self._failed = ""
        self._given_up: set[BlockNumber] = set()

    # -- what the node calls

    async def run(self) -> None:
        """Agree on checkpoints until cancelled.

        Raises:
            StorageFailed: The disk failed: the channel is to be closed and opened again.
            StorageDamaged: A record is not what was written.

        Cancellation: whatever was told to anyone is recorded; the next run goes on from there.
        """
        self._loop = asyncio.get_running_loop()
        await self._in_executor(self._settle)
        self.tally = self._recorded()
        self._given_up.clear()
        divergence = self._store.divergence
        if divergence is not None:
            self._tell_divergence(divergence.computed.number)
        elif (proof := self.proof_for_pruning()) is not None:
            await self._in_executor(self._tell_valid, proof)
        self._show()
        self._wake.set()
        self._running = True
        self._conversations.begin()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._judge(), name=f"checkpoint events {self.channel}")
                group.create_task(self._compute_all(), name=f"checkpoints {self.channel}")
                group.create_task(self._repeat(), name=f"checkpoint repetition {self.channel}")
                for link in self._links:
                    talk = self._conversations.keep_in_touch(link)
                    group.create_task(talk, name=f"checkpoint link {link.name}")
        except ExceptionGroup as failures:
            known, unknown = failures.split(WorldFailed)
            if known is None or unknown is not None:
                raise
            raise leaves(known)[0] from failures
        finally:
            self._running = False
            self._conversations.end()
            self._leave_events()

    def _recorded(self) -> Tally:
        """Begin with what is recorded, as after a crash: the rest is computed and asked for again."""
        settings = TallySettings(self.channel, self._rules, self._own.identity.serialized, self._own.identity)
        found = self._store.divergence
        return Tally(
            settings,
            latest_valid=self._store.latest_valid,
            abandoned=frozenset(self._store.abandoned),
            diverged=found.proof if found is not None else None,
        )

    @property
    def is_running(self) -> bool:
        """Whether events are judged at present."""
        return self._running

    def height_captured(self) -> None:
        """Hear that a checkpoint height was committed; from any thread, returns at once."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    async def converse(self, line: Line) -> None:
        """Talk to one peer that came to us, until either side ends it; see `Conversations.converse`.

        Raises:
            Busy: Too many conversations with this source are under way.
            ExceptionGroup: Of `PeerUnreachable` and `MalformedMessage`.
        """
        await self._conversations.converse(line)

    # -- what others ask

    def status(self) -> CheckpointingStatus:
        """Say how checkpointing stands; from any thread."""
        tally, settings, greetings = self.tally, self.settings, self._conversations.greetings
        ours = dict(settings.libraries)
        latest, local = self._store.latest_valid, self._store.latest_for_pruning
        return CheckpointingStatus(
            channel=self.channel,
            interval_blocks=settings.interval_blocks,
            intervals_of_others={peer: hello.interval_blocks for peer, hello in greetings.items()},
            libraries_of_others={
                peer: {name: version for name, version in hello.libraries if ours.get(name) != version}
                for peer, hello in greetings.items()
                if dict(hello.libraries) != ours
            },
            latest_valid=latest.statement.number if latest is not None else None,
            latest_local=local.statement.number if local is not None else None,
            newest_computed=tally.newest_computed,
            diverged=self.stopped,
            silent=self._own.silent(),
            failed=self._failed,
            global_policy=describe_global_policy(self._bundle) if self._bundle is not None else "",
            local_policy=settings.local_policy,
            connected=self._conversations.connected,
            received=dict(self._received),
        )

    def checkpoints(self, count_max: int = 100) -> tuple[CheckpointStatus, ...]:
        """List the newest checkpoints that this peer knows, newest first; from any thread, may wait for the disk."""
        numbers = sorted({*self._store.numbers(), *self.tally.heights}, reverse=True)
        return tuple(self.checkpoint(number) for number in numbers[:count_max])

    def checkpoint(self, number: BlockNumber) -> CheckpointStatus:
        """Return one checkpoint; from any thread, may wait for the disk.

        Raises:
            NotFound: None is known at this height.
        """
        signed = self._store.signed(number)
        divergence = self._store.divergence
        if divergence is not None and divergence.computed.number == number:
            bundle = self._bundle_or_none(number)
            found = status_of_proof(divergence.proof, bundle, CheckpointState.DIVERGED, signed_here=signed is not None)
            return replace(found, statement=divergence.computed)
        height = self.tally.heights.get(number)
        if height is not None:
            return status_of_height(height, self._rules)
        if number in self._store.abandoned:
            return self._abandoned(number, signed)
        for scope, state in ((Scope.FULL, CheckpointState.VALID), (Scope.LOCAL, CheckpointState.LOCAL)):
            proof = self._store.proof(number, scope)
            if proof is not None:
                return status_of_proof(proof, self._bundle_or_none(number), state, signed_here=signed is not None)
        if signed is None:
            raise NotFound(f"no checkpoint is known at block {number} of channel {self.channel}")
        latest = self._store.latest_valid
        over = latest is not None and latest.statement.number > number
        state = CheckpointState.SUPERSEDED if over else CheckpointState.PENDING
        alone = CheckpointProof(signed.statement, (signed.signed,))
        return status_of_proof(alone, self._bundle_or_none(number), state, signed_here=True)

    def _abandoned(self, number: BlockNumber, signed: CheckpointMessage | None) -> CheckpointStatus:
        """Show a checkpoint that was given up."""
        known = self._store.abandoned[number] or (signed.statement if signed is not None else None)
        statement = known or Statement(self.channel, number, ZERO_DIGEST, ZERO_DIGEST, ZERO_DIGEST)
        alone = CheckpointProof(statement, () if signed is None else (signed.signed,))
        bundle = self._bundle_or_none(number)
        return status_of_proof(alone, bundle, CheckpointState.ABANDONED, signed_here=signed is not None)

    def abandon(self, number: BlockNumber) -> CheckpointStatus:
        """Give up a checkpoint that can't become valid; from any thread but that of the event loop.

        Its state is let go of and nothing more is collected for it, so that later ones go on without it.

        Raises:
            NotFound: None is known at this height.
            AbandonRefused: It is valid, or its time is over.
            PeerUnreachable: Checkpointing is not running at present.

        Durability: it is given up for good on return.
        """
        if number not in self._store.abandoned:
            self._check_pending(number)
            if self._loop is None or not self._running:
                raise PeerUnreachable(f"this peer's checkpointing of {self.channel} is not running")
            asyncio.run_coroutine_threadsafe(self.take(Abandon(number)), self._loop).result()
        if number not in self._store.abandoned:
            self._check_pending(number)  # It became valid in that very moment.
            raise AbandonRefused(f"checkpoint {number}", rule="pending", expected="a pending checkpoint", found="none")
        return self.checkpoint(number)

    def _check_pending(self, number: BlockNumber) -> None:
        """Check that a checkpoint may be given up."""
        latest, divergence = self._store.latest_valid, self._store.divergence
        found = ""
        if divergence is not None:
            found = divergence_text(divergence.computed.number)
        elif self._store.proof(number) is not None:
            found = "valid: pruning and proofs rest on it"
        elif self._store.proof(number, Scope.LOCAL) is not None:
            found = "valid for this peer's own pruning"
        elif latest is not None and number <= latest.statement.number:
            found = f"superseded by checkpoint {latest.statement.number}, which is valid"
        if found:
            raise AbandonRefused(f"checkpoint {number}", rule="pending", expected="a pending checkpoint", found=found)
        known = {*self._store.numbers(), *self.tally.heights, *self._source.captured()}
        if number not in known:
            raise NotFound(f"no checkpoint is known at block {number} of channel {self.channel}")

    async def proof(self, number: BlockNumber) -> CheckpointProof | None:
        """Return the proof that made a checkpoint valid; None if there is none."""
        return await self._in_executor(self._store.proof, number)

    def proof_for_pruning(self) -> CheckpointProof | None:
        """Return the proof of the latest checkpoint that this peer may rest its pruning on."""
        return self._store.latest_for_pruning if self._rules.either_prunes else self._store.latest_valid

    @property
    def stopped(self) -> str:
        """Why nothing may be committed or pruned: what this peer computed differs from what others agreed on."""
        divergence = self._store.divergence
        return "" if divergence is None else divergence_text(divergence.computed.number)

    def policies(self) -> tuple[str, ...]:
        """The policies that make a checkpoint good enough for pruning, as text."""
        if self._bundle is None:
            return ()
        texts = [describe_global_policy(self._bundle)]
        if self.settings.local_policy is not None:
            texts.append(self.settings.local_policy)
        return (" or ".join(texts),) if self._rules.either_prunes else tuple(texts)

    def waiting_for(self) -> str:
        """Say what the newest pending checkpoint waits for; empty if none is pending."""
        tally = self.tally
        pending = pending_numbers(tally)
        if self._failed or not pending:
            return self._failed
        missing = describe_missing(tally.heights[pending[-1]], self._rules)
        return f"checkpoint {pending[-1]} waits for {' and '.join(missing)}"

    # -- computing and signing

    async def _compute_all(self) -> None:
        """Compute every captured height once it is there, lower ones first."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self.tally.diverged is not None:
                continue
            numbers = await self._in_executor(self._source.captured)
            self._given_up &= set(numbers)
            newest = self.tally.newest_computed
            if given_up := [number for number in numbers if number in self.tally.abandoned]:
                await self._in_executor(self._settle)  # A ledger that is made again captures them again.
            skipped = {*given_up, *self._given_up}
            todo = [n for n in numbers if (newest is None or n > newest) and n not in skipped]
            for number in todo:
                await self._compute(number)
            if todo:
                self._conversations.ask_around()

    async def _compute(self, number: BlockNumber) -> None:
        """Compute and tally one height; a local fault delays it, and in the end skips it."""
        for attempt in range(COMPUTE_ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(0.1 * 4 ** (attempt - 1))
            try:
                event = await self._in_executor(self._make, number)
            except NotFound:
                break  # It was thinned out in the meantime.
            except WorldFailed as error:
                self._failed = f"checkpoint {number} could not be computed: {error}"
                self._log(logging.WARNING, "checkpoint_failed", number, reason=str(error))
                continue
            self._failed = ""
            await self.take(event)
            return
        self._given_up.add(number)

    def _make(self, number: BlockNumber) -> Computed:
        """Compute the roots at a height; in the executor."""
        statement = self._source.compute_checkpoint(number).statement(self.channel)
        self._bundle = self._source.bundle_at(number)
        return Computed(statement, self._bundle, None)

    # -- the machine and its effects

    async def take(self, event: Event) -> None:
        """Let the machine take one event in, and wait until all its effects are carried out.

        Raises:
            PeerUnreachable: Nobody judges, or no longer: the event was not taken in.

        Cancellation: the event is taken in all the same.
        """
        if not self._running:
            raise PeerUnreachable(f"this peer's checkpointing of {self.channel} is not running")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(done)
        try:
            await self._events.put((event, done))
            await done
        finally:
            self._waiting.discard(done)

    async def _judge(self) -> None:
        """Take in one event after the other, until cancelled; what the disk refuses ends the run."""
        while True:
            event, done = await self._events.get()
            if isinstance(event, Computed):
                event = await self._in_executor(self._own.signed, event)
            tally, effects = await self._in_executor(step, self.tally, event)
            for effect in effects:
                await self._carry_out(effect)
            self.tally = tally
            self._show()
            if not done.done():
                done.set_result(None)

    def _leave_events(self) -> None:
        """Tell everybody who waits that their event was not taken in."""
        while not self._events.empty():
            self._events.get_nowait()
        for done in self._waiting:
            if not done.done():
                done.set_exception(PeerUnreachable(f"this peer's checkpointing of {self.channel} has ended"))

    async def _carry_out(self, effect: Effect) -> None:
        """Do one thing that the machine wants; the next is not begun before this is durable."""
        match effect:
            case Persist(message):
                await self._in_executor(self._store.record_signed, message)
            case Send(message):
                self._conversations.send(message)
            case Counted(statement, signer):
                if signer.signed.identity != self._own.identity.serialized:
                    self._count("counted")
                self._log(logging.DEBUG, "checkpoint_signature", statement.number, signer=signer.name)
            case Valid(proof, scope):
                await self._in_executor(self._record_valid, proof, scope)
                self._log(logging.INFO, "checkpoint_valid", proof.statement.number, scope=str(scope))
                await self._in_executor(self._tell_valid, proof)
            case Diverged(computed, proof):
                await self._in_executor(self._store.record_divergence, computed, proof)
                self._tell_divergence(computed.number)
            case Evidence(first, second):
                await self._in_executor(self._store.record_equivocation, first, second)
                self._log(logging.WARNING, "checkpoint_equivocation", first[0].number)
            case Abandoned(number, statement_or_none):
                await self._in_executor(self._store.record_abandoned, number, statement_or_none)
                await self._in_executor(self._source.release, number)
                self._log(logging.WARNING, "checkpoint_abandoned", number)
            case OwnSignatureSeen(number):
                await self._in_executor(self._own.seen, number)
            case Dropped(rule, number, source, detail):
                self._count(rule)
                self._log(logging.DEBUG, "checkpoint_dropped", number, rule=rule, source=source, detail=detail)

    def _record_valid(self, proof: CheckpointProof, scope: Scope) -> None:
        """Make a valid checkpoint the latest, and let go of states that it replaces; in the executor."""
        self._store.record_valid(proof, scope)
        self._settle()

    def _settle(self) -> None:
        """Keep the states of the latest valid checkpoints, let go of those below and of those given up; repeatable."""
        latest = self._store.latest_valid
        proofs = (latest, self.proof_for_pruning())
        kept = {proof.statement.number for proof in proofs if proof is not None}
        for number in self._source.captured():
            if number in kept:
                self._source.keep_checkpoint(number)
            elif number in self._store.abandoned or (latest is not None and number < latest.statement.number):
                self._source.release(number)

    def _tell_valid(self, proof: CheckpointProof) -> None:
        """Tell pruning, in the executor. What fails there is done at the next checkpoint or start, and ends nothing."""
        try:
            self._on_valid(proof)
        except WorldFailed as error:
            self._log(logging.WARNING, "pruning_failed", proof.statement.number, reason=str(error))

    def _tell_divergence(self, number: BlockNumber) -> None:
        self._log(logging.ERROR, "checkpoint_diverged", number)
        self._on_diverged(divergence_text(number))

    async def _repeat(self) -> None:
        """Ask again from time to time: whatever got lost is found that way."""
        while True:
            await asyncio.sleep(self.settings.repeat_interval_s)
            if (newest := await self._own.newest_seen()) is not None:
                await self._in_executor(self._own.speak_above, newest)
            self._conversations.ask_around()

    # -- small things

    def _bundle_or_none(self, number: BlockNumber) -> Bundle | None:
        try:
            return self._source.bundle_at(number)
        except (WorldFailed, NotFound):
            return None  # Names are for people; the statement is shown without them.

    def _count(self, result: str) -> None:
        self._received[result] += 1
        if self._metrics is not None:
            self._metrics.checkpoint_messages.labels(self.channel, result).inc()

    def _show(self) -> None:
        """Set the figures that follow from the tally."""
        if self._metrics is None:
            return
        metrics, tally = self._metrics, self.tally
        metrics.checkpoint_interval.labels(self.channel).set(self.settings.interval_blocks)
        metrics.diverged.labels(self.channel).set(bool(self.stopped))
        if tally.latest_valid is not None:
            metrics.checkpoint_latest.labels(self.channel).set(tally.latest_valid.statement.number)
        pending = pending_numbers(tally)
        have = len(tally.heights[pending[-1]].signers) if pending else 0
        metrics.checkpoint_signatures.labels(self.channel, "have").set(have)

    def _log(self, level: int, event: str, number: BlockNumber, **more: str) -> None:
        log.log(level, event, extra={"channel": self.channel, "number": number, **more})

    async def _in_executor(self, function: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


__all__ = ["CheckpointingService"]
