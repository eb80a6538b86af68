"""Whom does a joiner ask, and what when one of them lies?  Sources, each of them dropped at its first failure.

An answer counts once it was checked; a source whose answer fails the check is dropped with the rule that it broke, one
that does not answer with what happened. One that lacked something or fell silent may be asked again later, one that
lied is not. What was checked is remembered in a folder, and checked again when a joiner that was killed comes back: it
is taken from there instead of being asked for.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from ledger.client.joining import JoinClient
from ledger.core.errors import Busy, LedgerError, NotFound, PeerUnreachable, Refused, StorageFailed

log = logging.getLogger("peerledger.join")

Checked = TypeVar("Checked")

Item = TypeVar("Item")
Asked = TypeVar("Asked")

AHEAD = 8
"""Questions about leaves and chunks that are under way, or answered and not yet used, at once."""

BUSY_S_MAX = 20.0
"""How long a source may say that it can't answer now."""

BUSY_PAUSE_S = 0.2
"""Pause before it is asked again."""


@dataclass(slots=True)
class Source:
    """A peer that is asked."""

    address: str
    client: JoinClient
    dropped: str = ""
    """Why it is asked no more; empty while it is."""

    lied: bool = False
    """Whether it was dropped for what it said, and not for saying nothing."""

    aside: str = ""
    """Why it is not asked at present."""

    answers: int = 0
    """Answers of it that were good."""

    @property
    def in_words(self) -> str:
        """What became of it."""
        return self.dropped or self.aside or f"{self.answers} answers"


class NobodyLeft(PeerUnreachable):
    """Every source that could be asked has failed."""


class AnswerFolder:
    """Answers that were checked, for a joiner that comes back.  None is believed: each is checked again.

    Args:
        folder: Where they lie.
    """

    def __init__(self, folder: Path) -> None:
        """Take what is there."""
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageFailed(f"making {folder} failed: {error}") from error

    def begin(self, about: bytes) -> None:
        """Keep the chunks of one checkpoint's state, remove those of another; blocks are the same for all."""
        mark = self._folder / "about"
        try:
            if mark.exists() and mark.read_bytes() == about:
                return
            for path in self._folder.iterdir():
                if path.name.startswith("GetChunk-") or path.suffix == ".half":
                    path.unlink()
            mark.write_bytes(about)
        except OSError as error:
            raise StorageFailed(f"preparing {self._folder} failed: {error}") from error

    def get(self, method: str, question: bytes) -> bytes | None:
        """Find an answer."""
        try:
            return self._path(method, question).read_bytes()
        except OSError:
            return None  # It is asked for.

    def put(self, method: str, question: bytes, answer: bytes) -> None:
        """Keep an answer; half of one is never found."""
        path = self._path(method, question)
        half = path.with_suffix(".half")
        try:
            half.write_bytes(answer)
            half.rename(path)
        except OSError as error:
            raise StorageFailed(f"writing {path} failed: {error}") from error

    def forget(self, method: str) -> None:
        """Remove the answers to one kind of question."""
        try:
            for path in self._folder.glob(f"{method}-*"):
                path.unlink()
        except OSError as error:
            raise StorageFailed(f"emptying {self._folder} failed: {error}") from error

    def _path(self, method: str, question: bytes) -> Path:
        return self._folder / f"{method}-{sha256(question).hexdigest()[:32]}"


class Sources:
    """The peers that a joiner asks.

    Args:
        sources: The peers.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        """Ask all of them, until they fail."""
        self.all = tuple(sources)
        self.progress = 0
        """Answers that a later try need not ask for again."""
        self._turn = 0

    @property
    def left(self) -> tuple[Source, ...]:
        """Those that are asked."""
        return tuple(one for one in self.all if not one.dropped and not one.aside)

    def drop(self, source: Source, error: Exception) -> None:
        """Ask a source no more."""
        if source.dropped:
            return  # Several questions to it were under way.
        source.dropped, source.lied = str(error), isinstance(error, Refused)
        log.warning("join_source_dropped", extra={"source": source.address, "reason": source.dropped})

    def only(self, wanted: Iterable[Source], reason: str) -> None:
        """Ask some for now, and leave the others aside."""
        names = {one.address for one in wanted}
        for one in self.all:
            one.aside = "" if one.address in names else reason

    def take_back(self) -> None:
        """Ask those again that did not lie."""
        for one in self.all:
            one.aside = ""
            if not one.lied:
                one.dropped = ""

    async def ask_one(
        self,
        source: Source,
        method: str,
        question: bytes,
        check: Callable[[bytes], Checked],
        busy_s_max: float = BUSY_S_MAX,
    ) -> Checked | None:
        """Ask one source, and check what it says; None, and the source dropped, if either fails."""
        until = asyncio.get_running_loop().time() + busy_s_max
        while True:
            try:
                checked = check(await source.client.ask(method, question))
            except Busy as error:
                if asyncio.get_running_loop().time() > until:
                    self.drop(source, error)
                    return None
            except (PeerUnreachable, NotFound, Refused) as error:
                self.drop(source, error)
                return None
            else:
                source.answers += 1
                return checked
            await asyncio.sleep(BUSY_PAUSE_S)

    async def ask(
        self,
        method: str,
        question: bytes,
        check: Callable[[bytes], Checked],
        answers: AnswerFolder,
        only: Source | None = None,
    ) -> Checked:
        """Give a checked answer: the one in the folder, or of the sources in turn until one passes.

        Args:
            method: Method of the service.
            question: The question.
            check: Reads and checks an answer; raises `Refused`.
            answers: Where checked answers are found and kept.
            only: Asks this one alone.

        Raises:
            NobodyLeft: No source is left; the text says why each of them was dropped.
        """
        known = answers.get(method, question)
        if known is not None:
            try:
                return check(known)
            except Refused:
                log.info("join_answer_forgotten", extra={"method": method})

        def checking(answer: bytes) -> tuple[Checked, bytes]:
            return check(answer), answer

        while left := [one for one in self.left if only is None or one is only]:
            self._turn += 1
            found = await self.ask_one(left[self._turn % len(left)], method, question, checking)
            if found is not None:
                answers.put(method, question, found[1])
                self.progress += 1
                return found[0]
        raise self.none_left()

    def none_left(self) -> NobodyLeft:
        """Say why nobody can be asked."""
        reasons = "; ".join(f"{one.address}: {one.in_words}" for one in self.all) or "no address was given"
        return NobodyLeft(f"nobody can be joined from: {reasons}")

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(one.client.close() for one in self.all))


async def in_order(
    items: Iterable[Item], get: Callable[[Item], Awaitable[Asked]], use: Callable[[Asked], None]
) -> None:
    """Get some ahead at once, and use them one by one, in order.

    Raises:
        ExceptionGroup: Of what getting raised.
    """
    waiting: deque[asyncio.Task[Asked]] = deque()

    async def one(item: Item) -> Asked:
        return await get(item)

    async with asyncio.TaskGroup() as group:
        for item in items:
            waiting.append(group.create_task(one(item)))
            if len(waiting) == AHEAD:
                use(await waiting.popleft())
        while waiting:
            use(await waiting.popleft())


def first_of(group: "BaseExceptionGroup[BaseException]") -> BaseException:
    """Give one error of a group: one of ours, if there is one."""
    found: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting += error.exceptions
        else:
            found.append(error)
    return next((error for error in found if isinstance(error, LedgerError)), found[0])


__all__ = ["AnswerFolder", "NobodyLeft", "Source", "Sources", "first_of", "in_order"]
