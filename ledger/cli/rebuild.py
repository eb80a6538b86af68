"""How is a rebuild shown?  Progress while it runs, then what was made and what it was compared with."""

import time
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ledger.cli.output import err, out, print_json, print_members
from ledger.node.rebuild import RebuildReport, rebuild_from_file


def rebuild(data: Path, /, *, genesis: Path, check: bool = False, cut: bool = False, json: bool = False) -> None:
    """Make the database of a stopped peer again from its segments, pruned or not.

    The verdicts are taken as they stand: the commit hash of every block is derived again and compared, and the state
    with the newest checkpoint that is valid. The old database stays until the new one is whole.

    Args:
        data: The peer's data directory.
        genesis: The channel's genesis block: the trust root.
        check: Judge every block again, all signatures included.
        cut: Where blocks are damaged, keep the whole ones before them; the next start fetches the others.
        json: Print the report as JSON.
    """
    columns = (TextColumn("blocks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    started = time.monotonic()
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("rebuild", total=None)
        report = rebuild_from_file(
            data,
            genesis,
            check=check,
            may_cut=cut,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if json:
        print_json(report.members())
    else:
        show(report, time.monotonic() - started)


def show(report: RebuildReport, seconds: float) -> None:
    """Say in words what was made."""
    made = report.rebuilt
    print_members(
        {
            "channel": report.channel,
            "blocks": made.height,
            "pruned": "nothing" if made.prune_point < 0 else f"up to block {made.prune_point}",
            "vBlock hash": made.vblock_hash.hex(),
            "state hash": made.state_hash.hex(),
            "blocks were": "judged again" if report.checked else "applied as they were judged",
            "compared with": "commit hashes" if made.anchor is None else f"commit hashes, checkpoint {made.anchor}",
        }
    )
    out.print()
    if made.cut_blocks:
        out.print(f"[yellow]{made.cut_blocks} blocks were cut[/yellow]: the next start fetches them from the orderers.")
    elif made.cut_bytes:
        out.print(f"{made.cut_bytes} bytes of a block that was never committed were cut.")
    out.print(f"[green]The database is made anew[/green] ({seconds:.1f} s).")
