"""What does `peerledger` offer?  The tree of commands; each lives in the module that its line names.

Modules are imported when their command runs, so that `peerledger --help` and the daemons start fast.
"""

import sys

from cyclopts import App, CycloptsError

from ledger import __version__
from ledger.cli.output import STATUS_REFUSED, errors_as_status

app = App(
    name="peerledger",
    version=__version__,
    help="A permissioned ledger node: validated ledger, agreed checkpoints, safe pruning; Fabric's protocols.",
)

COMMANDS = (
    ("demo", "ledger.cli.demo:demo", "Show the main job: a network at work, checkpoints, pruning, verification."),
    (
        "replay",
        "ledger.cli.replay:replay",
        "Commit recorded blocks in order and compare with what a Fabric peer wrote.",
    ),
    ("up", "ledger.cli.nodes:up", "Run a whole local network as supervised child processes."),
    ("prune", "ledger.cli.prune:prune", "Plan or apply the pruning of invalid transactions of a channel."),
    ("backup", "ledger.cli.backup:backup", "Copy a channel's ledger, of a running or a stopped peer."),
    ("restore", "ledger.cli.backup:restore", "Make a channel's ledger of a backup, in another data directory."),
    ("rebuild", "ledger.cli.rebuild:rebuild", "Make the database of a stopped peer again from its segments."),
    ("verify", "ledger.cli.verify:verify", "Re-derive everything from a data directory and say what was proved."),
)

GROUPS = (
    (
        "network",
        "Make networks: organisations, certificates, genesis block, node settings.",
        (("create", "ledger.cli.network:create", "Create a network directory."),),
    ),
    (
        "orderer",
        "The ordering service.",
        (("start", "ledger.cli.nodes:orderer_start", "Run an orderer from its configuration file."),),
    ),
    (
        "peer",
        "The peer daemon.",
        (
            ("start", "ledger.cli.nodes:peer_start", "Run a peer from its configuration file."),
            ("join", "ledger.cli.join:join", "Join a channel from a checkpoint of other peers."),
        ),
    ),
    (
        "tx",
        "Submit and look up transactions.",
        (
            ("submit", "ledger.cli.transactions:submit", "Endorse, order and wait for the verdict of a transaction."),
            ("evaluate", "ledger.cli.transactions:evaluate", "Run a chaincode function and print its result."),
            ("status", "ledger.cli.transactions:status", "Say what became of a transaction."),
        ),
    ),
    (
        "chaincode",
        "Chaincode definitions.",
        (
            ("commit", "ledger.cli.chaincode:commit", "Commit a chaincode definition to a channel."),
            ("list", "ledger.cli.chaincode:list_definitions", "List the committed definitions of a channel."),
        ),
    ),
    (
        "channel",
        "Channels of a peer.",
        (("info", "ledger.cli.ledger:channel_info", "Height, hashes, checkpoint and prune point of a channel."),),
    ),
    ("block", "Ordered blocks.", (("show", "ledger.cli.ledger:block_show", "Show one block."),)),
    ("vblock", "The validated ledger.", (("show", "ledger.cli.ledger:vblock_show", "Show one vBlock."),)),
    (
        "checkpoint",
        "Checkpoints of a channel.",
        (
            ("list", "ledger.cli.ledger:checkpoint_list", "List checkpoints and what is missing."),
            ("show", "ledger.cli.ledger:checkpoint_show", "Show one checkpoint with its proof."),
            ("abandon", "ledger.cli.checkpoints:abandon", "Give up a checkpoint that can't become valid."),
            ("divergence", "ledger.cli.divergence:divergence", "Show where a peer that diverged began to differ."),
            ("compare", "ledger.cli.divergence:compare", "Say where two ledgers differ."),
            ("export", "ledger.cli.witness:checkpoint_export", "Check a checkpoint and write it for witnesses."),
        ),
    ),
    (
        "proof",
        "Proofs that hold without any node.",
        (
            ("transaction", "ledger.cli.proof:proof_transaction", "Prove what became of a transaction."),
            ("key", "ledger.cli.proof:proof_key", "Prove a key's entry at a checkpoint, or its absence."),
            ("consistency", "ledger.cli.proof:proof_consistency", "Prove that one ledger is the beginning of another."),
            ("checkpoint", "ledger.cli.proof:proof_checkpoint", "Prove that a checkpoint is valid."),
            ("verify", "ledger.cli.proof:verify", "Check a proof with nothing but the genesis block."),
        ),
    ),
    (
        "policy",
        "Endorsement and checkpoint policies.",
        (
            (
                "explain",
                "ledger.cli.policy:explain",
                "Say who satisfies a policy, who can block and who could forge it.",
            ),
        ),
    ),
    (
        "admin",
        "Administration over REST.",
        (("token", "ledger.cli.admin:token", "Print a bearer token for one admin action, valid for five minutes."),),
    ),
)


def build() -> App:
    """Hang all commands into the tree."""
    for name, target, text in COMMANDS:
        app.command(target, name=name, help=text)
    for name, text, commands in GROUPS:
        group = App(name=name, help=text)
        for command, target, command_text in commands:
            group.command(target, name=command, help=command_text)
        app.command(group)
    return app


def main() -> None:
    """Run the command line."""
    tree = build()
    with errors_as_status():
        try:
            tree(exit_on_error=False)
        except CycloptsError:
            sys.exit(STATUS_REFUSED)


if __name__ == "__main__":
    main()
