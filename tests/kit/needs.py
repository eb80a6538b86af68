"""What does a test need beyond Python?  Where that is missing it is skipped with a reason, or fails."""

import os
from typing import NoReturn

import pytest


def lacks(reason: str) -> NoReturn:
    """Skip the test, or fail it under PEERLEDGER_REQUIRE_ALL=1."""
    if os.environ.get("PEERLEDGER_REQUIRE_ALL") == "1":
        pytest.fail(f"{reason}, and PEERLEDGER_REQUIRE_ALL=1 allows no skips")
    pytest.skip(reason)
