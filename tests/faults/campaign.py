"""Does any single fault of the disk cost anything?  Each system call of a peer's life in turn fails, or is its last.

A life without faults is traced: every call that touches a file of the data directory or the archive, and what the peer
was at. Then, for a call and a fault, a new life from an empty folder in which that call

- fails with EIO or ENOSPC, once: the peer closes the channel and opens it again in the same process, or doesn't notice;
- finds the disk full, and so does every write after it, whatever the file (*full*): the peer gives up;
- is never done, because the process is killed there (*kill*).

Whatever it came to, the peer is started again without faults. What was told must be true, what is left to do is done,
`verify` must find nothing, and the end must be that of a life without faults.

`python -m tests.faults.campaign` does this for every call and writes the table into `docs/faults.md`.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from tests.faults.driver import GAVE_UP
from tests.faults.strace import CALLS, Call, Driver, Fault, Life, calls_of
from tests.kit.paths import ROOT

CHANGING = frozenset(CALLS) - {"pread64", "open", "openat"}
"""Calls that change the disk whatever their arguments are."""

TABLE = ROOT / "docs" / "faults.md"
_BEGIN, _END = "<!-- table -->", "<!-- end of table -->"
_SHARED_MEMORY = Path("/dev/shm")
_SHARED_MEMORY_BYTES_MIN = 256 << 20

WENT_ON = "went on"
OPENED_AGAIN = "failed, opened again, went on"
STOPPED = "failed; the next start went on"
KILLED = "killed; the next start went on"
NOT_REACHED = "not reached"


@dataclass(frozen=True)
class Verdict:
    """What a fault came to."""

    fault: Fault
    outcome: str
    defect: str = ""
    """What went wrong; empty if nothing did."""


# Which faults there are.


def faults_of(call: Call) -> tuple[str, ...]:
    """List the faults that a call is tried with."""
    if call.name in CHANGING or call.creates:
        more = ("full",) if call.name in ("write", "pwrite64") else ()
        return ("EIO", "ENOSPC", "kill", *more)
    return ("EIO",)


def all_faults(calls: Sequence[Call]) -> list[Fault]:
    """List every fault at every call."""
    return [Fault(call, kind) for call in calls for kind in faults_of(call)]


def sample(calls: Sequence[Call]) -> list[Fault]:
    """Choose, of each kind of call at each step, in the database and outside of it, an error and a kill by turn.

    Outside of the database, which has a recovery of its own, the calls that change something get both.
    """
    groups = defaultdict[tuple[str, str, bool, bool], list[Call]](list)
    for call in calls:
        groups[call.step, call.name, "/db/" in call.path, call.creates].append(call)
    chosen = []
    for turn, ((_, _, in_database, _), group) in enumerate(groups.items()):
        kinds = faults_of(group[0])
        errors = [kind for kind in kinds if kind != "kill"]
        if not (in_database and turn % 2 and "kill" in kinds):
            chosen.append(Fault(group[turn % len(group)], errors[turn % len(errors)]))
        if "kill" in kinds and (turn % 2 or not in_database):
            chosen.append(Fault(group[(turn + len(group) // 2) % len(group)], "kill"))
    return chosen


def options(fault: Fault, calls: Sequence[Call], folder: Path) -> list[str]:
    """Give strace's arguments for a fault."""
    if fault.kind != "full":
        return ["-P", str(folder / fault.call.path), fault.injection]
    given = []
    for path in sorted({call.path for call in calls}):
        given += ["-P", str(folder / path)]
    before = Counter(call.name for call in calls[: calls.index(fault.call)])
    for name in ("write", "pwrite64"):
        given.append(f"--inject={name}:error=ENOSPC:when={before[name] + 1}+")
    return given


# Trying them.


