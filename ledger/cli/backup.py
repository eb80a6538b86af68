"""How is a backup asked for, and how is one restored?  A running peer makes its own; a stopped one's is made here."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ledger.cli.admin import admin_token
from ledger.cli.connection import Target, request
from ledger.cli.members import Signatory
from ledger.cli.output import err, out, print_json, print_members
from ledger.core.errors import InvalidSetting, StorageFailed
from ledger.node.backup import Progress as Tell
from ledger.node.backup import back_up
from ledger.node.backup import restore as restore_backup

TARGET = Target()
SIGNATORY = Signatory()

PAUSE_S = 0.2
"""Pause before a running peer is asked again how far it has come."""

TOKEN_LIFETIME_S = 240
"""Time after which another token is made; one is good for five minutes."""


def backup(
    *,
    to: str,
    data: Path | None = None,
    genesis: Path | None = None,
    target: Target = TARGET,
    signatory: Signatory = SIGNATORY,
    json: bool = False,
) -> None:
    """Copy a channel's ledger, as of one committed block.

    A running peer does it itself, without stopping commits, in a folder below its `backup_dir`; a stopped peer's
    ledger is copied with --data and --genesis.

    Args:
        to: Folder for the backup, which must not be there; of a running peer as seen from its `backup_dir`.
        data: Data directory of a stopped peer.
        genesis: The channel's genesis block, with --data.
        target: The running peer and channel.
        signatory: Who asks a running peer; the admin of its organisation by default.
        json: Print what was backed up as JSON.
    """
    with shown() as tell:
        if data is None:
            made = ask_running(to, target, signatory, tell)
        else:
            made = of_stopped(data, genesis, Path(to), tell)
    if json:
        return print_json(made)
    print_members(
        {
            "backup": made["path"],
            "blocks": made["height"],
            "pruned": "nothing" if made["prune_point"] is None else f"up to block {made['prune_point']}",
            "vBlock hash": made["vblock_hash"],
            "state hash": made["state_hash"],
            "files": f"{made['files']}, {made['bytes_total']} bytes",
        }
    )
    return out.print("[green]Backed up.[/green]")


def of_stopped(data: Path, genesis: Path | None, target: Path, tell: Tell) -> dict[str, Any]:
    """Back up a stopped peer's channel."""
    if genesis is None:
        raise InvalidSetting("backup", rule="which channel", expected="--genesis FILE beside --data", found="none")
    made = back_up(data, genesis, target, tell)
    return {
        "state": "done",
        "path": str(target.resolve()),
        "bytes_done": made.size_bytes,
        "bytes_total": made.size_bytes,
        "reason": "",
        "height": made.height,
        "prune_point": made.prune_point,
        "vblock_hash": made.vblock_hash,
        "state_hash": made.state_hash,
        "files": len(made.files),
    }


def ask_running(to: str, target: Target, signatory: Signatory, tell: Tell) -> dict[str, Any]:
    """Let a running peer make a backup, and wait for it.

    Raises:
        StorageFailed: The peer could not make it; its reason is told.
    """
    url = f"{target.rest_url()}/v1/channels/{target.channel_id()}/backup"
    token, made_at = admin_token(target, signatory, "backup"), time.monotonic()
    status: dict[str, Any] = request(url, method="POST", token=token, body={"to": to})
    while status["state"] == "running":
        tell("copying", status["bytes_done"], status["bytes_total"])
        time.sleep(PAUSE_S)
        if time.monotonic() - made_at > TOKEN_LIFETIME_S:
            token, made_at = admin_token(target, signatory, "backup"), time.monotonic()
        status = request(url, token=token)
    if status["state"] != "done":
        raise StorageFailed(f"the peer made no backup: {status['reason']}")
    return status


def restore(backup: Path, /, *, data: Path, genesis: Path | None = None, json: bool = False) -> None:
    """Make a channel of a backup, in the data directory of a stopped peer that does not have it.

    Every file is compared with the backup's manifest before and after it is copied, the database is made again, and
    its hashes are compared too. The peer then starts as ever and fetches what came since; it signs no checkpoint
    before the orderers have said how far the channel is.

    Args:
        backup: The backup's folder.
        data: The data directory.
        genesis: The channel's genesis block, to see that the backup begins with it.
        json: Print what was restored as JSON.
    """
    with shown() as tell:
        made = restore_backup(backup, data, tell, genesis=genesis)
    folder = (data / "channels" / made.channel).resolve()
    members = {
        "channel": made.channel,
        "path": str(folder),
        "height": made.height,
        "prune_point": made.prune_point,
        "vblock_hash": made.vblock_hash,
        "state_hash": made.state_hash,
    }
    if json:
        return print_json(members)
    print_members(
        {
            "channel": made.channel,
            "folder": folder,
            "blocks": made.height,
            "pruned": "nothing" if made.prune_point is None else f"up to block {made.prune_point}",
            "vBlock hash": made.vblock_hash,
            "state hash": made.state_hash,
        }
    )
    return out.print("[green]Restored[/green]: hashes are those of the backup.")


@contextmanager
def shown() -> Iterator[Tell]:
    """Show on standard error how far work has come, where somebody looks."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total or None)
