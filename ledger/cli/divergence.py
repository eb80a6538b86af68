"""Where do peers differ?  What a peer that stands alone has found, and a comparison of two ledgers by an operator."""

import sys
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ledger.cli.connection import Target, request
from ledger.cli.output import STATUS_FAILED, out, print_json, print_members, table
from ledger.core.divergence import summary
from ledger.core.errors import InvalidSetting
from ledger.node.compare import compare_folders, compare_peers

NOBODY = Target()


def divergence(*, target: Target = NOBODY, json: bool = False) -> None:
    """Show where a peer that diverged began to differ from the others.

    Args:
        target: The peer to ask.
        json: Print it as JSON.
    """
    document = target.channel_get("/divergence")
    if json:
        return print_json(document)
    out.print(str(document["reason"]), markup=False)
    out.print(str(document["summary"]), markup=False)
    found = document["found"]
    return show(found) if found is not None else None


def compare(first: str, second: str, /, *, channel: str | None = None, json: bool = False) -> None:
    """Say where two ledgers differ: two stopped peers' data directories, or two running peers by their REST URLs.

    The exit status is 0 if they are the same as far as both go, 1 if they differ.

    Args:
        first: A data directory or URL.
        second: Another of the same kind.
        channel: The channel; the only one by default.
        json: Print the result as JSON.
    """
    are_urls = {one.startswith(("http://", "https://")) for one in (first, second)}
    if len(are_urls) > 1:
        raise InvalidSetting(
            "compare", rule="kinds", expected="two directories or two URLs", found=f"{first}, {second}"
        )
    if True in are_urls:
        found = compare_peers(asker(first, channel), asker(second, channel))
    else:
        found = compare_folders(Path(first), Path(second), channel)
    differs = is_different(found)
    if json:
        print_json({"differs": differs, **found})
    else:
        heights: Any = found["heights"]
        print_members({"channel": found["channel"], "heights": f"{heights[0]}, {heights[1]}"})
        out.print(summary(found), markup=False)
        show(found)
    sys.exit(STATUS_FAILED if differs else 0)


def asker(url: str, channel: str | None) -> Callable[[str], Any]:
    """Make what asks a peer for documents of the channel."""
    target = Target(rest=url, channel=channel)
    base = f"{target.rest_url()}/v1/channels/{urllib.parse.quote(target.channel_id())}"
    return lambda path: request(base + path)


def is_different(found: Mapping[str, Any]) -> bool:
    """Tell whether a comparison found any difference."""
    state = found["state"]
    keys = bool(state["keys"]) if state is not None else "these differ" in found["state_reason"]
    return found["vblock"] is not None or keys


def show(found: Mapping[str, Any]) -> None:
    """Show what differs, in tables."""
    vblock, state = found["vblock"], found["state"]
    if vblock is not None:
        shown = table(f"vBlock {vblock['number']}", "one", "other")
        for name in vblock["differs"]:
            shown.add_row(name, str(vblock["ours"][name]), str(vblock["theirs"][name]))
        for one in vblock["transactions"]:
            sides = [one[side]["verdict"] if one[side] is not None else "missing" for side in ("ours", "theirs")]
            shown.add_row(f"transaction {one['index']}", *sides)
        out.print(shown)
    if state is not None and state["keys"]:
        shown = table("namespace", "collection", "key", "differs", "#one", "#other")
        for one in state["keys"]:
            versions = [one[side]["version"] if one[side] is not None else "absent" for side in ("ours", "theirs")]
            raw = bytes.fromhex(one["key"])
            text = ascii(raw.decode())[1:-1] if raw.isascii() and not one["collection"] else raw.hex()
            shown.add_row(one["namespace"], one["collection"], text, ", ".join(one["differs"]), *versions)
        out.print(shown)


__all__ = ["compare", "divergence"]
