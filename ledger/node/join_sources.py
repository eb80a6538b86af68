"""Whom does a joiner ask, and what when one of them lies?  Sources, each of them dropped at its first failure.

An answer counts once it was checked; a source whose answer fails the check is dropped with the rule that it broke, one
that does not answer with what happened. What was checked is remembered in a folder, and checked again when a joiner
that was killed comes back: it is taken from there instead of being asked for.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from ledger.client.joining import JoinClient
from ledger.core.errors import LedgerError, NotFound, PeerUnreachable, Refused, StorageFailed

log = logging.getLogger("peerledger.join")

Checked = TypeVar("Checked")

OFFER_TIMEOUT_S = 60.0
"""How long a peer may take to cut its state into chunks for the first joiner."""


@dataclass(slots=True)
class Source:
    """A peer that is asked."""

    address: str
    client: JoinClient
    dropped: str = ""
    """Why it is asked no more; empty while it is."""

    answers: int = 0
    """Answers of it that were good."""


@dataclass(slots=True)
class AnswerFolder:
    """Answers that were checked, for a joiner that comes back.

    Args:
        folder: Where they lie.
        key: What they are about; those about something else are removed.
    """

    folder: Path
    key: bytes
    taken: int = field(default=0, init=False)
    """Answers that were found here."""

    def __post_init__(self) -> None:
        """Keep what is about the same, remove the rest."""
        mark = self.folder / "about"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not mark.exists() or mark.read_bytes() != self.key:
                for path in self.folder.iterdir():
                    path.unlink()
                mark.write_bytes(self.key)
        except OSError as error:
            raise StorageFailed(f"preparing {self.folder} failed: {error}") from error

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

    def _path(self, method: str, question: bytes) -> Path:
        return self.folder / f"{method}-{sha256(question).hexdigest()[:32]}"


class Sources:
    """The peers that a joiner asks.

    Args:
        sources: The peers.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        """Ask all of them, until they fail."""
        self.all = tuple(sources)
        self._turn = 0

    @property
    def left(self) -> tuple[Source, ...]:
        """Those that have not failed."""
        return tuple(one for one in self.all if not one.dropped)

    def drop(self, source: Source, error: Exception) -> None:
        """Ask a source no more."""
        source.dropped = str(error)
        log.warning("join_source_dropped", extra={"source": source.address, "reason": source.dropped})

    async def ask_one(
        self, source: Source, method: str, question: bytes, check: Callable[[bytes], Checked]
    ) -> Checked | None:
        """Ask one source, and check what it says; None, and the source dropped, if either fails."""
        timeout_s = OFFER_TIMEOUT_S if method == "GetOffer" else 30.0
        try:
            checked = check(await source.client.ask(method, question, timeout_s))
        except (PeerUnreachable, NotFound, Refused) as error:
            self.drop(source, error)
            return None
        source.answers += 1
        return checked

    async def ask(
        self, method: str, question: bytes, check: Callable[[bytes], Checked], answers: AnswerFolder | None = None
    ) -> Checked:
        """Ask the sources in turn until one gives an answer that passes its check.

        Args:
            method: Method of the service.
            question: The question.
            check: Reads and checks an answer; raises `Refused`.
            answers: Where checked answers are found and kept.

        Raises:
            PeerUnreachable: No source is left; the text says why each of them was dropped.
        """
        known = answers.get(method, question) if answers is not None else None
        if known is not None and answers is not None:
            try:
                checked = check(known)
            except LedgerError:
                log.info("join_answer_forgotten", extra={"method": method})
            else:
                answers.taken += 1
                return checked
        while self.left:
            self._turn += 1
            source = self.left[self._turn % len(self.left)]
            found: list[bytes] = []

            def checking(answer: bytes, found: list[bytes] = found) -> Checked:
                checked = check(answer)
                found.append(answer)
                return checked

            checked_now = await self.ask_one(source, method, question, checking)
            if found:
                if answers is not None:
                    answers.put(method, question, found[0])
                return checked_now  # type: ignore[return-value]  # It was checked: the answer was found good.
        raise self.none_left()

    def none_left(self) -> PeerUnreachable:
        """Say why nobody can be asked."""
        reasons = "; ".join(f"{one.address}: {one.dropped}" for one in self.all) or "no address was given"
        return PeerUnreachable(f"nobody can be joined from: {reasons}")

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(one.client.close() for one in self.all))
