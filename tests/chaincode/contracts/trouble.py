"""A contract that does what contracts should not do, and what the stub offers beyond the sample."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from fabric_chaincode_python.fabric_contract_api import Contract, TransactionContext


class TroubleContract(Contract):  # type: ignore[misc]  # The contract API carries no types.
    """Each function is one kind of trouble."""

    Name = "trouble"

    async def hang(self, ctx: TransactionContext) -> None:
        while True:
            pause(10)

    async def hang_in_requests(self, ctx: TransactionContext) -> None:
        while True:
            await ctx.get_stub().get_state("k")

    async def crash(self, ctx: TransactionContext) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def exit(self, ctx: TransactionContext) -> None:
        sys.exit(0)

    async def eat(self, ctx: TransactionContext, megabytes: int) -> int:
        return len(bytearray(megabytes << 20))

    async def fail(self, ctx: TransactionContext) -> None:
        await ctx.get_stub().put_state("k", b"v")
        raise ValueError("no luck today")

    async def sleep(self, ctx: TransactionContext, milliseconds: int) -> int:
        pause(milliseconds)
        return os.getpid()

    async def wait(self, ctx: TransactionContext) -> str:
        await asyncio.sleep(0.01)
        return "waited"

    async def write_and_read(self, ctx: TransactionContext, key: str, value: str) -> str:
        stub = ctx.get_stub()
        await stub.put_state(key, value)
        return str((await stub.get_state(key)).decode())

    async def surroundings(self, ctx: TransactionContext) -> dict[str, Any]:
        return surroundings()

    async def who(self, ctx: TransactionContext) -> dict[str, Any]:
        stub = ctx.get_stub()
        return {
            "creator": ctx.get_client_identity().get_mspid(),
            "channel": stub.get_channel_id(),
            "tx_id": stub.get_txid(),
            "time": stub.get_tx_timestamp().ToJsonString(),
            "transient": {name: value.decode() for name, value in stub.get_transient().items()},
        }

    async def announce(self, ctx: TransactionContext, name: str, payload: str) -> None:
        ctx.get_stub().set_event(name, payload)

    async def announce_and_fail(self, ctx: TransactionContext) -> None:
        ctx.get_stub().set_event("never", b"")
        raise ValueError("after the event")

    async def keys(self, ctx: TransactionContext, start: str, end: str) -> list[str]:
        return [each.key async for each in await ctx.get_stub().get_state_by_range(start, end)]

    async def first_key(self, ctx: TransactionContext, start: str, end: str) -> str:
        found = await ctx.get_stub().get_state_by_range(start, end)
        async for each in found:
            await found.aclose()
            return str(each.key)
        return ""

    async def page_then_write(self, ctx: TransactionContext) -> None:
        await ctx.get_stub().get_state_by_range_with_pagination("", "", 3)
        await ctx.get_stub().put_state("k", b"v")

    async def write_then_page(self, ctx: TransactionContext) -> None:
        await ctx.get_stub().put_state("k", b"v")
        await ctx.get_stub().get_state_by_range_with_pagination("", "", 3)

    async def composite(self, ctx: TransactionContext, color: str, name: str) -> list[list[str]]:
        stub = ctx.get_stub()
        await stub.put_state(stub.create_composite_key("color", [color, name]), b"\x01")
        found = await stub.get_state_by_partial_composite_key("color", [color])
        return [stub.split_composite_key(each.key)[1] async for each in found]

    async def composite_page(self, ctx: TransactionContext, page_size: int, bookmark: str) -> dict[str, Any]:
        stub = ctx.get_stub()
        found = await stub.get_state_by_partial_composite_key_with_pagination("color", [], page_size, bookmark)
        return {"keys": [each.key async for each in found], "bookmark": found.bookmark}

    async def parameter(self, ctx: TransactionContext, key: str, policy: str) -> str:
        stub = ctx.get_stub()
        before = await stub.get_state_validation_parameter(key)
        await stub.set_state_validation_parameter(key, policy.encode())
        return str(before.decode())

    async def private(self, ctx: TransactionContext) -> None:
        await ctx.get_stub().get_private_data("collection", "key")

    async def call(self, ctx: TransactionContext, name: str, arguments: list[str]) -> dict[str, Any]:
        """Write, have another contract called, announce."""
        stub = ctx.get_stub()
        await stub.put_state("caller", b"1")
        response = await stub.invoke_chaincode(name, arguments)
        stub.set_event("called", name)
        return {"status": response.status, "message": response.message, "payload": response.payload.decode()}

    async def page_in_another(self, ctx: TransactionContext, name: str) -> str:
        """Call a contract that pages, after a write of one's own; swallow the refusal."""
        stub = ctx.get_stub()
        await stub.put_state("caller", b"1")
        response = await stub.invoke_chaincode(name, ["page", "", "", "3", ""])
        return json.dumps({"status": response.status, "message": response.message})

    async def print_much(self, ctx: TransactionContext) -> None:
        print("a contract prints", "x" * 10)


def pause(milliseconds: int) -> None:
    time.sleep(milliseconds / 1000)


def surroundings() -> dict[str, Any]:
    return {
        "environment": dict(os.environ),
        "arguments": Path("/proc/self/cmdline").read_bytes().decode().split("\0"),
        "descriptors": {path.name: target(path) for path in Path("/proc/self/fd").iterdir()},
        "folder": str(Path.cwd()),
        "order": list({"one", "two", "three", "four"}),
    }


def target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return "closed"
