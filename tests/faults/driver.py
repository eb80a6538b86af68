"""Runs the lone peer as processes of their own:  python -m tests.faults.driver

Making a channel and importing everything takes longer than the life of a peer, so this process does both once, and
forks for each life. Commands come as lines of JSON on standard input, `{"do": "live" | "finish", "folder": PATH}`;
for each of them come back, as lines of JSON, the process id and, at its end, its status.

*live* waits until the file `go` is there (whoever wants to trace it has attached by then) and then lives, telling what
it acknowledges in the file `told`. When the disk fails it closes everything and opens it again, as a running peer does
with a channel, a few times; then it gives up with status `GAVE_UP`. Any other exception is a defect, and is in `crash`.

*finish* starts again, without faults, and judges what is left; see `oracle`. The judgement is in `end`.
"""

import ctypes
import json
import os
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

from ledger.core.errors import StorageFailed
from ledger.storage import engine_leveldb
from tests.faults.lone_peer import LonePeer, blocks
from tests.faults.oracle import Event, finish

GAVE_UP, CRASHED = 3, 4
OPENINGS_MAX = 3
WRITE_BUFFER_BYTES = 64 << 10
"""As small as LevelDB takes it, so that tables are written and compacted in so short a life."""

_PR_SET_PTRACER = 0x59616D61


def told(folder: Path) -> list[Event]:
    """Read what a life told."""
    path = folder / "told"
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def live(folder: Path) -> int:
    """Live once, under whatever faults there are."""
    descriptor = os.open(folder / "told", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def tell(event: str, **data: object) -> None:
        os.write(descriptor, json.dumps({"event": event, **data}).encode() + b"\n")

    for _ in range(OPENINGS_MAX):
        peer = LonePeer(folder, tell)
        try:
            peer.live()
        except StorageFailed as error:
            tell("failed", reason=str(error))
        else:
            tell("end")
            return 0
    return GAVE_UP


def judge(folder: Path) -> int:
    """Start again without faults, and write down how it ends."""
    end = asdict(finish(folder, told(folder)))
    (folder / "end").write_text(json.dumps(end))
    return 0


def wait_for_go(folder: Path) -> None:
    """Let anyone attach, and wait until told to go on."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    while not (folder / "go").exists():
        time.sleep(0.001)


def child(command: Event) -> int:
    """Do one command; the status of the process."""
    folder = Path(command["folder"])
    try:
        if command["do"] == "live":
            wait_for_go(folder)
            return live(folder)
        return judge(folder)
    except BaseException:  # noqa: BLE001  # Whatever it is, it is a finding.
        (folder / "crash").write_text(traceback.format_exc())
        return CRASHED


def say(**line: object) -> None:
    """Answer with a line."""
    print(json.dumps(line), flush=True)


def main() -> None:
    """Serve until standard input ends."""
    engine_leveldb.WRITE_BUFFER_BYTES = WRITE_BUFFER_BYTES
    blocks()
    say(ready=True)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            os._exit(child(json.loads(line)))
        say(process=process)
        status = os.waitpid(process, 0)[1]
        say(status=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
