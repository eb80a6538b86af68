"""What does a verification say of a ledger that was joined, and does it find what is wrong with one?"""

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.core.checkpoint_proof import Scope
from ledger.core.names import BlockNumber, TxId
from ledger.core.state import public_key
from ledger.node.verify import VerifyReport, verify
from ledger.node.verify_joined import NEVER_HERE, NO_STATE_BEFORE, NO_STATE_KEPT
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.engine import Engine
from ledger.storage.engine_leveldb import LevelDbEngine
from ledger.storage.keys import entry_of, entry_value, id_key, state_key
from ledger.storage.ledger_store import LedgerStore
from tests.kit import proven
from tests.kit.joining import CHANNEL_ID, LATEST, Seller, honest_proof, join

TRANSACTIONS = sum(len(outcome.verdicts) for outcome in proven.life().outcomes)


async def joined(directory: Path, at: int = LATEST) -> LedgerStore:
    """A ledger that was joined at a checkpoint and has followed since."""
    async with Seller(directory / "source").open() as seller:
        seller.offer(at)
        await join(directory / "new", seller)
    store = LedgerStore.open(directory / "new/data", CHANNEL_ID, chk=proven.CHK)
    store.commit_group(proven.life().outcomes[at + 1 :])
    return store


def verified(directory: Path) -> VerifyReport:
    return verify(directory / "new/data", directory / "new/genesis.block", lambda *_: None)


def failures(report: VerifyReport) -> dict[str, str | None]:
    return {name: level.first_failure for name, level in report.levels.items() if not level.ok}


async def test_a_joined_ledger_is_in_order_and_says_what_could_not_be_checked(tmp_path: Path) -> None:
    store = await joined(tmp_path)
    expected = store.roots_now().state_hash.hex()
    store.close()
    report = verified(tmp_path)
    assert failures(report) == {}
    assert (report.height, report.checkpoint, report.state_hash) == (proven.HEIGHT, LATEST, expected)
    assert report.signers == ("Org2MSP peer0", "Org3MSP peer0")
    above = sum(len(outcome.verdicts) for outcome in proven.life().outcomes[LATEST + 1 :])
    signatures = report.levels["signatures"]
    assert signatures.checked == above + len(proven.CONFIG_BLOCKS) + 1  # The genesis block is one of them.
    assert signatures.checked + signatures.not_checked == TRANSACTIONS
    assert set(signatures.reasons) == {NEVER_HERE, NO_STATE_BEFORE}
    assert (report.levels["state"].checked, report.levels["state"].not_checked) == (2, 13)
    assert report.levels["checkpoint"].checked == 1


async def test_the_newest_kept_state_is_where_judging_begins(tmp_path: Path) -> None:
    """Goal: later checkpoints release the one of the joining.  Method: joined at 8, then 12 becomes valid."""
    store = await joined(tmp_path, 8)
    statement = store.compute_checkpoint(LATEST).statement(CHANNEL_ID)
    with CheckpointStore(store.records_directory, CHANNEL_ID) as records:
        records.record_valid(honest_proof(statement, proven.life().signers[12]), Scope.FULL)
    store.keep_checkpoint(LATEST)
    store.release(BlockNumber(8))
    store.close()
    report = verified(tmp_path)
    assert failures(report) == {}
    assert (report.levels["state"].checked, report.levels["state"].not_checked) == (2, 13)
    assert report.levels["checkpoint"].not_checked == 1  # Of the proof of 8 the state is not here any more.


async def test_without_a_kept_state_nothing_is_judged_and_it_says_so(tmp_path: Path) -> None:
    store = await joined(tmp_path)
    store.release(LATEST)
    store.close()
    report = verified(tmp_path)
    assert failures(report) == {}
    assert report.levels["state"].checked == 0
    assert NO_STATE_KEPT in report.levels["state"].reasons


def change_new_value(engine: Engine) -> None:
    key = state_key(public_key("asset", "last"))
    raw = engine.get(key)
    assert raw is not None
    put(engine, key, entry_value(entry_of(raw)._replace(value=b"another")))


def forget_id(engine: Engine) -> None:
    batch = engine.batch()
    batch.delete(id_key(TxId(proven.life().id_of(2, 11))))
    batch.write()


def put(engine: Engine, key: bytes, value: bytes) -> None:
    batch = engine.batch()
    batch.put(key, value)
    batch.write()


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        (change_new_value, "state", "key last of asset"),
        (forget_id, "state", "not in the database"),
    ],
)
async def test_what_was_changed_since_is_found(
    change: Callable[[Engine], None], level: str, words: str, tmp_path: Path
) -> None:
    (await joined(tmp_path)).close()
    engine = LevelDbEngine(tmp_path / "new/data/channels/testchannel/db")
    change(engine)
    engine.close()
    found = failures(verified(tmp_path))
    assert words in (found[level] or ""), found


async def test_a_state_that_was_false_from_the_joining_on_is_not_the_signed_one(tmp_path: Path) -> None:
    """Goal: the base is believed only because it was signed.  Method: a value that no later block touched."""
    store = await joined(tmp_path)
    untouched = [key for key, entry in store.iter_state() if key.namespace == "asset" and entry.version.block < LATEST]
    store.close()
    engine = LevelDbEngine(tmp_path / "new/data/channels/testchannel/db")
    raw = engine.get(state_key(untouched[0]))
    assert raw is not None
    put(engine, state_key(untouched[0]), entry_value(entry_of(raw)._replace(value=b"another")))
    engine.close()
    found = failures(verified(tmp_path))
    assert "state hash" in (found["checkpoint"] or ""), found


async def test_a_changed_leaf_is_found(tmp_path: Path) -> None:
    (await joined(tmp_path)).close()
    (path,) = (tmp_path / "new/data/channels/testchannel/kept").iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(bytes(content))
    assert "structure" in failures(verified(tmp_path))


async def test_another_genesis_block_is_refused(tmp_path: Path) -> None:
    from ledger.core.errors import InvalidBlock
    from ledger.wire.block import encode_block
    from tests.kit.channel import Channel

    (await joined(tmp_path)).close()
    (tmp_path / "new/genesis.block").write_bytes(encode_block(Channel().genesis))
    with pytest.raises(InvalidBlock, match="genesis block"):
        verified(tmp_path)
