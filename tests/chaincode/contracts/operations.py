"""The recorded chaincode's operations as a contract of the pool, as far as its stub reaches: no private data."""

import json
from typing import Any

from fabric_chaincode_python.fabric_contract_api import Contract, TransactionContext

OPEN_START = "\x01"
WRITTEN = {"touch": b"touched", "sweep": b""}


class OperationsContract(Contract):  # type: ignore[misc]  # The contract API carries no types.
    """`run` and `init`, see `tests.kit.operations`."""

    Name = "operations"

    async def init(self, ctx: TransactionContext) -> str:
        return "init"

    async def run(self, ctx: TransactionContext, operations: str) -> None:
        for operation in json.loads(operations):
            await self._step(ctx.get_stub(), operation)

    async def _step(self, stub: Any, operation: dict[str, Any]) -> None:
        parts = operation.get("c", ())
        key = stub.create_composite_key(parts[0], parts[1:]) if parts else operation.get("k", "")
        match operation["o"]:
            case "put":
                await stub.put_state(key, operation["v"])
            case "puts":
                for number in range(operation["n"]):
                    await stub.put_state(f"{key}{number:03d}", b"v")
            case "del":
                await stub.delete_state(key)
            case "get":
                await stub.get_state(key)
            case "mget":
                for each in operation["v"].split(","):
                    await stub.get_state(each)
            case "inc":
                await stub.put_state(key, await stub.get_state(key) + b"+")
            case "range":
                await self._iterate(stub, operation, await stub.get_state_by_range(key or OPEN_START, operation["e"]))
            case "crange":
                found = await stub.get_state_by_partial_composite_key(parts[0], parts[1:])
                await self._iterate(stub, operation, found)
            case "page":
                await stub.get_state_by_range_with_pagination(key, operation["e"], operation["n"], operation["v"])
            case "vp":
                await stub.set_state_validation_parameter(key, bytes.fromhex(operation.get("x", "")))
            case "event":
                stub.set_event(operation["e"], operation.get("v", ""))
            case "call":
                await stub.invoke_chaincode(operation["cc"], ["run", json.dumps(operation["ops"])])
            case "hist" | "status" | "batch" | "endbatch":
                pass
            case unknown:
                raise ValueError(f"unknown operation {unknown}")

    async def _iterate(self, stub: Any, operation: dict[str, Any], found: Any) -> None:
        wanted, written = operation.get("n", 0), WRITTEN.get(operation.get("v", ""))
        count = 0
        async for each in found:
            count += 1
            if written is not None:
                await stub.put_state(each.key, written)
            # The recorded shim fetches the next batch when the last result of one is taken, ours when it is missed.
            if wanted and count == wanted and count % 100:
                return
            if wanted and count > wanted:
                return
