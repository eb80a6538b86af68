"""The REST interface on a real port: served by uvicorn on loopback, asked over real connections."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from ledger.core.errors import Conflict
from ledger.interfaces.rest.app import create_app
from ledger.interfaces.rest.server import RestServer
from tests.kit.rest_node import CHANNEL, MemoryNode, make_node


@asynccontextmanager
async def served(node: MemoryNode) -> AsyncIterator[RestServer]:
    server = RestServer(create_app(node), host="127.0.0.1", port=0)
    running = asyncio.create_task(server.run())
    try:
        yield server
    finally:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_paths_are_answered_on_a_port_that_the_system_chose() -> None:
    node = make_node()
    async with served(node) as server, httpx2.AsyncClient(base_url=server.url) as client:
        assert server.port != 0
        info = (await client.get(f"/v1/channels/{CHANNEL}")).json()
        assert info["height"] == node.channel_view.ledger.height
        raw = await client.get(f"/v1/channels/{CHANNEL}/blocks/3", headers={"Accept": "application/octet-stream"})
        assert raw.content == node.channel_view.ledger.raw[3]
        assert "server" not in raw.headers


async def test_a_wait_over_a_real_connection_ends_with_the_commit() -> None:
    node = make_node()
    channel, ledger = node.channel_view, node.channel_view.ledger
    tx_id = ledger.ids[ledger.height - 1][0]
    ledger.height -= 1
    async with served(node) as server, httpx2.AsyncClient(base_url=server.url, timeout=20) as client:
        asked = asyncio.create_task(client.get(f"/v1/channels/{CHANNEL}/transactions/{tx_id}?wait_ms=15000"))
        await asyncio.sleep(0.1)
        assert not asked.done()
        ledger.height += 1
        channel.committed.set()
        answer = await asyncio.wait_for(asked, 5)
    assert answer.json()["block"] == ledger.height - 1


async def test_a_server_that_ends_does_not_wait_for_those_who_wait() -> None:
    node = make_node()
    client = httpx2.AsyncClient(timeout=20)
    async with served(node) as server:
        url = f"{server.url}/v1/channels/{CHANNEL}/transactions/{'0' * 64}?wait_ms=20000"
        asked = asyncio.create_task(client.get(url))
        await asyncio.sleep(0.2)
        started = time.monotonic()
    assert time.monotonic() - started < 10
    answer = await asyncio.gather(asked, return_exceptions=True)
    assert isinstance(answer[0], httpx2.TransportError) or answer[0].status_code >= 500  # type: ignore[union-attr]
    await client.aclose()


async def test_a_body_that_never_arrives_does_not_hold_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.interfaces.rest.door.BODY_TIMEOUT_MS", 200)
    async with served(make_node()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"POST /v1/channels/{CHANNEL}/prune HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        writer.write(head.encode() + b"Content-Length: 9\r\nConnection: close\r\n\r\n{")
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
    problem = json.loads(answer.split(b"\r\n\r\n", 1)[1])
    assert (problem["status"], problem["rule"]) == (400, "time")


def test_a_port_that_is_taken_is_an_error_at_the_start() -> None:
    server = RestServer(create_app(make_node()), host="127.0.0.1", port=0)
    with pytest.raises(Conflict, match="can't listen"):
        RestServer(create_app(make_node()), host="127.0.0.1", port=server.port)
    server.close()
