"""How is one system call of another process made to fail, or its last?  With strace, attached before it begins.

strace counts the calls that touch a given path, in each thread apart, and tampers with the N-th of them: it fails with
an error without being done, or the process is killed before it is done.
"""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.faults.driver import told
from tests.faults.oracle import Event
from tests.kit.paths import ROOT

CALLS = (
    "write", "pwrite64", "pread64", "fsync", "fdatasync", "rename", "renameat", "renameat2", "unlink", "unlinkat",
    "mkdir", "mkdirat", "truncate", "ftruncate", "openat", "open",
)  # fmt: skip
"""The calls that change the disk, those that open files, and those that read them."""

LIFE_SECONDS_MAX = 60
_CALL = re.compile(r"^\d+ +(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)")
_PATH = re.compile(r'<(/[^>]*)>|"(/[^"]*)"')


@dataclass(frozen=True)
class Call:
    """One system call of a life without faults."""

    step: str
    """What the peer was at."""
    name: str
    path: str
    """Relative to the life's folder."""
    number: int
    """Counted among the calls of this name on this path, from 1."""
    creates: bool = False
    """Whether it opens a file that it would create."""


@dataclass(frozen=True)
class Fault:
    """What is done to a call."""

    call: Call
    kind: str
    """An error's name, or `kill`."""

    @property
    def injection(self) -> str:
        """The argument for strace."""
        action = "signal=SIGKILL" if self.kind == "kill" else f"error={self.kind}"
        return f"--inject={self.call.name}:{action}:when={self.call.number}"


@dataclass(frozen=True)
class Life:
    """How a process ended."""

    status: int
    """Exit status, or the negative of a signal."""
    told: Sequence[Event]
    crash: str
    """What ended it, if that was an exception."""
    hit: bool
    """Whether the fault came to pass."""


class Driver:
    """A process that forks lives; see `driver`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.driver"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._answer()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(LIFE_SECONDS_MAX)
        self._process.stdout.close()

    def live(self, strace: str, folder: Path, *options: str) -> Life:
        """Let a peer live under strace; its log is in `trace`."""
        process, said = self._begin("live", folder), folder / "strace"
        with said.open("w") as errors:
            tracer = subprocess.Popen(
                [strace, "-f", "-y", "-s", "80", "-o", str(folder / "trace"), "-p", str(process),
                 "-e", "trace=" + ",".join(f"?{name}" for name in CALLS), *options],
                stderr=errors,
            )  # fmt: skip
        while "attached" not in said.read_text():
            assert tracer.poll() is None, f"strace could not attach: {said.read_text()}"
            time.sleep(0.002)
        (folder / "go").touch()
        life = self._ended(process, folder)
        tracer.wait(LIFE_SECONDS_MAX)
        hit = life.status == -9 or "(INJECTED)" in (folder / "trace").read_text()
        return Life(life.status, life.told, life.crash, hit)

    def finish(self, folder: Path) -> tuple[Any, str]:
        """Start the peer again without faults; gives its end, or what is wrong with it."""
        life = self._ended(self._begin("finish", folder), folder)
        if life.status == 0:
            return json.loads((folder / "end").read_text()), ""
        return None, life.crash or f"the start ended with {life.status}"

    def _begin(self, what: str, folder: Path) -> int:
        (folder / "crash").unlink(missing_ok=True)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, "folder": str(folder)}) + "\n")
        self._process.stdin.flush()
        return int(self._answer()["process"])

    def _ended(self, process: int, folder: Path) -> Life:
        hung = threading.Event()

        def end() -> None:
            hung.set()
            subprocess.run(["kill", "-KILL", str(process)], check=False)

        timer = threading.Timer(LIFE_SECONDS_MAX, end)
        timer.start()
        status = int(self._answer()["status"])
        timer.cancel()
        crash = folder / "crash"
        text = "it hung" if hung.is_set() else crash.read_text() if crash.exists() else ""
        return Life(status, told(folder), text, hit=False)

    def _answer(self) -> Event:
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline()))


def calls_of(trace: IO[str], folder: Path) -> Iterator[Call]:
    """Read from a life's trace which calls touched its files, in order, and at which step."""
    step, counts = "open", dict[tuple[str, str], int]()
    for line in trace:
        found = _CALL.match(line)
        if found is None:
            continue
        name, arguments = found["name"], found["arguments"]
        paths = [Path(one or other) for one, other in _PATH.findall(arguments)]
        inside = [path.relative_to(folder) for path in paths if path != folder and path.is_relative_to(folder)]
        if not inside:
            continue
        if inside[0].name == "told":
            if mark := re.search(r'step\\", \\"name\\": \\"(\w+)', arguments):
                step = mark[1]
            continue
        if inside[0].parts[0] not in ("data", "archive"):
            continue
        path = str(inside[0])
        counts[name, path] = number = counts.get((name, path), 0) + 1
        yield Call(step, name, path, number, "O_CREAT" in arguments)


__all__ = ["CALLS", "Call", "Driver", "Fault", "Life", "calls_of"]
