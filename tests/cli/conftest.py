"""What tests of commands share."""

import pytest

from tests.cli.running import Runner


@pytest.fixture
def peerledger(capsys: pytest.CaptureFixture[str]) -> Runner:
    """Run a command line of `peerledger`."""
    return Runner(capsys)
