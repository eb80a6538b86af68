"""How is a verification shown?  Level by level, with what was checked and what was not."""

import sys
import time
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ledger.cli.output import STATUS_FAILED, err, out, print_json, print_members, table
from ledger.node.verify import VerifyReport
from ledger.node.verify import verify as run_verify


def verify(data: Path, /, *, genesis: Path, json: bool = False) -> None:
    """Derive everything in a peer's data directory again and say what was proved.

    The exit status is 0 if every level is in order, 1 if one is not. The peer must be stopped.

    Args:
        data: The data directory of a peer or of a replay.
        genesis: The channel's genesis block: the trust root.
        json: Print the report as JSON.
    """
    columns = (TextColumn("blocks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    started = time.monotonic()
    with Progress(*columns, console=err, transient=True, disable=json) as bar:
        task = bar.add_task("verify", total=None)
        report = run_verify(data, genesis, lambda done, total: bar.update(task, completed=done, total=total))
    if json:
        print_json(report.members())
    else:
        show(report, time.monotonic() - started)
    sys.exit(0 if report.ok else STATUS_FAILED)


def show(report: VerifyReport, seconds: float) -> None:
    """Say in words what was proved."""
    print_members(
        {
            "channel": report.channel,
            "height": report.height,
            "prune point": report.prune_point,
            "vBlock hash": report.vblock_hash,
            "state hash": report.state_hash,
        }
    )
    levels = table("level", "result", "#blocks checked", "#not checked", "first failure")
    for name, level in report.levels.items():
        result = "[red]failed[/red]" if not level.ok else "[green]ok[/green]" if level.checked else "not checked"
        levels.add_row(name, result, str(level.checked), str(level.not_checked), level.first_failure or "")
    out.print(levels)
    out.print(f"took {seconds:.1f} s", markup=False)
