"""How does a client reach a node?  A gRPC channel over TLS with the limits of Fabric's nodes."""

from dataclasses import dataclass

import grpc

MESSAGE_BYTES_MAX = 100 * 2**20
"""Largest message both ways."""

OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Whom a client trusts, and what it shows where it is asked."""

    roots: bytes
    """Root certificates, PEM, several in a row."""

    certificate: bytes | None = None
    key: bytes | None = None
    server_name: str | None = None
    """Name to expect in the server's certificate instead of the host in its address."""


def open_channel(address: str, tls: ClientTls | None) -> grpc.aio.Channel:
    """Open a channel to `host:port`; without TLS for tests and loopback only."""
    options = list(OPTIONS)
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    if tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))  # type: ignore[arg-type]
    credentials = grpc.ssl_channel_credentials(tls.roots, tls.key, tls.certificate)
    return grpc.aio.secure_channel(address, credentials, options=options)
