"""How does an administrator show over HTTP that they may?  By a token that is good for one action on one channel."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from ledger.core.errors import InvalidIdentity, MalformedMessage
from ledger.interfaces.rest.asking import ChannelName
from ledger.interfaces.rest.ports import AdminAction, NodeView
from ledger.interfaces.rest.problems import Unauthenticated

bearer = HTTPBearer(
    scheme_name="adminToken",
    description="A token that an admin of the peer's organisation signed for this peer, channel and action; it is good "
    "for five minutes. `peerledger admin token` makes one.",
    auto_error=False,
)
"""How a token travels; whether there is one is judged by `admin_only`, which explains itself better."""


def admin_only(action: AdminAction) -> Callable[..., Awaitable[None]]:
    """Make the check that a request carries an admin's token for one action on the channel it names."""

    async def check(
        request: Request,
        channel: ChannelName,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
    ) -> None:
        """Check the token.

        Raises:
            Unauthenticated: There is none, or it proves nothing.
            Forbidden: It proves who speaks, and that is no admin, or it is for something else, or too old.
        """
        if credentials is None:
            raise Unauthenticated(
                "administration", rule="admin token", expected=f"a token for {action.value}", found="none"
            )
        node: NodeView = request.app.state.node
        try:
            await request.app.state.reads.run(lambda: node.authorize(credentials.credentials, channel, action.value))
        except (MalformedMessage, InvalidIdentity) as error:
            raise Unauthenticated(error.subject, rule=error.rule, expected=error.expected, found=error.found) from error

    return check


__all__ = ["admin_only"]
