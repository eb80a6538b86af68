"""What does this software do?  A network of two organisations, shown at work, in under a minute.

Everything is real: an orderer and two peers as processes of their own, TLS, gRPC, signatures, files on disk. The load
is made so that a good part of it conflicts: what the peers then do with the invalid transactions is the point.
"""

import asyncio
import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table

from ledger.cli.admin import admin_token
from ledger.cli.connection import Target, request
from ledger.cli.ledger import checkpoint_table
from ledger.cli.members import Signatory
from ledger.cli.nodes import is_ready
from ledger.cli.output import STATUS_FAILED, err, out, table
from ledger.cli.transactions import gateway_tls
from ledger.cli.verify import show as show_verification
from ledger.client.errors import CallRefused
from ledger.client.gateway import Contract, commit_definition, connect
from ledger.core.errors import PeerUnreachable
from ledger.core.names import verdict_name
from ledger.node.network import create_network, make_spec
from ledger.node.verify import VerifyReport
from ledger.node.verify import verify as run_verify

CHANNEL = "demo"
CONTRACT = "assets"
ASSETS = 40
"""Assets that are created first."""

TRANSFERS = 320
"""Transactions that then change a few of them at once."""

HOT = 12
"""So few that they get into each other's way."""

CLIENTS = 24
"""Clients at work at once."""

INTERVAL_BLOCKS = 5
"""CHK of the demo: small, so that there are several checkpoints."""

START_TIMEOUT_S = 30.0
CHECKPOINT_TIMEOUT_S = 20.0
REFRESH_S = 0.4


@dataclass(slots=True)
class Counts:
    """What has come of the load so far."""

    total: int
    submitted: int = 0
    refused: int = 0
    """Not endorsed: never ordered."""

    verdicts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, tuple[str, int]] = field(default_factory=dict)
    """A transaction of each verdict, and its block."""

    def committed(self, transaction_id: str, code: int, block: int) -> None:
        """Count a verdict."""
        name = verdict_name(code)
        self.verdicts[name] += 1
        self.examples.setdefault(name, (transaction_id, block))


def demo(*, directory: Path = Path("build/demo"), keep: bool = False) -> None:
    """Show the main job: a network at work, checkpoints agreed on, the ledger pruned and verified.

    Args:
        directory: Where the network is made; what is there is removed.
        keep: Leave the network running and print its addresses.
    """
    started = time.monotonic()
    stop_running(directory)
    shutil.rmtree(directory, ignore_errors=True)
    step("1", "A network of two organisations: certificates, genesis block, settings")
    members = {"channel": CHANNEL, "orgs": 2, "peers": 1, "checkpoint_interval_blocks": INTERVAL_BLOCKS,
               "batch_messages_max": 20, "batch_timeout_ms": 200}  # fmt: skip
    for node in create_network(directory, make_spec(members, "demo"), datetime.now(UTC)):
        say(f"{node.name} of {node.msp_id}")
    targets = [Target(directory, f"peer0.org{number}.example.com", None, CHANNEL) for number in (1, 2)]
    with running(directory):
        wait_until_ready(targets)
        step("2", "An orderer and two peers, each a process; clients submit over gRPC and get into each other's way")
        counts = asyncio.run(put_to_work(targets[0]))
        step("3", "What became of it")
        show_counts(counts)
        plan_ready = wait_for_checkpoint(targets)
        step("4", "Pruning: up to the latest checkpoint that both organisations signed")
        for target in targets:
            prune(target)
        step("5", "What was pruned is still answered for, over REST")
        look_up(targets[0], counts)
    step("6", "Verifying both ledgers from the genesis block on, as an auditor would")
    reports = verify_all(directory, targets)
    equal = len({report.state_hash for report in reports}) == 1 and len({report.vblock_hash for report in reports}) == 1
    in_order = all(report.ok for report in reports) and equal and plan_ready
    conclude(directory, targets, keep=keep, in_order=in_order, seconds=time.monotonic() - started)
    if not in_order:
        sys.exit(STATUS_FAILED)


# -- the network


