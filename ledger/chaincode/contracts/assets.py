"""A sample contract: assets with an owner and a value, to create, read, update, transfer, delete and look up.

Copy it to begin your own. Every public method is a function that clients call by its Python name, with text arguments
that are converted to the annotated types; `ctx` must be annotated. What a function returns goes to the client as JSON.
What it raises fails the transaction, with the text as the client's message.

Two peers must come to the same result, so a contract never asks a clock, a random number or the network: time is
`stub.get_tx_timestamp()`. A read gives what was committed before the transaction, never its own writes.
"""

import json
from typing import Any

from fabric_chaincode_python.fabric_contract_api import Contract, TransactionContext

Asset = dict[str, Any]


class AssetError(Exception):
    """A request that the contract refuses."""


class AssetContract(Contract):  # type: ignore[misc]  # The contract API carries no types.
    """Assets by id: `{"id", "owner", "value"}`."""

    Name = "assets"

    async def create(self, ctx: TransactionContext, asset_id: str, owner: str, value: int) -> Asset:
        """Create an asset and announce it as event `created`."""
        if not asset_id or not owner:
            raise AssetError("an asset needs an id and an owner")
        if await self.exists(ctx, asset_id):
            raise AssetError(f"asset {asset_id} exists already")
        asset = await self._put(ctx, {"id": asset_id, "owner": owner, "value": value})
        ctx.get_stub().set_event("created", json.dumps(asset))
        return asset

    async def read(self, ctx: TransactionContext, asset_id: str) -> Asset:
        """Return an asset."""
        state = await ctx.get_stub().get_state(asset_id)
        if not state:
            raise AssetError(f"asset {asset_id} does not exist")
        asset: Asset = json.loads(state)
        return asset

    async def exists(self, ctx: TransactionContext, asset_id: str) -> bool:
        """Tell whether there is an asset of this id."""
        return bool(await ctx.get_stub().get_state(asset_id))

    async def update(self, ctx: TransactionContext, asset_id: str, value: int) -> Asset:
        """Give an asset another value."""
        return await self._put(ctx, await self.read(ctx, asset_id) | {"value": value})

    async def transfer(self, ctx: TransactionContext, asset_id: str, new_owner: str) -> Asset:
        """Give an asset to another owner and announce it as event `transferred`."""
        if not new_owner:
            raise AssetError("a transfer needs a new owner")
        before = await self.read(ctx, asset_id)
        asset = await self._put(ctx, before | {"owner": new_owner})
        ctx.get_stub().set_event("transferred", json.dumps({"id": asset_id, "from": before["owner"], "to": new_owner}))
        return asset

    async def delete(self, ctx: TransactionContext, asset_id: str) -> None:
        """Delete an asset."""
        await self.read(ctx, asset_id)
        await ctx.get_stub().delete_state(asset_id)

    async def range(self, ctx: TransactionContext, first_id: str, end_id: str) -> list[Asset]:
        """Return the assets with `first_id <= id < end_id`; "" leaves a border open."""
        found = await ctx.get_stub().get_state_by_range(first_id, end_id)
        return [json.loads(each.value) async for each in found]

    async def page(
        self, ctx: TransactionContext, first_id: str, end_id: str, page_size: int, bookmark: str
    ) -> dict[str, Any]:
        """Return one page of a range and the bookmark of the next; for evaluating, not for submitting."""
        stub = ctx.get_stub()
        found = await stub.get_state_by_range_with_pagination(first_id, end_id, page_size, bookmark)
        return {"assets": [json.loads(each.value) async for each in found], "bookmark": found.bookmark}

    async def history(self, ctx: TransactionContext, asset_id: str) -> list[dict[str, Any]]:
        """Return what an asset was after each change, newest first; `asset` is null where it was deleted."""
        changes = await ctx.get_stub().get_history_for_key(asset_id)
        return [
            {
                "tx_id": change.tx_id,
                "time": change.timestamp.ToJsonString(),
                "asset": None if change.is_delete else json.loads(change.value),
            }
            async for change in changes
        ]

    async def _put(self, ctx: TransactionContext, asset: Asset) -> Asset:
        await ctx.get_stub().put_state(asset["id"], json.dumps(asset, sort_keys=True))
        return asset
