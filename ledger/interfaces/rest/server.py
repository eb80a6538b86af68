"""How does the REST interface come to a port?  One uvicorn server as a task among the node's others.

The node owns the signals, so uvicorn is kept from taking them. The socket is bound before serving begins: whoever
starts the server knows its address, also where the system chose the port, and a taken port is an error at the start.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from ledger.core.errors import Conflict

SHUTDOWN_TIMEOUT_S = 3
"""How long requests under way may take when the server ends; those that wait for a transaction are cut off then."""

CONNECTIONS_MAX = 1_000
"""Connections at once; further ones are told that the server is busy."""

HEAD_BYTES_MAX = 64 * 1024
"""Largest head of a request."""


@dataclass(frozen=True, slots=True)
class RestTls:
    """Where the server's certificate and key lie."""

    certificate_file: Path
    key_file: Path


class _Server(uvicorn.Server):
    """A uvicorn server that leaves the signals to the node."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class RestServer:
    """Serves an application on one address.

    Args:
        app: The application, see `app.create_app`.
        host: Address to listen on.
        port: Port; 0 lets the system choose.
        tls: Certificate and key; None serves plain HTTP, for loopback or behind a proxy.

    Raises:
        Conflict: The address is taken or not this machine's.
    """

    def __init__(self, app: FastAPI, *, host: str, port: int, tls: RestTls | None = None) -> None:
        """Bind the address; nothing is answered before `run`."""
        try:
            self._socket = socket.create_server((host, port), backlog=128)
        except OSError as error:
            raise Conflict(f"REST interface: can't listen on {host}:{port}: {error.strerror}") from error
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
            ssl_certfile=tls.certificate_file if tls is not None else None,
            ssl_keyfile=tls.key_file if tls is not None else None,
        )
        self._server = _Server(config)
        self.url = f"{'https' if tls is not None else 'http'}://{host}:{self.port}"

    async def run(self) -> None:
        """Serve until cancelled.

        Cancellation: New connections are refused at once, requests under way get their time, then it ends.
        """
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        try:
            await asyncio.shield(serving)
        finally:
            self._server.should_exit = True
            await serving
            self.close()

    def close(self) -> None:
        """Give the address back; for a server that was bound and never ran."""
        self._socket.close()
