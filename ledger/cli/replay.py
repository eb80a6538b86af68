"""How is a replay shown?  Progress while it runs, a summary in words, or the report as JSON."""

import sys
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ledger.cli.output import STATUS_FAILED, err, out, print_json, print_members
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
    with Progress(*columns, console=err, transient=True, disable=json) as bar:
        task = bar.add_task("replay", total=None)
        report = run_replay(
            genesis, blocks, data, snapshot, lambda done, total: bar.update(task, completed=done, total=total)
        )
    if json:
        print_json(report.members())
    else:
        show(report, snapshot)
    sys.exit(0 if report.agrees else STATUS_FAILED)


def show(report: ReplayReport, snapshot: Path | None) -> None:
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
    checks = [("verdicts", report.verdict_mismatches), ("commit hashes", report.commit_hash_mismatches)]
    if report.snapshot_mismatches is not None:
        checks.append(("snapshot records", report.snapshot_mismatches))
    for name, count in checks:
        out.print(f"  [green]{name}: all equal[/green]" if count == 0 else f"  [red]{name}: {count} differ[/red]")
    if snapshot is None:
        out.print("  snapshot: not compared")
    if (first := report.first_mismatch) is not None:
        where = f"block {first.block}" if first.block is not None else "end state"
        if first.index is not None:
            where += f", transaction {first.index}"
        out.print(f"  first: {first.what} at {where} {first.key or ''}", markup=False)
        out.print(f"    expected {first.expected}\n    found    {first.found}", markup=False)
