"""How does a joiner ask a peer?  `ledger.v1.Joining` over mutual TLS; answers are bytes, for the joiner to check.

Whoever compares ledgers asks its questions of `ledger.v1.Comparing` in the same way.
"""

import grpc

from ledger.client.tls import ClientTls, open_channel
from ledger.core.errors import Busy, NotFound, PeerUnreachable

SERVICE = "ledger.v1.Joining"

ANSWER_TIMEOUT_S = 10.0
"""How long one answer may take: about a megabyte, and a peer that needs longer says so at once."""


class JoinClient:
    """A peer that can be joined from.

    Args:
        address: host:port of its checkpointing service.
        tls: Whom to trust, and what to show.
    """

    def __init__(self, address: str, tls: ClientTls) -> None:
        """Open the connection lazily."""
        self.address = address
        self._channel = open_channel(address, tls)

    async def ask(self, method: str, question: bytes, service: str = SERVICE) -> bytes:
        """Ask one question of a service.

        Raises:
            NotFound: The peer does not have what was asked for; its text says why.
            Busy: It can't answer now; ask again.
            PeerUnreachable: It did not answer, or refused.
        """
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(f"/{service}/{method}")
        try:
            return await call(question, timeout=ANSWER_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            text = f"peer at {self.address}: {error.code().name}: {error.details()}"
            if error.code() == grpc.StatusCode.NOT_FOUND:
                raise NotFound(text) from error
            if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise Busy(text) from error
            raise PeerUnreachable(text) from error

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()
