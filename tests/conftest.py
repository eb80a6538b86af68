"""Shared set-up: where a tool is missing, its tests skip with the reason, or fail where everything is required."""

import shutil
from collections.abc import Callable

import pytest
from hypothesis import settings

from tests.kit.needs import lacks

settings.register_profile("busy machine", deadline=None)  # How long one example takes says nothing about a rule.
settings.load_profile("busy machine")


@pytest.fixture(scope="session")
def need_tool() -> Callable[[str], str]:
    """Return a function that finds a program, skipping the test (or failing it under PEERLEDGER_REQUIRE_ALL=1)."""

    def find(program: str) -> str:
        path = shutil.which(program)
        if path is None:
            lacks(f"{program} is not installed")
        return path

    return find
