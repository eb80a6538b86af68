"""Do the README's commands work?  Each line of its shell blocks that is no make target is run as it stands."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from ledger.cli.main import COMMANDS, GROUPS
from tests.cluster.harness import LocalNetwork, wait_until
from tests.kit.paths import ROOT

BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def commands() -> list[str]:
    """The lines of the README's shell blocks, the make targets left out: the tests can't run themselves."""
    lines = [line.strip() for block in BLOCK.findall((ROOT / "README.md").read_text()) for line in block.splitlines()]
    return [line for line in lines if not line.startswith("make ")]


def answering(directory: Path) -> bool:
    """Whether every peer of a network is ready."""
    network = LocalNetwork(directory)
    return bool(network.peers) and all(network.ask(peer, "/readyz").get("ready") for peer in network.peers)


@pytest.mark.cluster
def test_readme_commands_run(tmp_path: Path) -> None:
    """Goal: a reader can type what the README says.  Method: run the lines in order, in a copy of what they name.

    `up` runs beside the lines that follow it, as in another shell, and `export` holds for them.
    """
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    environment = dict(os.environ)
    with contextlib.ExitStack() as running:
        for line in commands():
            words = shlex.split(line)
            if words[0] == "export":
                name, _, value = words[1].partition("=")
                environment[name] = value
                continue
            assert words[0] == ".venv/bin/peerledger", f"a line that nobody can run: {line}"
            command = [sys.executable, "-m", "ledger.cli.main", *words[1:]]
            if words[1] == "up":
                process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                running.callback(process.wait)
                running.callback(process.terminate)
                wait_until(partial(answering, tmp_path / words[2]), what=f"the network of: {line}")
                continue
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def targets() -> list[str]:
    return [command[1] for command in COMMANDS] + [command[1] for _, _, group in GROUPS for command in group]


@pytest.mark.parametrize("target", targets())
def test_every_command_is_there(target: str) -> None:
    module, _, name = target.partition(":")
    assert callable(getattr(__import__(module, fromlist=[name]), name))
