"""For how long is a view of the state held?  Opened for one simulation or answer, and let go of at its end."""

from collections.abc import Iterator
from contextlib import contextmanager

from ledger.core.ports import LedgerReader
from ledger.core.state import LedgerView


@contextmanager
def opened(ledger: LedgerReader) -> Iterator[LedgerView]:
    """Hold a consistent view of a ledger's state, and close it where it holds something of the store."""
    view = ledger.view()
    try:
        yield view
    finally:
        close = getattr(view, "close", None)
        if close is not None:
            close()
