"""How does a gRPC door open?  One grpc.aio server with TLS, the limits of Fabric's nodes, and tolerance for pings."""

from dataclasses import dataclass
from pathlib import Path

import grpc

from ledger.core.errors import Conflict

MESSAGE_BYTES_MAX = 100 * 2**20
"""Largest message both ways, as on Fabric's peers and orderers."""

OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """What a server shows and whom it asks for a certificate."""

    certificate: bytes
    """PEM."""

    key: bytes
    """PEM."""

    client_roots: bytes
    """Roots that a client's certificate must chain to, PEM, several in a row."""


def read_tls(certificate: Path, key: Path, roots: tuple[Path, ...]) -> ServerTls:
    """Read a server's TLS files."""
    return ServerTls(certificate.read_bytes(), key.read_bytes(), b"\n".join(root.read_bytes() for root in roots))


def make_server(address: str, tls: ServerTls) -> tuple[grpc.aio.Server, int]:
    """Make a server that asks clients for a certificate but takes those without; give it and its port.

    Services that need a certificate check for it themselves: Fabric's clients have none by default.

    Raises:
        Conflict: The address can't be listened on.
    """
    server = grpc.aio.server(options=list(OPTIONS), maximum_concurrent_rpcs=None)
    # grpc can't ask for a certificate without demanding it, so clients of Fabric's services come without one.
    credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)])
    return server, listen(server, address, credentials)


def make_mutual_server(address: str, tls: ServerTls) -> tuple[grpc.aio.Server, int]:
    """Make a server that demands a client certificate of one of the roots; give it and its port.

    Raises:
        Conflict: The address can't be listened on.
    """
    server = grpc.aio.server(options=list(OPTIONS))
    credentials = grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], root_certificates=tls.client_roots, require_client_auth=True
    )
    return server, listen(server, address, credentials)


def listen(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials) -> int:
    """Take the port of an address; give its number.

    Raises:
        Conflict: It is in use, or the address is none of this machine.
    """
    try:
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:  # All that grpc says of it.
        raise Conflict(f"gRPC: can't listen on {address}: is the port in use, or the host another machine?") from error
