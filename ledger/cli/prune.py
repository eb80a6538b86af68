"""How is pruning asked for?  A plan first, by those who may; what was done comes back as a signed receipt."""

from ledger.cli.admin import admin_token
from ledger.cli.connection import Target, request
from ledger.cli.ledger import print_document
from ledger.cli.members import Signatory
from ledger.cli.output import out, print_json

TARGET = Target()
SIGNATORY = Signatory()


def prune(
    *,
    to: int | None = None,
    plan: bool = False,
    target: Target = TARGET,
    signatory: Signatory = SIGNATORY,
    json: bool = False,
) -> None:
    """Prune the bodies of a channel's invalid transactions, up to a valid checkpoint.

    Args:
        to: Highest block whose whole form may go; as far as allowed by default.
        plan: Only say what would go and stay.
        target: The peer and channel.
        signatory: Who asks; the admin of the peer's organisation by default.
        json: Print the plan or receipt as JSON.
    """
    url = f"{target.rest_url()}/v1/channels/{target.channel_id()}/prune"
    if plan:
        query = "" if to is None else f"?to={to}"
        answer = request(url + query, token=admin_token(target, signatory, "prune"))
    else:
        token = admin_token(target, signatory, "prune")
        answer = request(url, method="POST", token=token, body={} if to is None else {"to": to})
    if json:
        return print_json(answer)
    if not plan and not answer.get("receipt"):
        return out.print("nothing was left to prune")
    return print_document(answer)