@contextlib.contextmanager
def running(directory: Path) -> Iterator[None]:
    """Run the network's nodes meanwhile."""
    process = start(directory)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def start(directory: Path) -> "subprocess.Popen[bytes]":
    """Start the supervisor of the network in a session of its own."""
    with (directory / "up.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ledger.cli.main", "up", str(directory)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    (directory / "up.pid").write_text(f"{process.pid}\n")
    return process


def stop_running(directory: Path) -> None:
    """Stop the network that an earlier demo left running."""
    try:
        pid = int((directory / "up.pid").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return
    if str(directory).encode() not in command:
        return  # The number belongs to another process by now.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.1)


def wait_until_ready(targets: Sequence[Target]) -> None:
    """Wait until the peers answer and follow the orderer.

    Raises:
        PeerUnreachable: They do not, in time.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    for target in targets:
        while not is_ready(target):
            if time.monotonic() > deadline:
                raise PeerUnreachable(
                    f"{target.peer} is not ready after {START_TIMEOUT_S:.0f} s; see {target.network}/logs"
                )
            time.sleep(0.1)


# -- the load


async def put_to_work(target: Target) -> Counts:
    """Define the contract and submit the load, with a live view beside it."""
    address, tls = gateway_tls(target)
    counts = Counts(total=ASSETS + TRANSFERS)
    async with connect(address, Signatory().load(target, "User1"), tls) as gateway:
        network = gateway.network(CHANNEL)
        await commit_definition(network, CONTRACT)
        say(f"contract {CONTRACT} is defined; {counts.total} transactions by {CLIENTS} clients at once")
        contract = network.contract(CONTRACT)
        viewing = asyncio.create_task(view(target, counts))
        await work(contract, counts)
        await asyncio.sleep(2 * REFRESH_S)
        viewing.cancel()
        await asyncio.gather(viewing, return_exceptions=True)
    return counts


async def work(contract: Contract, counts: Counts) -> None:
    """Create the assets, then let many clients change a few of them."""
    dice = random.Random(7)
    await at_once(contract, counts, [("create", f"asset-{number:02}", "Anna", "100") for number in range(ASSETS)])
    calls: list[tuple[str, ...]] = []
    for number in range(TRANSFERS):
        asset = f"asset-{dice.randrange(HOT):02}"
        if number % 16 == 5:
            calls.append(("range", "asset-00", "asset-99"))  # A reader whose range others write into.
        elif number % 8 == 3:
            calls.append(("create", f"asset-{ASSETS + number:03}", "Carla", "5"))
        elif number % 2:
            calls.append(("update", asset, str(number)))
        else:
            calls.append(("transfer", asset, dice.choice(("Anna", "Bob", "Carla"))))
    await at_once(contract, counts, calls)


async def at_once(contract: Contract, counts: Counts, calls: Sequence[tuple[str, ...]]) -> None:
    """Submit calls, several at once, and wait for each verdict."""
    waiting = iter(enumerate(calls))

    async def client() -> None:
        for number, (function, *arguments) in waiting:
            # Now and then somebody asks their own organisation alone, which the channel's policy does not accept.
            only = ("Org1MSP",) if len(calls) > ASSETS and number % 40 == 17 else ()
            try:
                submitted = await contract.submit_async(function, *arguments, organisations=only)
            except CallRefused:
                counts.refused += 1
                continue
            counts.submitted += 1
            status = await submitted.status()
            counts.committed(status.transaction_id, status.code, status.block_number)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


async def view(target: Target, counts: Counts) -> None:
    """Show the peer's view of the channel while it grows, where there is a terminal to show it on."""
    if not err.is_terminal:
        return
    with Live(console=err, transient=True, auto_refresh=False) as live:
        for turn in itertools.count():
            info, checkpoints = await asyncio.to_thread(ask, target)
            live.update(picture(info, checkpoints, counts, turn), refresh=True)
            await asyncio.sleep(REFRESH_S)


def ask(target: Target) -> tuple[Any, list[Any]]:
    """Ask the peer how the channel and its checkpoints stand."""
    return target.channel_get(""), target.channel_get("/checkpoints")["checkpoints"]


def picture(info: Any, checkpoints: Sequence[Any], counts: Counts, turn: int) -> Group:
    """Draw the live view."""
    head = (
        f"  {'░▒▓█'[turn % 4]} block {info['height'] - 1}, vBlock {info['vblock_hash'][:16]}…  "
        f"judged {sum(counts.verdicts.values())} of {counts.total}"
    )
    return Group(head, "", verdict_table(counts), "", checkpoint_table(checkpoints[:4]))


def verdict_table(counts: Counts) -> Table:
    """Show how many transactions came to which verdict."""
    shown = table("  verdict", "#transactions")
    for name, count in counts.verdicts.most_common():
        shown.add_row(f"  {name}", str(count))
    return shown


# -- what came of it


def show_counts(counts: Counts) -> None:
    """Say how the load was judged."""
    out.print(verdict_table(counts))
    invalid = sum(counts.verdicts.values()) - counts.verdicts["VALID"]
    say(f"{invalid} of {counts.submitted} ordered ones are invalid: their stubs are in the vBlocks, their bodies apart")
    if counts.refused:
        say(f"{counts.refused} were not endorsed and never ordered")


def wait_for_checkpoint(targets: Sequence[Target]) -> bool:
    """Wait until the newest checkpoint is valid on both peers, and show who signed it."""
    height = min(target.channel_get("")["height"] for target in targets)
    wanted = (height - 1) // INTERVAL_BLOCKS * INTERVAL_BLOCKS
    deadline = time.monotonic() + CHECKPOINT_TIMEOUT_S
    for target in targets:
        while (target.channel_get("")["checkpoints"]["latest_valid"] or 0) < wanted:
            if time.monotonic() > deadline:
                say(f"no checkpoint at block {wanted} became valid; {target.peer} says:")
                out.print(checkpoint_table(target.channel_get("/checkpoints")["checkpoints"]))
                return False
            time.sleep(0.1)
    document = targets[0].channel_get("/checkpoints")
    out.print()
    out.print(checkpoint_table(document["checkpoints"][:4]))
    say(f"what makes a checkpoint valid: {targets[0].channel_get('')['checkpoints']['global_policy']}")
    return True


def prune(target: Target) -> None:
    """Prune a peer's ledger and say what it freed."""
    assert target.network is not None and target.peer is not None
    prunable = target.network / "nodes" / target.peer / "data" / "channels" / CHANNEL / "prunable"
    before = folder_bytes(prunable)
    url = f"{target.rest_url()}/v1/channels/{CHANNEL}/prune"
    receipt = request(url, method="POST", token=admin_token(target, Signatory(), "prune"), body={})["receipt"]
    if receipt is None:
        return say(f"{target.peer}: nothing to prune")
    bodies = sum(receipt["transactions"].values())
    return say(
        f"{target.peer}: {bodies} bodies of invalid transactions up to block {receipt['to_block']} are gone; "
        f"what holds them: {before:,} bytes before, {folder_bytes(prunable):,} after"
    )


def folder_bytes(folder: Path) -> int:
    """Count the bytes of a folder's files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def look_up(target: Target, counts: Counts) -> None:
    """Ask over REST for a valid and for a pruned invalid transaction."""
    point = target.channel_get("")["pruning"]["prune_point"]
    pruned = [one for name, one in counts.examples.items() if name != "VALID" and one[1] <= (point or 0)]
    for transaction_id, _ in (counts.examples["VALID"], *pruned[:1]):
        path = f"/v1/channels/{CHANNEL}/transactions/{transaction_id}"
        answer = request(target.rest_url() + path)
        say(f"GET {path[:60]}…")
        out.print(
            f"     {answer['verdict']}, block {answer['block']}.{answer['index']}; envelope {answer['envelope']}",
            markup=False,
        )
        if answer["rule"]:
            out.print(f"     {answer['rule']}: {answer['detail']}"[:150], markup=False)


def verify_all(directory: Path, targets: Sequence[Target]) -> list[VerifyReport]:
    """Verify both peers' data directories."""
    reports = []
    for target in targets:
        assert target.peer is not None
        began = time.monotonic()
        genesis = directory / "channels" / f"{CHANNEL}.block"
        report = run_verify(directory / "nodes" / target.peer / "data", genesis, lambda what, done, total: None)
        say(f"peerledger verify of {target.peer}:")
        show_verification(report, time.monotonic() - began)
        reports.append(report)
    return reports


def conclude(directory: Path, targets: Sequence[Target], *, keep: bool, in_order: bool, seconds: float) -> None:
    """Say in plain words what was shown, and where to go next."""
    out.rule(style="dim")
    if in_order:
        out.print(
            "Two peers judged the same transactions, came to the same hashes and signed what they had come to.\n"
            "On these signatures both removed the bodies of the invalid transactions. Every verdict, every hash and\n"
            "the state are what they were, and whoever holds the genesis block can check it, trusting neither peer."
        )  # fmt: skip
    else:
        out.print("[red]Something did not come out as it should; see above and the logs.[/red]")
    out.print(f"\nIt took {seconds:.0f} s. Logs: {directory}/logs", markup=False)
    if keep:
        process = start(directory)
        wait_until_ready(targets)
        out.print(f"\nThe network runs on (process {process.pid}; end it with: kill {process.pid}):", markup=False)
        for target in targets:
            settings = target.settings()
            out.print(f"  {settings['name']}  gRPC {settings['grpc_listen']}  {target.rest_url()}/docs", markup=False)
        out.print(f"\nTry:  export PEERLEDGER_NETWORK={directory}", markup=False)
        out.print(f"      .venv/bin/peerledger tx submit {CONTRACT} create my-asset Me 1", markup=False)
        out.print("      .venv/bin/peerledger checkpoint list", markup=False)
        out.print("      .venv/bin/peerledger prune --plan", markup=False)
    else:
        out.print("Next: make demo KEEP=1 leaves the network running; README.md says how to make one of your own.")


def step(number: str, text: str) -> None:
    """Head a step."""
    out.print(f"\n[bold]{number}. {text}[/bold]")


def say(text: str) -> None:
    """Say one thing within a step."""
    out.print(f"   {text}", markup=False)
