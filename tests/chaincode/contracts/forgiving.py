"""A contract that goes on whatever its stub refuses."""

from fabric_chaincode_python.fabric_contract_api import Contract, TransactionContext


class ForgivingContract(Contract):  # type: ignore[misc]  # The contract API carries no types.
    """Asks for a history, and takes none for an answer."""

    Name = "forgiving"

    async def count_changes(self, ctx: TransactionContext, key: str) -> int:
        try:
            return len([change async for change in await ctx.get_stub().get_history_for_key(key)])
        except Exception:  # noqa: BLE001  # That is its trouble.
            return 0
