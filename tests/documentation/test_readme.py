"""Do the README's commands work?  Each line of its shell blocks that is no make target is run as it stands."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.cli.main import COMMANDS, GROUPS
from tests.kit.paths import ROOT

BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def commands() -> list[str]:
    lines = [line.strip() for block in BLOCK.findall((ROOT / "README.md").read_text()) for line in block.splitlines()]
    return [line for line in lines if line.startswith(".venv/bin/peerledger ")]


def test_readme_commands_run(tmp_path: Path) -> None:
    """Goal: a reader can type what the README says.  Method: run the lines in order, in a copy of what they name."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    found = commands()
    assert found, "the README shows no commands"
    for line in found:
        arguments = shlex.split(line)[1:]
        done = subprocess.run(
            [sys.executable, "-m", "ledger.cli.main", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def targets() -> list[str]:
    return [command[1] for command in COMMANDS] + [command[1] for _, _, group in GROUPS for command in group]


@pytest.mark.parametrize("target", targets())
def test_every_command_is_there(target: str) -> None:
    module, _, name = target.partition(":")
    assert callable(getattr(__import__(module, fromlist=[name]), name))
