"""How does the command speak?  For people in words and tables, with `--json` for scripts.

Results go to standard output, everything else (progress, warnings, errors) to standard error, so that a pipe holds
results only. Exit statuses: 0 done; 1 a check failed or something asked for does not exist; 2 refused (bad input, bad
arguments, an entitlement missing); 3 the world failed (disk, network, a node that does not answer).
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from ledger.core.errors import LedgerError, NotFound, Pruned, Refused, WorldFailed

STATUS_FAILED = 1
STATUS_REFUSED = 2
STATUS_WORLD = 3

out = Console(highlight=False, soft_wrap=True)
"""Results."""

err = Console(stderr=True, highlight=False, soft_wrap=True)
"""Progress, warnings and errors."""


def print_json(value: Any) -> None:
    """Print one JSON document with sorted nothing: members come in the order in which they were made."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")
    sys.stdout.flush()


def print_members(members: Mapping[str, object], title: str | None = None) -> None:
    """Print named values, one a line, aligned."""
    if title:
        out.print(f"[bold]{title}[/bold]")
    width = max((len(name) for name in members), default=0)
    for name, value in members.items():
        out.print(f"  {name.ljust(width)}  ", end="", markup=False)
        out.print("–" if value is None else str(value), markup=False)


def table(*columns: str, title: str | None = None) -> Table:
    """Make a table in the house's form."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numeric = column.startswith("#")
        made.add_column(column.removeprefix("#"), justify="right" if numeric else "left", overflow="fold")
    return made


def status_of(error: LedgerError) -> int:
    """Give the exit status for an error."""
    match error:
        case Refused():
            return STATUS_REFUSED
        case NotFound() | Pruned():
            return STATUS_FAILED
        case WorldFailed():
            return STATUS_WORLD
        case _:
            return STATUS_WORLD


@contextmanager
def errors_as_status() -> Iterator[None]:
    """Turn an error of the ledger into one line on standard error and an exit status."""
    try:
        yield
    except LedgerError as error:
        err.print(f"[red]error:[/red] {type(error).__name__}: ", end="")
        err.print(str(error), markup=False)
        raise SystemExit(status_of(error)) from error
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(0) from None
