"""Running `peerledger` as a user does, in this process."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App

from ledger.cli.main import build
from ledger.cli.output import errors_as_status


@cache
def tree() -> App:
    """The tree of commands; it can be built once a process."""
    return build()


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.stdout)


class Runner:
    """Runs commands and catches what they say."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str | Path) -> Done:
        """Run one command line, given without the program's name."""
        self._capture.readouterr()
        status = 0
        try:
            with errors_as_status():
                tree()([str(argument) for argument in arguments], exit_on_error=False)
        except SystemExit as end:
            status = int(end.code or 0)
        said = self._capture.readouterr()
        return Done(status, said.out, said.err)
