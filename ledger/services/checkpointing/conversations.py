"""How do two peers talk about checkpoints?  Conversations: greet, tell what the other lacks, ask for what is missing.

We keep one conversation open to each peer we know, and others open theirs to us. Both sides greet with where they
stand and answer a greeting with what the other lacks; what got lost is asked for again from time to time. So who was
away catches up by being back, and nothing here has to be reliable: what waits for a slow reader is bounded, and beyond
that dropped, since it will be asked for again.

Everything that is signed goes to the machine (`take`); each conversation waits there for its own events, so that a
flood from one peer delays another by one event at most.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from ledger.core.checkpoint import (
    FORMAT,
    Ask,
    CheckpointMessage,
    CheckpointProof,
    Hello,
    Notice,
    PeerSignature,
    Statement,
)
from ledger.core.checkpoint_tally import Arrived, Event, Height, ProofArrived, Tally
from ledger.core.errors import Busy, MalformedMessage, PeerUnreachable
from ledger.core.names import BlockNumber, ChannelId
from ledger.services.checkpointing.ports import Line, Link
from ledger.services.checkpointing.values import CheckpointingSettings

log = logging.getLogger("peerledger.checkpointing")

OUTGOING_NOTICES_MAX = 512
"""Notices of one conversation that wait for a slow reader; further ones are dropped."""

GREETED_HEIGHTS_MAX = 8
"""Pending heights about which a greeting is answered, newest first."""

CONVERSATIONS_PER_SOURCE_MAX = 32
"""Conversations at once that one organisation may have with us."""

GREETINGS_MAX = 256
"""Peers whose settings are remembered for the status; the oldest gives way."""

WRITE_TIMEOUT_S = 30.0
"""How long one notice may take to leave."""

STEADY_CONVERSATION_S = 5.0
"""A conversation that lasted this long was no failure: the waits between attempts begin anew."""


class Knowledge(Protocol):
    """What this peer knows about checkpoints; the service has it."""

    @property
    def tally(self) -> Tally:
        """The machine's state after the last event."""
        ...

    async def take(self, event: Event) -> None:
        """Let the machine take an event in and wait until its effects are carried out; raises `PeerUnreachable`."""
        ...

    async def proof(self, number: BlockNumber) -> CheckpointProof | None:
        """Return the proof of a height; None if there is none."""
        ...


class Session:
    """One conversation under way: what waits to be said, and what the other side told of itself."""

    def __init__(self, source: str) -> None:
        """Begin it; nothing is known of the other side."""
        self.source = source
        self.peer = ""
        self.greeted = False
        self.latest_valid = -1
        self._outgoing: asyncio.Queue[Notice] = asyncio.Queue(OUTGOING_NOTICES_MAX)

    def offer(self, notice: Notice) -> None:
        """Put a notice where the writer takes it; never waits, and drops it where too much waits already."""
        if not self._outgoing.full():
            self._outgoing.put_nowait(notice)

    async def write_all(self, line: Line) -> None:
        """Say whatever waits, in order, until cancelled; raises `PeerUnreachable`."""
        while True:
            notice = await self._outgoing.get()
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await line.write(notice)
            except TimeoutError as error:
                raise PeerUnreachable(f"{self.source} has not read for {WRITE_TIMEOUT_S} s") from error


