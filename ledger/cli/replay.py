"""How is a replay shown?  Progress while it runs, a summary in words, or the report as JSON."""

import sys
import time
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ledger.cli.output import STATUS_FAILED, STATUS_REFUSED, err, out, print_json, print_members
from ledger.core.errors import ChannelStopped
from ledger.node.replay import ReplayReport
from ledger.node.replay import replay as run_replay


def replay(*, genesis: Path, blocks: Path, data: Path, snapshot: Path | None = None, json: bool = False) -> None:
    """Commit recorded blocks in order and compare with what a Fabric peer wrote.

    The exit status is 0 if everything agrees, 1 on any mismatch, 2 if a block is refused.

    Args:
        genesis: The channel's genesis block.
        blocks: Directory of serialized blocks, NNNNNN.block.
        data: Data directory; a second run continues after the last committed block.
        snapshot: Snapshot of the end state in Fabric's format, to compare with.
        json: Print the report as JSON.
    """
    columns = (TextColumn("blocks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    started = time.monotonic()
    try:
        with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
            task = bar.add_task("replay", total=None)
            report = run_replay(
                genesis, blocks, data, snapshot, lambda done, total: bar.update(task, completed=done, total=total)
            )
    except ChannelStopped as error:  # A config block that can't be applied is refused as well.
        err.print("[red]error:[/red] ChannelStopped: ", end="")
        err.print(str(error), markup=False)
        sys.exit(STATUS_REFUSED)
    if json:
        print_json(report.members())
    else:
        show(report, snapshot, time.monotonic() - started)
    sys.exit(0 if report.agrees else STATUS_FAILED)


def show(report: ReplayReport, snapshot: Path | None, seconds: float) -> None:
    """Say in words what the replay found."""
    print_members(
        {
            "channel": report.channel,
            "height": report.height,
            "transactions": report.transactions,
            "verdicts": ", ".join(f"{name} {count}" for name, count in report.verdicts.items()),
            "vBlock hash": report.vblock_hash,
            "state hash": report.state_hash,
        }
    )
    out.print()
    blocks = report.verdicts_compared
    show_check("verdicts", report.verdict_mismatches, f"in {blocks} blocks" if blocks else "")
    blocks = report.commit_hashes_compared
    show_check("commit hashes", report.commit_hash_mismatches, f"of {blocks} blocks" if blocks else "")
    show_check("snapshot", report.snapshot_mismatches or 0, f"to {snapshot}" if snapshot else "")
    if (first := report.first_mismatch) is not None:
        where = f"block {first.block}" if first.block is not None else "end state"
        if first.index is not None:
            where += f", transaction {first.index}"
        out.print(f"  first: {first.what} at {where} {first.key or ''}", markup=False)
        out.print(f"    expected {first.expected}\n    found    {first.found}", markup=False)
    out.print(f"\ntook {seconds:.1f} s", markup=False)


def show_check(name: str, mismatches: int, where: str) -> None:
    """Say how one comparison went, and with what; nothing to compare with is said too."""
    if not where:
        out.print(f"  {name.ljust(13)}  nothing to compare with")
    elif mismatches:
        out.print(f"  {name.ljust(13)}  [red]{mismatches} differ[/red]")
    else:
        out.print(f"  {name.ljust(13)}  [green]all equal[/green] ", end="")
        out.print(where, markup=False)
