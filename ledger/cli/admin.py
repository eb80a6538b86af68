"""How does an administrator prove who they are over HTTP?  By a token that their identity signed."""

import time

from ledger.cli.connection import Target
from ledger.cli.members import Signatory
from ledger.cli.output import out
from ledger.core.admin_token import make_token

TARGET = Target()
SIGNATORY = Signatory()


def admin_token(target: Target, signatory: Signatory, action: str) -> str:
    """Make a token for one action on the target's channel."""
    signer = signatory.load(target, "Admin")
    peer = target.settings()["name"]
    return make_token(signer, peer=peer, channel=target.channel_id(), action=action, now_ms=time.time_ns() // 1_000_000)


def token(action: str, /, *, target: Target = TARGET, signatory: Signatory = SIGNATORY) -> None:
    """Print a bearer token for one action on one channel of one peer, valid for five minutes.

    Use it as: curl -H "Authorization: Bearer $(peerledger admin token prune --network DIR)" …

    Args:
        action: What it allows: prune (to plan it and to apply it), abandon (a checkpoint), or backup.
        target: The peer and channel that it is for.
        signatory: Who signs; the admin of the peer's organisation by default.
    """
    out.print(admin_token(target, signatory, action), markup=False)
