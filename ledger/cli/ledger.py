"""How are channels, blocks and checkpoints of a peer shown?  As its REST interface tells them."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from ledger.cli.connection import Target
from ledger.cli.output import out, print_json, print_members, table

NOBODY = Target()


def channel_info(*, target: Target = NOBODY, json: bool = False) -> None:
    """Show height, hashes, checkpoint and prune point of a channel.

    Args:
        target: The peer to ask.
        json: Print the document as JSON.
    """
    info = target.channel_get("")
    if json:
        return print_json(info)
    flat = {name.replace("_", " "): value for name, value in info.items() if not isinstance(value, dict | list)}
    for group in ("checkpoints", "pruning"):
        for name, value in info.get(group, {}).items():
            flat[f"{group}: {name.replace('_', ' ')}"] = value
    return print_members(flat)


def block_show(number: int, /, *, target: Target = NOBODY, json: bool = False) -> None:
    """Show one block.

    Args:
        number: Its number.
        target: The peer to ask.
        json: Print it whole as JSON.
    """
    block = target.channel_get(f"/blocks/{number}")
    if json:
        return print_json(block)
    return print_document(block)


def vblock_show(number: int, /, *, target: Target = NOBODY, json: bool = False) -> None:
    """Show one vBlock: its valid transactions, and a stub for each invalid one with the rule that refused it.

    Args:
        number: Its number.
        target: The peer to ask.
        json: Print it whole as JSON.
    """
    vblock = target.channel_get(f"/vblocks/{number}")
    if json:
        return print_json(vblock)
    return print_document(vblock)


def checkpoint_list(*, target: Target = NOBODY, json: bool = False) -> None:
    """List the checkpoints of a channel.

    Args:
        target: The peer to ask.
        json: Print them as JSON.
    """
    document = target.channel_get("/checkpoints")
    if json:
        return print_json(document)
    if not document["checkpoints"]:
        return out.print("no checkpoint is known yet")
    return out.print(checkpoint_table(document["checkpoints"]))


def checkpoint_table(checkpoints: Sequence[Mapping[str, Any]]) -> Table:
    """Show how far checkpoints have come, who signed them and who is still missing."""
    shown = table("#block", "status", "signed by", "missing")
    for one in checkpoints:
        signers = ", ".join(str(signer["name"] or signer["msp_id"]) for signer in one["signers"])
        shown.add_row(str(one["number"]), one["status"], signers, "; ".join(one["missing"]))
    return shown


def checkpoint_show(number: int, /, *, target: Target = NOBODY, json: bool = False) -> None:
    """Show one checkpoint with its proof.

    Args:
        number: The block that it is at.
        target: The peer to ask.
        json: Print it as JSON.
    """
    checkpoint = target.channel_get(f"/checkpoints/{number}")
    if json:
        return print_json(checkpoint)
    return print_document(checkpoint)


def print_document(document: dict[str, object]) -> None:
    """Print a document for people: its values, then a table for each list of objects."""
    print_members({name: value for name, value in document.items() if not isinstance(value, dict | list)})
    for name, value in document.items():
        if isinstance(value, dict):
            print_members(value, name)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            columns = [key for key, cell in value[0].items() if not isinstance(cell, dict | list)]
            shown = table(*columns, title=name)
            for row in value:
                shown.add_row(*[str(row.get(column, "")) for column in columns])
            out.print(shown)
