"""What does an administrator do about checkpoints?  Give up one that can't become valid."""

from ledger.cli.admin import admin_token
from ledger.cli.connection import Target, request
from ledger.cli.ledger import print_document
from ledger.cli.members import Signatory
from ledger.cli.output import print_json

TARGET = Target()
SIGNATORY = Signatory()


def abandon(number: int, /, *, target: Target = TARGET, signatory: Signatory = SIGNATORY, json: bool = False) -> None:
    """Give up a pending checkpoint on one peer: nothing more is collected for it, and its state is let go of.

    Args:
        number: The block that it is at.
        target: The peer and channel.
        signatory: Who asks; the admin of the peer's organisation by default.
        json: Print what became of it as JSON.
    """
    url = f"{target.rest_url()}/v1/channels/{target.channel_id()}/checkpoints/{number}/abandon"
    answer = request(url, method="POST", token=admin_token(target, signatory, "abandon"))
    if json:
        return print_json(answer)
    return print_document(answer)


__all__ = ["abandon"]
