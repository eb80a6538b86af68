"""How do contracts run?  In processes of their own, one proposal each at a time, cut off when they take too long.

A worker is foreign code: it may hang, crash, eat memory or send nonsense, and each of these fails the proposal that it
was running and nothing else; a new worker takes its place. It is started with an environment of a few fixed variables
and two descriptors, so that nothing of the peer (keys, addresses, settings) is handed to it.

The caller's thread serves the worker while it runs: no hop to an event loop stands between a contract and the state.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from ledger.chaincode.conversation import Admit, Conversation
from ledger.chaincode.frames import FrameStream, Kind, StreamEnded, number
from ledger.chaincode.simulator import Simulator
from ledger.chaincode.values import ChaincodeResponse, TransactionContext
from ledger.core.errors import Busy, ExecutionFailed, InvalidSetting

PACKAGE_FOLDER = str(Path(__file__).resolve().parents[2])
"""Where workers find this package."""


class ContractPool:
    """The contracts of one peer and the worker processes that run them.

    Safe to use from several threads. Start it before the first proposal and close it after the last.

    Args:
        contracts: Contract name to `module:Class`; every worker loads all of them.
        workers: Number of processes.
        execute_timeout_ms: Time for one proposal; a worker that takes longer is killed.
        start_timeout_ms: Time for a worker to load its contracts.
        memory_bytes_max: Address space of one worker.
        search_path: Folders where contract modules are looked for, before the installed packages.
    """

    def __init__(
        self,
        contracts: Mapping[str, str],
        *,
        workers: int = 2,
        execute_timeout_ms: int = 30_000,
        start_timeout_ms: int = 60_000,
        memory_bytes_max: int = 1 << 30,
        search_path: tuple[str, ...] = (),
    ) -> None:
        """Take the settings; no process is started yet."""
        self._contracts = dict(contracts)
        self._execute_timeout_s = execute_timeout_ms / 1000
        self._start_timeout_s = start_timeout_ms / 1000
        self._load = (
            number(memory_bytes_max),
            number(len(search_path)),
            *(folder.encode() for folder in search_path),
            *(text.encode() for pair in self._contracts.items() for text in pair),
        )
        self._workers = [WorkerProcess(self._load) for _ in range(workers)] if contracts else []
        self._idle: deque[WorkerProcess] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def __contains__(self, name: str) -> bool:
        return name in self._contracts

    @property
    def worker_count(self) -> int:
        """Number of proposals that can run at once."""
        return len(self._workers)

    def start(self) -> None:
        """Start the workers and wait until each has loaded every contract.

        Raises:
            InvalidSetting: A contract can't be loaded; the message says why.
        """
        for worker in self._workers:
            worker.spawn()
        deadline = time.monotonic() + self._start_timeout_s
        for worker in self._workers:
            try:
                worker.wait_until_ready(deadline)
            except (StreamEnded, TimeoutError) as error:
                self.close()
                raise InvalidSetting("contracts", rule="loads", expected=self._contracts, found=error) from error
        with self._changed:
            self._idle.extend(self._workers)

    def close(self) -> None:
        """End all workers; what runs at the moment fails."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.end()

    def execute(
        self, name: str, transaction: TransactionContext, simulator: Simulator, admit: Admit
    ) -> ChaincodeResponse:
        """Run a contract for a proposal; blocks until it answers or its time is over.

        Args:
            name: A contract of this pool.
            transaction: What it runs for.
            simulator: Where it reads and writes.
            admit: Asked before the contract invokes another one: raises SimulationFailed to refuse.

        Raises:
            ExecutionFailed: Time is over, the worker ended, or its writes are not allowed.
            Busy: All workers were busy for as long as one proposal may take.
            StorageFailed: The state could not be read.
        """
        worker = self._acquire()
        conversation: Conversation | None = None
        try:
            stream = worker.wait_until_ready(time.monotonic() + self._start_timeout_s)
            deadline = time.monotonic() + self._execute_timeout_s
            conversation = Conversation(stream, name, transaction, simulator, admit, deadline)
            return conversation.run()
        except TimeoutError as error:
            raise failed(transaction, "timeout expired while executing transaction") from error
        except StreamEnded as error:
            raise failed(transaction, "chaincode stream terminated") from error
        except ExecutionFailed as error:
            raise failed(transaction, str(error)) from error
        finally:
            self._release(worker, is_usable=conversation is not None and conversation.is_over)

    def _acquire(self) -> "WorkerProcess":
        with self._changed:
            if not self._changed.wait_for(lambda: self._idle or self._closed, self._execute_timeout_s):
                raise Busy(f"no contract worker was free within {self._execute_timeout_s} s")
            if self._closed:
                raise Busy("the peer is stopping")
            return self._idle.pop()  # The one that ran last has its memory at hand.

    def _release(self, worker: "WorkerProcess", is_usable: bool) -> None:
        """Take a worker back; in place of one that is not idle start another, which is taken last, being slow."""
        if not is_usable:
            worker.end()
        with self._changed:
            if self._closed:
                return
            if is_usable:
                self._idle.append(worker)
            else:
                worker.spawn()
                self._idle.appendleft(worker)
            self._changed.notify()


class WorkerProcess:
    """One worker's place in the pool; its process may be replaced.

    Args:
        load: Parts of the frame that tells it what to load.
    """

    def __init__(self, load: tuple[bytes, ...]) -> None:
        """Remember what to load; no process yet."""
        self._load = load
        self._process: subprocess.Popen[bytes] | None = None
        self._stream: FrameStream | None = None
        self._lifeline = -1
        self._ready = False

    def spawn(self) -> None:
        """Start a process and tell it what to load."""
        ours, theirs = socket.socketpair()
        lifeline_read, self._lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ledger.chaincode.worker", str(theirs.fileno()), str(lifeline_read)],
                env={
                    "PATH": os.defpath,
                    "LANG": "C.UTF-8",
                    "PYTHONPATH": PACKAGE_FOLDER,
                    "PYTHONHASHSEED": "0",  # Sets iterate alike on all peers: endorsements must be equal.
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=2,  # What a contract prints belongs to the log.
                pass_fds=(theirs.fileno(), lifeline_read),
                start_new_session=True,  # An interrupt at the terminal is for the peer, which then ends its workers.
            )
        finally:
            theirs.close()
            os.close(lifeline_read)
        self._stream = FrameStream(ours)
        self._ready = False
        self._stream.send(Kind.LOAD, *self._load)

    def wait_until_ready(self, deadline: float) -> FrameStream:
        """Wait until the process has loaded its contracts and return the connection to it.

        Raises:
            StreamEnded: It ended, or a contract can't be loaded.
            TimeoutError: It did not load them in time.
        """
        if self._stream is None:
            raise StreamEnded("the worker was ended")
        if not self._ready:
            kind, parts = self._stream.receive(max(0.001, deadline - time.monotonic()))
            if kind is not Kind.READY:
                raise StreamEnded(b"".join(parts).decode(errors="replace"))
            self._ready = True
        return self._stream

    def end(self) -> None:
        """Kill the process, if there is one; may be called by several threads at once."""
        process, self._process = self._process, None
        stream, self._stream = self._stream, None
        lifeline, self._lifeline = self._lifeline, -1
        if process is not None:
            process.kill()
            process.wait()
        if stream is not None:
            stream.close()
        if lifeline >= 0:
            os.close(lifeline)


def failed(transaction: TransactionContext, reason: str) -> ExecutionFailed:
    """Say in Fabric's words that a proposal has no response."""
    return ExecutionFailed(f"error in simulation: failed to execute transaction {transaction.tx_id}: {reason}")
