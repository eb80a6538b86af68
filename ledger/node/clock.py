"""What time is it?  The one place where the node reads the clock for those who are given time."""

import time
from datetime import UTC, datetime


def now() -> datetime:
    """Read the clock."""
    return datetime.now(UTC)


def now_ms() -> int:
    """Read the clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
