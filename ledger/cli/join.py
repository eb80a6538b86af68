"""How does a new peer join a channel from the command line?  From a checkpoint of others, before it is started."""

import asyncio
from dataclasses import asdict
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ledger.cli.output import err, out, print_json, print_members
from ledger.core.errors import InvalidSetting
from ledger.core.names import BlockNumber
from ledger.node.config import PeerChannel, PeerSettings, load_peer_settings
from ledger.node.files import read
from ledger.node.join import Joiner, JoinReport, Trust
from ledger.storage.msp_folder import load_signing_identity


def join(
    *,
    config: Path,
    from_: tuple[str, ...] = (),
    genesis: Path | None = None,
    trust: str | None = None,
    json: bool = False,
) -> None:
    """Join a channel from the latest valid checkpoint of other peers; then start the peer.

    Nothing that the others say is believed without a check against the genesis block. Killed at any step, it goes on
    where it was when it is run again.

    Args:
        config: The peer's configuration file, peer.yaml.
        from_: Checkpointing address (host:port) of a peer to join from, repeatable; the other peers of the settings
            without it.
        genesis: The channel's genesis block; needed where the settings have several channels.
        trust: A vBlock that is known to be true, as NUMBER:HASH.
        json: Print the report as JSON.
    """
    settings = load_peer_settings(config)
    channel = chosen_channel(settings, genesis)
    addresses = from_ or tuple(one.checkpoint_address for one in settings.peers)
    signer = load_signing_identity(settings.msp_dir, settings.msp_id)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("joining", total=None)

        def tell(what: str, done: int, total: int | None) -> None:
            bar.update(task, description=what, completed=done, total=total)

        joiner = Joiner(settings, channel, signer, addresses, pinned(trust), tell)
        report = asyncio.run(joiner.run())
    if json:
        return print_json(asdict(report))
    return show(report)


def show(report: JoinReport) -> None:
    """Say what was joined, and on whose word."""
    print_members(
        {
            "channel": report.channel,
            "checkpoint": f"block {report.checkpoint}, signed by {', '.join(report.signers)}",
            "vBlock hash": report.vblock_hash,
            "state hash": report.state_hash,
        }
    )
    for address, what in report.sources.items():
        out.print(f"  {address}: {what}", markup=False)
    for warning in report.warnings:
        err.print(f"[yellow]warning:[/yellow] {warning}")
    out.print("The ledger is in place: start the peer, and it follows from the next block on.")


def chosen_channel(settings: PeerSettings, genesis: Path | None) -> PeerChannel:
    """Find the settings of the channel to join.

    Raises:
        InvalidSetting: It is not clear which one.
    """
    if genesis is not None:
        wanted = read(genesis)
        same = [one for one in settings.channels if read(one.genesis) == wanted]
        if len(same) == 1:
            return same[0]
        raise InvalidSetting("channel", rule="which channel", expected=f"a channel of {genesis} in the settings",
                             found=len(same))  # fmt: skip
    if len(settings.channels) != 1:
        raise InvalidSetting("channel", rule="which channel", expected="--genesis FILE", found=len(settings.channels))
    return settings.channels[0]


def pinned(text: str | None) -> Trust | None:
    """Read NUMBER:HASH.

    Raises:
        InvalidSetting: It is something else.
    """
    if text is None:
        return None
    number, _, digest = text.partition(":")
    try:
        trust = Trust(BlockNumber(int(number)), bytes.fromhex(digest))
    except ValueError as error:
        raise InvalidSetting("--trust", rule="pinned vBlock", expected="NUMBER:HASH", found=text) from error
    if len(trust.vblock_hash) != 32 or trust.number < 0:
        raise InvalidSetting("--trust", rule="pinned vBlock", expected="NUMBER:HASH", found=text)
    return trust