class Conversations:
    """All conversations about one channel.

    Args:
        channel: Name of the channel.
        settings: The peer's settings for the channel.
        knowledge: What this peer knows.
        count: Counts a message by what became of it.
    """

    def __init__(
        self,
        channel: ChannelId,
        settings: CheckpointingSettings,
        knowledge: Knowledge,
        count: Callable[[str], None],
    ) -> None:
        """Begin with nobody; conversations begin with `begin`."""
        self._channel = channel
        self._settings = settings
        self._knowledge = knowledge
        self._count = count
        self._sessions: set[Session] = set()
        self._greetings: dict[str, Hello] = {}
        self._ended = asyncio.Event()
        self._ended.set()

    # -- what the service asks and tells

    @property
    def connected(self) -> tuple[str, ...]:
        """Names of the peers we talk to; from any thread."""
        return tuple(sorted({session.peer for session in self._sessions.copy() if session.greeted}))

    @property
    def greetings(self) -> dict[str, Hello]:
        """The last greeting of each peer, by its name; from any thread."""
        return self._greetings.copy()

    def begin(self) -> None:
        """Let conversations begin."""
        self._ended.clear()

    def end(self) -> None:
        """End all conversations, and let none begin: nobody judges what is said."""
        self._ended.set()

    def send(self, notice: Notice) -> None:
        """Tell everybody who is there."""
        for session in self._sessions:
            session.offer(notice)

    def ask_around(self) -> None:
        """Ask everybody for what could make our pending checkpoints valid."""
        for session in self._sessions:
            if session.greeted:
                self._ask(session)

    # -- one conversation

    async def converse(self, line: Line) -> None:
        """Talk to one peer until either side ends it.

        Raises:
            Busy: Too many conversations with this source are under way.
            ExceptionGroup: Of `PeerUnreachable` (the connection broke, or nobody judges here) and `MalformedMessage`
                (the other side speaks another format, of another channel, or nonsense).
        """
        if Counter(session.source for session in self._sessions)[line.source] >= CONVERSATIONS_PER_SOURCE_MAX:
            raise Busy(f"{CONVERSATIONS_PER_SOURCE_MAX} conversations with {line.source} are under way")
        session = Session(line.source)
        self._sessions.add(session)
        session.offer(self._hello())
        try:
            async with asyncio.TaskGroup() as group:
                helpers = (
                    group.create_task(session.write_all(line), name=f"checkpoint writer {line.source}"),
                    group.create_task(self._break_off(), name=f"checkpoint end {line.source}"),
                )
                while (notice := await line.read()) is not None:
                    await self._heard(session, notice)
                for helper in helpers:
                    helper.cancel()
        finally:
            self._sessions.discard(session)

    async def _break_off(self) -> None:
        await self._ended.wait()
        raise PeerUnreachable(f"this peer's checkpointing of {self._channel} is not running")

    async def keep_in_touch(self, link: Link) -> None:
        """Keep a conversation with one peer open, until cancelled."""
        delay_s = delay_s_min = min(0.2, self._settings.reconnect_delay_s_max)
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            reason = "the other side ended it"
            try:
                async with link.open() as line:
                    await self.converse(line)
            except* (PeerUnreachable, MalformedMessage, Busy) as errors:
                reason = "; ".join(str(error) for error in leaves(errors))
            give_way()
            log.info("checkpoint_link_lost", extra={"channel": self._channel, "link": link.name, "reason": reason})
            if loop.time() - began > STEADY_CONVERSATION_S:
                delay_s = delay_s_min
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, self._settings.reconnect_delay_s_max)

    # -- what is heard

    async def _heard(self, session: Session, notice: Notice) -> None:
        """Answer a greeting or a question; hand everything else to the machine."""
        if not session.greeted and not isinstance(notice, Hello):
            raise MalformedMessage(
                "checkpoint conversation", rule="greeting first", expected="a greeting", found=type(notice).__name__
            )
        match notice:
            case Hello():
                self._greeted(session, notice)
            case Ask(number):
                await self._asked(session, number)
            case CheckpointMessage():
                await self._knowledge.take(Arrived(notice, session.source))
            case CheckpointProof():
                session.latest_valid = max(session.latest_valid, notice.statement.number)
                await self._knowledge.take(ProofArrived(notice, session.source))

    def _greeted(self, session: Session, hello: Hello) -> None:
        """Learn where another peer stands, and tell it what it lacks."""
        for rule, expected, found in (
            ("format version", FORMAT, hello.format),
            ("foreign channel", self._channel, hello.channel),
        ):
            if expected != found:
                self._count(rule)
                raise MalformedMessage("checkpoint greeting", rule=rule, expected=expected, found=found)
        session.greeted, session.peer = True, hello.peer
        self._remember(hello)
        theirs = hello.latest_valid if hello.latest_valid is not None else -1
        session.latest_valid = max(session.latest_valid, theirs)
        tally = self._knowledge.tally
        latest = tally.latest_valid
        if latest is not None and latest.statement.number > theirs:
            session.offer(latest)
        pending = [number for number in pending_numbers(tally) if number > theirs]
        for number in pending[-GREETED_HEIGHTS_MAX:]:
            self._tell(session, tally.heights[number])
        self._ask(session)

    def _remember(self, hello: Hello) -> None:
        """Keep a greeting for the status; a CHK unlike ours is worth a warning."""
        if hello.interval_blocks != self._settings.interval_blocks:
            log.warning(
                "checkpoint_interval_differs",
                extra={"channel": self._channel, "peer": hello.peer, "theirs": hello.interval_blocks,
                       "ours": self._settings.interval_blocks},
            )  # fmt: skip
        self._greetings.pop(hello.peer, None)
        self._greetings[hello.peer] = hello
        if len(self._greetings) > GREETINGS_MAX:
            del self._greetings[next(iter(self._greetings))]

    async def _asked(self, session: Session, number: BlockNumber) -> None:
        """Give the proof of a height or, while there is none, what we know about it."""
        proof = await self._knowledge.proof(number)
        if proof is not None:
            session.offer(proof)
        elif (height := self._knowledge.tally.heights.get(number)) is not None:
            self._tell(session, height)

    # -- what is said

    def _hello(self) -> Hello:
        tally, settings = self._knowledge.tally, self._settings
        return Hello(
            self._channel,
            settings.peer_name,
            settings.interval_blocks,
            settings.libraries,
            tally.latest_valid.statement.number if tally.latest_valid is not None else None,
            tally.newest_computed,
        )

    def _tell(self, session: Session, height: Height) -> None:
        """Pass on every signature on what we computed ourselves: the asker may not reach all signers."""
        for signer in height.signers:
            session.offer(self.message(height.statement, signer.signed))

    def message(self, statement: Statement, signed: PeerSignature) -> CheckpointMessage:
        """Make a CHECKPOINT message, of our own or passed on."""
        return CheckpointMessage(statement, signed, self._settings.interval_blocks, self._settings.libraries)

    def _ask(self, session: Session) -> None:
        """Ask one peer for the newest pending height, and for the one that it knows to be valid."""
        tally = self._knowledge.tally
        pending = pending_numbers(tally)
        if pending and tally.diverged is None:
            for number in sorted({pending[-1], *(n for n in pending if n == session.latest_valid)}):
                session.offer(Ask(number))


def give_way() -> None:
    """End this task if it was cancelled meanwhile.

    A task group that was cancelled from outside in the moment in which one of its own tasks failed raises the failure
    alone (Python before 3.13): who goes on after such a failure would never hear that it was to end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def pending_numbers(tally: Tally) -> list[BlockNumber]:
    """List the heights that are not valid yet, ascending."""
    return sorted(number for number, height in tally.heights.items() if height.valid is None)


def leaves(errors: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Flatten a group of errors."""
    return [
        leaf
        for error in errors.exceptions
        for leaf in (leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    ]


__all__ = ["Conversations", "Knowledge", "Session", "leaves", "pending_numbers"]
