"""Is the process alive, is it useful, and what do its metrics say?

Alive and useful are two questions: a peer whose orderer is gone, whose committer is stuck or whose disk fails is alive,
and not useful. Load balancers ask `/readyz`, supervisors `/healthz`. Neither reads the disk nor waits for anything that
does.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ledger.interfaces.rest import models
from ledger.interfaces.rest.ports import ComponentHealth, NodeView

router = APIRouter(tags=["health"])

READY_TIMEOUT_MS = 2_000
"""How long the parts of the node may take to say how they are; then the node is not ready, and says so."""


class HealthDesk:
    """Asks the node how its parts are, on one thread of its own, so that reads that hang don't hide it."""

    def __init__(self, node: NodeView) -> None:
        """Stand beside a node."""
        self._node = node
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rest-health")

    async def components(self) -> list[ComponentHealth]:
        """Ask every part; a node that does not answer in time is a part that is not ready."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_MS / 1000):
                loop = asyncio.get_running_loop()
                return list(await loop.run_in_executor(self._thread, self._node.components))
        except TimeoutError:
            return [ComponentHealth("node", ready=False, reason=f"its parts did not answer in {READY_TIMEOUT_MS} ms")]

    def close(self) -> None:
        """Take no more questions."""
        self._thread.shutdown(wait=False, cancel_futures=True)


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> models.HealthAnswer:
    """Answers as long as the process runs; it says nothing about usefulness."""
    return models.HealthAnswer(status="alive")


@router.get(
    "/readyz",
    summary="Is the node useful?",
    responses={503: {"model": models.ReadyAnswer, "description": "At least one part is not ready"}},
)
async def readyz(request: Request, response: Response) -> models.ReadyAnswer:
    """Every part of the node, and why it is not ready where it isn't. A quiet network stays ready."""
    desk: HealthDesk = request.app.state.health
    components = await desk.components()
    ready = all(component.ready for component in components)
    response.status_code = 200 if ready else 503
    return models.ReadyAnswer(
        ready=ready,
        components=[models.ComponentAnswer(name=one.name, ready=one.ready, reason=one.reason) for one in components],
    )


@router.get(
    "/metrics",
    summary="Metrics in Prometheus' text format",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def show_metrics(request: Request) -> Response:
    """Every metric of this node; all names begin with `peerledger_`."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)
