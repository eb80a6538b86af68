"""One command runs a whole network: a child that dies is told and started again, and none outlives the supervisor."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.core.errors import Conflict
from ledger.interfaces.grpc.server import ServerTls, make_mutual_server, make_server
from ledger.node import supervise
from ledger.node.authorities import make_authority
from ledger.node.network import create_network, make_spec
from ledger.node.supervise import ChildEvent, Supervisor, node_folders
from tests.cluster.harness import peerledger
from tests.kit.paths import ROOT

NODE = "orderer.example.com"
READY = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done"
DEAF = "trap '' TERM; echo ready; while :; do sleep 0.02; done"


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make a network whose nodes are shell scripts, their configuration files being the scripts."""
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nexec sh "$6"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(supervise, "RESTART_PAUSE_S_MAX", 0.01)
    monkeypatch.setattr(supervise, "STOP_TIMEOUT_S", 0.3)

    def make(**scripts: str) -> Path:
        directory = tmp_path / "network"
        for name, script in scripts.items():
            folder = directory / "nodes" / name
            folder.mkdir(parents=True)
            (folder / ("orderer.yaml" if name == "orderer" else "peer.yaml")).write_text(script)
        return directory

    return make


class Watched:
    """A supervisor with everything that it told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[ChildEvent] = []
        self.supervisor = Supervisor(directory, node_folders(directory), self.events.append)

    def of(self, name: str) -> list[str]:
        return [event.what for event in self.events if event.name == name]

    def pid(self, name: str) -> int:
        return int((self.directory / "run" / f"{name}.pid").read_text())

    async def ready(self, *names: str) -> None:
        """Wait until children have said that they are."""
        await self.until(
            lambda: all(
                (self.directory / "logs" / f"{name}.log").exists()
                and "ready" in (self.directory / "logs" / f"{name}.log").read_text()
                for name in names
            )
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 (the other side is a process)
                await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_orderers_come_first_and_folders_without_settings_are_no_nodes(network: Callable[..., Path]) -> None:
    directory = network(peer1="", orderer="", peer0="")
    (directory / "nodes" / "empty").mkdir()
    assert [node.name for node in node_folders(directory)] == ["orderer", "peer0", "peer1"]
    assert node_folders(directory / "nowhere") == ()


async def test_stop_ends_every_child_also_one_that_does_not_listen(network: Callable[..., Path]) -> None:
    watched = Watched(network(orderer=READY, peer0=READY, deaf=DEAF))
    running = asyncio.create_task(watched.supervisor.run())
    await watched.ready("orderer", "peer0", "deaf")
    pids = [watched.pid(name) for name in ("orderer", "peer0", "deaf")]
    watched.supervisor.stop()
    assert await asyncio.wait_for(running, 5) == ()
    assert not any(map(is_alive, pids))
    for name in ("orderer", "peer0", "deaf"):  # On a crowded machine a shell may have ended, and been started again.
        events = watched.of(name)
        assert (events[0], events[-1], events.count("stopped")) == ("started", "stopped", 1)
    assert list((watched.directory / "run").iterdir()) == []


async def test_cancellation_ends_every_child_before_it_goes_on(network: Callable[..., Path]) -> None:
    watched = Watched(network(orderer=READY, deaf=DEAF))
    running = asyncio.create_task(watched.supervisor.run())
    await watched.ready("orderer", "deaf")
    pids = [watched.pid(name) for name in ("orderer", "deaf")]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(map(is_alive, pids))


async def test_killed_child_is_told_and_started_again_and_the_others_are_left_alone(
    network: Callable[..., Path],
) -> None:
    watched = Watched(network(orderer=READY, peer0=READY))
    running = asyncio.create_task(watched.supervisor.run())
    await watched.ready("orderer", "peer0")
    first, other = watched.pid("peer0"), watched.pid("orderer")
    for round_number in range(1, 8):  # More often than a child may fail by itself.
        os.kill(watched.pid("peer0"), signal.SIGKILL)
        await watched.until(lambda rounds=round_number: watched.of("peer0").count("started") == rounds + 1)  # type: ignore[misc]
    assert watched.of("peer0") == ["started", *["ended", "started"] * 7]
    assert {event.detail for event in watched.events if event.what == "ended"} == {"status -9"}
    assert watched.pid("peer0") != first
    assert watched.pid("orderer") == other
    assert is_alive(other)
    watched.supervisor.stop()
    assert await asyncio.wait_for(running, 5) == ()


async def test_child_that_fails_again_and_again_is_given_up_with_the_end_of_its_log(
    network: Callable[..., Path],
) -> None:
    watched = Watched(network(peer0="echo one; echo two >&2; echo the reason; exit 3", orderer=READY))
    running = asyncio.create_task(watched.supervisor.run())
    await watched.until(lambda: "gave up" in watched.of("peer0"))
    assert watched.of("peer0") == [*["started", "ended"] * supervise.QUICK_FAILURES_MAX, "gave up"]
    (reason,) = [event.detail for event in watched.events if event.what == "gave up"]
    assert reason.endswith("the reason")
    assert "two" in reason
    await watched.ready("orderer")
    watched.supervisor.stop()
    assert await asyncio.wait_for(running, 5) == ("peer0",)


async def test_child_that_refuses_its_settings_is_given_up_at_once(network: Callable[..., Path]) -> None:
    watched = Watched(network(peer0="echo 'rest_lisen: unknown setting'; exit 2"))
    assert await asyncio.wait_for(watched.supervisor.run(), 5) == ("peer0",)
    assert watched.of("peer0") == ["started", "ended", "gave up"]
    assert watched.events[-1].detail == "rest_lisen: unknown setting"


async def test_child_whose_pid_can_not_be_written_does_not_outlive_the_failure(network: Callable[..., Path]) -> None:
    directory = network(peer0='echo $$ > "$0.pid"; ' + READY)
    (directory / "run" / "peer0.pid").mkdir(parents=True)
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(Watched(directory).supervisor.run(), 5)
    assert caught.group_contains(OSError)
    await asyncio.sleep(0.1)
    script_pid = directory / "nodes" / "peer0" / "peer.yaml.pid"
    assert not script_pid.exists() or not is_alive(int(script_pid.read_text()))


# Real nodes under the real command.


@pytest.fixture
def orderer_alone(tmp_path: Path) -> Path:
    """A network directory whose only node is its orderer."""
    directory = tmp_path / "network"
    create_network(directory, make_spec({"orgs": 1}, "test"), datetime.now(UTC))
    for path in (directory / "nodes").glob("*/peer.yaml"):
        path.unlink()
    return directory


class Up:
    """The command `peerledger up` at work."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ledger.cli.main", "up", str(directory), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip

    def event(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def pid(self) -> int:
        return int((self.directory / "run" / f"{NODE}.pid").read_text())

    def wait_until_ready(self) -> None:
        """Wait for the orderer's log to say so."""
        log = self.directory / "logs" / f"{NODE}.log"
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if log.exists() and '"ready"' in log.read_text():
                return
            time.sleep(0.05)
        raise AssertionError(log.read_text())

    def end(self) -> None:
        """Kill it, if it still runs."""
        self.process.kill()
        self.process.communicate(timeout=60)


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < end, f"{pid} outlives its supervisor"
        time.sleep(0.02)


def test_signal_ends_the_command_and_its_nodes_and_what_was_given_up_is_named(orderer_alone: Path) -> None:
    """Beside the orderer a second one whose setting is misspelt: it is given up, the other runs on until the signal."""
    (config,) = (orderer_alone / "nodes").glob("*/orderer.yaml")
    wrong = orderer_alone / "nodes" / "wrong" / "orderer.yaml"
    wrong.parent.mkdir()
    wrong.write_text(config.read_text().replace("data_dir", "data_dri"))
    up = Up(orderer_alone)
    try:
        up.wait_until_ready()
        told = [up.event() for _ in range(4)]
        child = up.pid()
        up.process.send_signal(signal.SIGTERM)
        out, err = up.process.communicate(timeout=60)
    finally:
        up.end()
    wait_until_gone(child)
    told += [json.loads(line) for line in out.splitlines()]
    events = {name: [event["event"] for event in told if event["node"] == name] for name in ("wrong", NODE)}
    assert events == {"wrong": ["started", "ended", "gave up"], NODE: ["started", "stopped"]}
    (reason,) = [event["detail"] for event in told if event["event"] == "gave up"]
    assert "did you mean data_dir?" in reason
    assert (up.process.returncode, "given up: wrong" in err) == (3, True)
    assert '"stopping"' in (orderer_alone / "logs" / f"{NODE}.log").read_text()


def test_no_node_outlives_a_command_that_is_killed(orderer_alone: Path) -> None:
    up = Up(orderer_alone)
    try:
        up.wait_until_ready()
        child = up.pid()
        assert is_alive(child)
    finally:
        up.end()
    wait_until_gone(child)


def test_port_in_use_is_named_by_the_daemon_that_wants_it(orderer_alone: Path) -> None:
    (config,) = (orderer_alone / "nodes").glob("*/orderer.yaml")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"grpc_listen": address}))
        done = peerledger("orderer", "start", "--config", str(config), check=False)
    assert done.returncode in (2, 3)
    assert f"can't listen on {address}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("make", [make_server, make_mutual_server])
async def test_both_kinds_of_server_name_the_port_in_use(make: Callable[..., Any]) -> None:
    authority = make_authority("tlsca", "test", datetime.now(UTC))
    credential = authority.issue("node", None, ("localhost",))
    tls = ServerTls(credential.certificate, credential.key, authority.credential.certificate)
    server, port = make("127.0.0.1:0", tls)
    await server.start()
    with pytest.raises(Conflict, match=f"can't listen on 127.0.0.1:{port}"):
        make(f"127.0.0.1:{port}", tls)
    await server.stop(0)
