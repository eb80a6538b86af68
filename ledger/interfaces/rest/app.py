"""How do the paths of the REST interface come together?  `create_app` builds the application over one node."""

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from ledger.interfaces.rest.ports import NodeView


def create_app(node: NodeView, *, registry: CollectorRegistry | None = None, read_timeout_ms: int = 5_000) -> FastAPI:
    """Build the application.

    Args:
        node: What answers.
        registry: Metrics shown under `/metrics`; None shows the process's own.
        read_timeout_ms: How long one request may read the ledger before it is answered with "busy".

    Returns:
        An ASGI application for uvicorn.
    """
    raise NotImplementedError
