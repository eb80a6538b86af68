"""A contract for endorsement tests: blind writes, conflicting ones, events, failures, chance, and calls of others."""

import os

from fabric_chaincode_python.fabric_contract_api import Contract, TransactionContext


class TrialContract(Contract):  # type: ignore[misc]  # The contract API carries no types.
    """Each function is one thing that endorsers and gateways must get right."""

    Name = "trial"

    async def put(self, ctx: TransactionContext, key: str, value: str) -> str:
        """Write without reading."""
        await ctx.get_stub().put_state(key, value)
        return f"put {key}"

    async def get(self, ctx: TransactionContext, key: str) -> str:
        """Read without writing."""
        return str((await ctx.get_stub().get_state(key) or b"nothing").decode())

    async def bump(self, ctx: TransactionContext, key: str) -> str:
        """Read and write: two of these on one state conflict."""
        stub = ctx.get_stub()
        count = int(await stub.get_state(key) or b"0") + 1
        await stub.put_state(key, str(count))
        return str(count)

    async def announce(self, ctx: TransactionContext, key: str, event: str) -> str:
        """Write and set an event, whose payload is the key."""
        ctx.get_stub().set_event(event, key)
        return await self.put(ctx, key, event)

    async def fail(self, ctx: TransactionContext, text: str) -> None:
        """Write, set an event and fail."""
        await ctx.get_stub().put_state("failed", "never")
        ctx.get_stub().set_event("never", "never")
        raise ValueError(text)

    async def chance(self, ctx: TransactionContext) -> None:
        """Write something else on each peer."""
        await ctx.get_stub().put_state("chance", os.urandom(8))

    async def secret(self, ctx: TransactionContext) -> str:
        """Give the transient data back."""
        return str(ctx.get_stub().get_transient()["secret"].decode())

    async def through(self, ctx: TransactionContext, chaincode: str, key: str, value: str) -> str:
        """Write here, and in the namespace of another chaincode."""
        await self.put(ctx, key, value)
        response = await ctx.get_stub().invoke_chaincode(chaincode, ["put", key, value])
        return str(response.payload.decode())
