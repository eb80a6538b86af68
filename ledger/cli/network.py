"""How is a network made from the command line?  From options, or from a network.yaml."""

from datetime import UTC, datetime
from pathlib import Path

from ledger.cli.output import out, print_json, table
from ledger.node.network import create_network, load_spec, make_spec


def create(
    directory: Path,
    /,
    *,
    spec: Path | None = None,
    channel: str = "demo",
    orgs: int = 2,
    peers: int = 1,
    users: int = 1,
    checkpoint_interval_blocks: int = 100,
    batch_messages_max: int = 100,
    batch_timeout_ms: int = 200,
    pruning: str = "manual",
    json: bool = False,
) -> None:
    """Create a network directory: organisations, certificates, genesis block and node settings.

    Args:
        directory: Where; must not exist, or be empty.
        spec: A network.yaml to make it from, instead of the options.
        channel: Name of the channel.
        orgs: Peer organisations.
        peers: Peers of each organisation.
        users: Users of each organisation, beside its admin.
        checkpoint_interval_blocks: Blocks between checkpoints (CHK).
        batch_messages_max: Most transactions in a block.
        batch_timeout_ms: Longest wait for a block to fill.
        pruning: off, manual or auto.
        json: Print the nodes as JSON.
    """
    members = {
        "channel": channel, "orgs": orgs, "peers": peers, "users": users,
        "checkpoint_interval_blocks": checkpoint_interval_blocks, "batch_messages_max": batch_messages_max,
        "batch_timeout_ms": batch_timeout_ms, "pruning": pruning,
    }  # fmt: skip
    wanted = load_spec(spec) if spec is not None else make_spec(members, "options")
    nodes = create_network(directory, wanted, datetime.now(UTC))
    if json:
        print_json([
            {"name": one.name, "kind": one.kind, "msp_id": one.msp_id, "grpc": one.grpc, "rest": one.rest}
            for one in nodes
        ])  # fmt: skip
        return
    shown = table("node", "organisation", "gRPC", "REST", title=f"{directory}, channel {wanted.channel}")
    for one in nodes:
        shown.add_row(one.name, one.msp_id, one.grpc, f"http://{one.rest}" if one.rest else "–")
    out.print(shown)
    out.print(f"Run it with: peerledger up {directory}", markup=False)
