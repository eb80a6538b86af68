"""Does a peer that joined from a checkpoint endorse what it can't know?  History that it does not have whole."""

import shutil
from pathlib import Path

import pytest

from ledger.chaincode.history import LedgerHistory
from ledger.chaincode.pool import ContractPool
from ledger.chaincode.simulator import Simulator
from ledger.core.errors import ExecutionFailed
from ledger.storage.ledger_store import LedgerStore
from tests.kit import proven
from tests.kit.joining import CHANNEL_ID, Seller, honest_folder, join, joined_store
from tests.kit.paths import ROOT
from tests.kit.simulations import make_proposal


async def test_no_contract_can_answer_from_a_history_that_is_not_whole(tmp_path: Path) -> None:
    """Goal: endorsements never differ silently between peers.

    Method: a contract that catches whatever the stub raises. A peer that was there from the start gives the count; on
    one that joined the simulation fails, whatever the contract makes of it, and says why.
    """
    async with Seller(tmp_path / "a").open() as seller:
        await join(tmp_path / "new", seller)
    shutil.copytree(honest_folder(), tmp_path / "whole")
    whole = LedgerStore.open(tmp_path / "whole/data", CHANNEL_ID, chk=proven.CHK)
    joined = joined_store(tmp_path / "new")
    pool = ContractPool(
        {"asset": "tests.chaincode.contracts.forgiving:ForgivingContract"},
        workers=1,
        memory_bytes_max=512 << 20,
        search_path=(str(ROOT),),
    )
    pool.start()
    proposal = make_proposal("count_changes", "last")
    try:
        there = Simulator(whole.view(), LedgerHistory(whole, whole.height))
        assert int(pool.execute("asset", proposal, there, lambda _: None).payload) > 5
        here = Simulator(joined.view(), LedgerHistory(joined, joined.height))
        with pytest.raises(ExecutionFailed, match="has it from block 13 on"):
            pool.execute("asset", proposal, here, lambda _: None)
        again = Simulator(whole.view(), LedgerHistory(whole, whole.height))
        assert int(pool.execute("asset", proposal, again, lambda _: None).payload) > 5  # The worker is usable.
    finally:
        pool.close()
        whole.close()
        joined.close()
