"""How do the paths of the REST interface come together?  `create_app` builds the application over one node."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from ledger.interfaces.rest import backups, blocks, checkpoints, docs, health, models, proofs, state, transactions
from ledger.interfaces.rest.door import Door, add_handlers
from ledger.interfaces.rest.health import HealthDesk
from ledger.interfaces.rest.ports import NodeView
from ledger.interfaces.rest.reads import Reads
from ledger.telemetry.metrics import Metrics

VERSION = "1"
"""Version of the interface: the number in its paths."""

DESCRIPTION = (
    "What a peer of PeerLedger answers over HTTP: blocks, vBlocks, transactions and their verdicts, state, history, "
    "checkpoints with their proofs, pruning, health. Errors are problem documents (RFC 9457)."
)


def create_app(node: NodeView, *, metrics: Metrics | None = None, read_timeout_ms: int = 5_000) -> FastAPI:
    """Build the application.

    Args:
        node: What answers.
        metrics: Shown under `/metrics`; requests are counted in it. None makes a set of its own.
        read_timeout_ms: How long one request may read the ledger before it is answered with "busy".

    Returns:
        An ASGI application for uvicorn. Its threads end with its lifespan.
    """
    reads = Reads(timeout_ms=read_timeout_ms)
    desk = HealthDesk(node)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            reads.close()
            desk.close()

    app = FastAPI(
        title="PeerLedger",
        version=VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.node = node
    app.state.reads = reads
    app.state.health = desk
    app.state.metrics = metrics if metrics is not None else Metrics()
    for module in (blocks, transactions, state, checkpoints, backups, proofs, health, docs):
        app.include_router(module.router)
    add_handlers(app)
    app.add_middleware(Door, metrics=app.state.metrics)
    app.openapi = lambda: openapi_of(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend it.
    return app


def openapi_of(app: FastAPI) -> dict[str, Any]:
    """Write the OpenAPI document, once; the model of problems is added by hand, being no answer of its own."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schema = models.ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = document["components"]["schemas"]
        schemas.update(schema.pop("$defs", {}))
        schemas["ProblemDocument"] = schema
        app.openapi_schema = document
    return app.openapi_schema
