"""How is a verification shown?  Level by level: what was proved, what could not be, and how long it took."""

import sys
import time
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ledger.cli.output import STATUS_FAILED, err, out, print_json, print_members
from ledger.node.verify import VerifyReport
from ledger.node.verify import verify as run_verify
from ledger.node.verify_report import LEVELS, Level

PROVED = {
    "structure": "records whole, as the database says",
    "chain": "headers, data hashes and vBlock hashes follow from the genesis block",
    "signatures": "judged again, all signatures included",
    "state": "commit hashes, entries and used ids derived again",
    "checkpoint": "say what this ledger says, and the right ones signed",
}
"""What it means that a level is in order."""


def verify(data: Path, /, *, genesis: Path, json: bool = False) -> None:
    """Derive everything in a peer's data directory again and say what was proved.

    The exit status is 0 if every level is in order, 1 if one is not. The peer must be stopped.

    Args:
        data: The data directory of a peer or of a replay.
        genesis: The channel's genesis block: the trust root.
        json: Print the report as JSON.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    started = time.monotonic()
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("blocks", total=None)

        def progress(what: str, done: int, total: int | None) -> None:
            bar.update(task, description=what, completed=done, total=total)

        report = run_verify(data, genesis, progress)
    if json:
        print_json(report.members())
    else:
        show(report, time.monotonic() - started)
    sys.exit(0 if report.ok else STATUS_FAILED)


def show(report: VerifyReport, seconds: float) -> None:
    """Say in words what was proved."""
    signed = f", signed by {', '.join(report.signers)}" if report.signers else ""
    print_members(
        {
            "channel": report.channel,
            "blocks": report.height,
            "pruned": "nothing" if report.prune_point is None else f"up to block {report.prune_point}",
            "checkpoint": "none" if report.checkpoint is None else f"block {report.checkpoint}{signed}",
            "vBlock hash": report.vblock_hash,
            "state hash": report.state_hash,
        }
    )
    out.print()
    for name, level in report.levels.items():
        show_level(name, level)
    out.print()
    if report.pending:
        out.print(f"{report.pending} blocks behind the last commit were not looked at: the next start commits them.")
    failed = [name for name, level in report.levels.items() if not level.ok]
    if failed:
        out.print(f"[red]Not in order: {', '.join(failed)}[/red]", end="")
    else:
        left = any(level.not_checked for level in report.levels.values())
        out.print(f"[green]All in order{', as far as it can be checked' if left else ''}[/green]", end="")
    rate = f", {report.height / seconds:.0f} blocks a second" if report.height else ""
    out.print(f" ({seconds:.1f} s{rate}).", markup=False)


def show_level(name: str, level: Level) -> None:
    """Say what one level found: a line, and more where something is wrong or was left out."""
    if not level.ok:
        mark, words = "[red]failed[/red]", ""
    elif level.checked:
        mark, words = "[green]ok    [/green]", PROVED[name]
    else:
        mark, words = "–     ", "nothing to check" if not level.not_checked else "not checked"
    out.print(f"  {name.ljust(10)}  {mark}  ", end="")
    counted = f"{level.checked} {LEVELS[name]}" if level.checked else ""
    out.print(": ".join(part for part in (counted, words) if part), markup=False)
    if level.first_failure is not None:
        out.print(f"{'':22}{level.first_failure}", markup=False)
    for reason, count in level.reasons.items():
        out.print(f"{'':22}but {count} {LEVELS[name]} not: {reason}", markup=False)
