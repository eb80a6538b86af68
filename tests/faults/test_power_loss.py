"""The power goes off at any step of a peer's life: whatever the disk did with what was not synced, nothing is lost."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.faults.campaign import kind_of_file, quick_folder
from tests.faults.lone_peer import LonePeer
from tests.faults.oracle import End, Event, differences, finish
from tests.faults.power import WAYS, PowerFiles, after_power_cut, opens_synced


@dataclass(frozen=True)
class Cut:
    """A moment at which the power goes off, and what becomes of what was not synced."""

    step: int
    way: str
    at: str
    """What the peer was about to do, for people."""


class WatchedLife:
    """A life whose folder is copied as a power cut would leave it, at any of its steps."""

    def __init__(self, folder: Path) -> None:
        self.home, self._synced = folder / "life", folder / "synced"
        self.home.mkdir(parents=True)
        self.steps: list[tuple[str, str, bool]] = []
        """(what the peer was at and was about to do, to what kind of file, whether something was not synced)"""
        self.told: list[Event] = []
        self.cases: list[tuple[Cut, Path, list[Event]]] = []
        self._files = PowerFiles(self._on_step)
        self._wanted: dict[int, list[str]] = {}

    def live(self, wanted: dict[int, list[str]]) -> "WatchedLife":
        """Live; copy the folder at the steps that are wanted."""
        self._wanted = wanted
        LonePeer(self.home, self._tell, files=self._files, open_engine=opens_synced(self._synced, self._on_step)).live()
        return self

    def _tell(self, event: str, **data: object) -> None:
        self.told.append({"event": event, **data})

    def _on_step(self, verb: str, path: Path) -> None:
        step = len(self.steps)
        doing = [event["name"] for event in self.told if event["event"] == "step"][-1]
        kind = "database" if path.name == "db" else kind_of_file(str(path.relative_to(self.home)))
        open_ended = bool(self._files.unsynced or self._files.made or self._files.removed) or verb == "synced batch"
        self.steps.append((f"{doing}: {verb}", kind, open_ended))
        for way in self._wanted.get(step, []):
            target = self.home.parent / f"{step}-{way}"
            after_power_cut(self.home, self._files, self._synced, target, way, seed=step)
            cut = Cut(step, way, f"{doing}, before {verb} of {kind}")
            self.cases.append((cut, target, list(self.told)))


@cache
def undisturbed() -> tuple[End, tuple[tuple[str, str, bool], ...]]:
    """How it ends without faults, and the steps of such a life."""
    with quick_folder() as folder:
        life = WatchedLife(folder).live({})
        return finish(life.home, life.told), tuple(life.steps)


def lost_by(wanted: dict[int, list[str]]) -> Iterator[str]:
    """Cut the power at some steps, start again, and say where something was lost or wrong."""
    expected, _ = undisturbed()
    with quick_folder() as folder:
        for cut, target, told in WatchedLife(folder).live(wanted).cases:
            try:
                wrong = "; ".join(differences(expected, finish(target, told)))
            except Exception as error:  # noqa: BLE001  # Whatever it is, it is a finding.
                wrong = repr(error)
            if wrong:
                yield f"{cut}: {wrong}"


@pytest.mark.faults
def test_power_cut_costs_nothing_that_was_told() -> None:
    """Goal: rule 4 of the design.  Method: of each kind of step that leaves something open, one; the ways by turn."""
    _, steps = undisturbed()
    groups: dict[str, list[int]] = {}
    for number, (doing, _, open_ended) in enumerate(steps):
        if open_ended:
            groups.setdefault(doing, []).append(number)
    wanted: dict[int, list[str]] = {}
    for turn, numbers in enumerate(groups.values()):
        wanted.setdefault(numbers[turn % len(numbers)], []).append(WAYS[turn % len(WAYS)])
    assert len(wanted) > 20
    assert not list(lost_by(wanted))


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", WAYS)
def test_power_cut_at_any_step_costs_nothing_that_was_told(way: str) -> None:
    """The same at every step."""
    _, steps = undisturbed()
    for low in range(0, len(steps), 20):
        assert not list(lost_by({step: [way] for step in range(low, min(low + 20, len(steps)))}))