class Campaign:
    """Lives under faults, some at once.

    Args:
        strace: The program.
        folder: Where lives may leave their files.
        workers: Lives at once.
    """

    def __init__(self, strace: str, folder: Path, workers: int) -> None:
        """Live without faults once in each driver, to know what to expect."""
        self._strace, self._folder = strace, folder
        self._free: Queue[tuple[Driver, Any]] = Queue()
        self._drivers = [Driver() for _ in range(workers)]
        for driver in self._drivers:
            calls, end = self._undisturbed(driver)
            self.calls = calls
            self._free.put((driver, end))

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self._drivers:
            driver.close()

    def run(self, faults: Sequence[Fault], heard: Callable[[Verdict], None] = lambda verdict: None) -> list[Verdict]:
        """Try faults; give what each came to, in their order."""

        def one(fault: Fault) -> Verdict:
            driver, end = self._free.get()
            try:
                verdict = self._try(driver, end, fault)
            finally:
                self._free.put((driver, end))
            heard(verdict)
            return verdict

        with ThreadPoolExecutor(len(self._drivers)) as pool:
            waiting: list[Future[Verdict]] = [pool.submit(one, fault) for fault in faults]
            return [each.result() for each in waiting]

    def _undisturbed(self, driver: Driver) -> tuple[list[Call], Any]:
        with self._life_folder() as folder:
            life = driver.live(self._strace, folder)
            assert life.status == 0, f"a life without faults ended with {life.status}: {life.crash}"
            with (folder / "trace").open() as trace:
                calls = list(calls_of(trace, folder))
            end, wrong = driver.finish(folder)
            assert not wrong, wrong
        return calls, end

    def _try(self, driver: Driver, expected: Any, fault: Fault) -> Verdict:
        with self._life_folder() as folder:
            life = driver.live(self._strace, folder, *options(fault, self.calls, folder))
            outcome = outcome_of(life)
            if life.crash:
                return Verdict(fault, outcome, life.crash)
            if life.status not in (0, -9, GAVE_UP):
                return Verdict(fault, outcome, f"the process ended with {life.status}")
            end, wrong = driver.finish(folder)
        if not wrong:
            wrong = "; ".join(f"{name}: expected {expected[name]}, found {end[name]}"
                              for name in expected if expected[name] != end[name])  # fmt: skip
        return Verdict(fault, outcome, wrong)

    @contextmanager
    def _life_folder(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def outcome_of(life: Life) -> str:
    """Say in words how a life went on."""
    if not life.hit:
        return NOT_REACHED
    if life.status == -9:
        return KILLED
    if life.status == 0:
        return OPENED_AGAIN if any(event["event"] == "failed" for event in life.told) else WENT_ON
    return STOPPED


@contextmanager
def quick_folder() -> Iterator[Path]:
    """Give a folder for lives, in memory where there is room: injected faults don't need a real disk."""
    roomy = _SHARED_MEMORY.is_dir() and shutil.disk_usage(_SHARED_MEMORY).free > _SHARED_MEMORY_BYTES_MIN
    with tempfile.TemporaryDirectory(prefix="faults-", dir=_SHARED_MEMORY if roomy else None) as folder:
        yield Path(folder).resolve()


# The table.


def kind_of_file(path: str) -> str:
    """Say what a file is."""
    name, folder = Path(path).name, Path(path).parent.name
    if folder == "db":
        known = {".log": "log", ".ldb": "table", ".dbtmp": "CURRENT"}
        return "database: " + known.get(Path(name).suffix, re.sub(r"-\d+", "", name))
    if path.startswith("archive/"):
        return "copy in the archive"
    return {".kept": "kept segment", ".bodies": "prunable segment"}.get(Path(name).suffix, name)


def table(verdicts: Sequence[Verdict]) -> list[str]:
    """Make the lines of the table step | fault | outcome."""
    rows = defaultdict[tuple[str, str, str, str], Counter[str]](Counter)
    for verdict in verdicts:
        call = verdict.fault.call
        outcome = f"DEFECT: {verdict.defect.splitlines()[-1]}" if verdict.defect else verdict.outcome
        rows[call.step, kind_of_file(call.path), call.name, verdict.fault.kind][outcome] += 1
    lines = ["| step | file | call | fault | outcome, and how often |", "| --- | --- | --- | --- | --- |"]
    merged = defaultdict[tuple[str, str, str, str], list[str]](list)
    for (step, file, name, kind), outcomes in rows.items():
        merged[step, file, name, "; ".join(f"{what} ({count})" for what, count in sorted(outcomes.items()))].append(
            kind
        )
    for (step, file, name, what), kinds in merged.items():
        lines.append(f"| {step} | {file} | {name} | {', '.join(kinds)} | {what} |")
    return lines


def summary(verdicts: Sequence[Verdict], calls: Sequence[Call], seconds: float) -> list[str]:
    """Say what a run came to."""
    outcomes = Counter("**defect**" if verdict.defect else verdict.outcome for verdict in verdicts)
    return [
        f"{len(calls)} calls in a life of {len({call.path for call in calls})} files and folders; {len(verdicts)} lives"
        f" with one fault each, in {seconds / 60:.0f} minutes.",
        "",
        "| outcome | lives |",
        "| --- | --- |",
        *(f"| {outcome} | {count} |" for outcome, count in outcomes.most_common()),
    ]


def main() -> int:
    """Try every fault, show progress, write the table; the status is 1 if anything was lost or went wrong."""
    arguments = argparse.ArgumentParser(description="Fail each system call of a peer in turn.")
    arguments.add_argument("--only", default="", help="calls whose step, name or path contains this")
    arguments.add_argument("--kind", default="", help="only this fault: EIO, ENOSPC, full or kill")
    given = arguments.parse_args()
    strace = shutil.which("strace")
    if strace is None:
        print("strace is not installed", file=sys.stderr)
        return 2
    began, done = time.monotonic(), 0

    def heard(verdict: Verdict) -> None:
        nonlocal done
        done += 1
        call = verdict.fault.call
        if verdict.defect:
            print(f"\nDEFECT {call} {verdict.fault.kind}\n{verdict.defect}", flush=True)
        if done % 25 == 0 or done == len(faults):
            print(f"{done} of {len(faults)} after {time.monotonic() - began:.0f} s", flush=True)

    with quick_folder() as folder, Campaign(strace, folder, os.cpu_count() or 1) as campaign:
        faults = [fault for fault in all_faults(campaign.calls)
                  if given.only in f"{fault.call.step} {fault.call.name} {fault.call.path}"
                  and given.kind in ("", fault.kind)]  # fmt: skip
        verdicts = campaign.run(faults, heard)
    text = [*summary(verdicts, campaign.calls, time.monotonic() - began), "", *table(verdicts)]
    if given.only or given.kind:
        print("\n".join(text))
    else:
        before, _, rest = TABLE.read_text().partition(_BEGIN)
        after = rest.partition(_END)[2]
        TABLE.write_text("\n".join([before + _BEGIN, *text, _END]) + after)
    return int(any(verdict.defect for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
