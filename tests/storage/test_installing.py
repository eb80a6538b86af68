"""Is a ledger that begins at a checkpoint a ledger like any other, and does it say what it never had?"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.core.errors import BeforeJoining, Conflict, InvalidCheckpoint, NotFound, Pruned, StorageDamaged
from ledger.core.joining import BlockHead
from ledger.core.names import BlockNumber, TxIndex, Verdict
from ledger.core.outcome import Outcome
from ledger.core.state import LedgerView, TxPlace, public_key
from ledger.storage.installing import Installation, installing_folder
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.ledger_values import StoredBlock
from tests.kit import proven
from tests.kit.joining import CHANNEL_ID, LATEST, honest_folder

CHK = proven.CHK
LIFE = proven.life()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerStore]:
    """A ledger that was there from the start."""
    folder = tmp_path_factory.mktemp("whole") / "peer"
    shutil.copytree(honest_folder(), folder)
    store = LedgerStore.open(folder / "data", CHANNEL_ID, chk=CHK)
    yield store
    store.close()


def install(whole: LedgerStore, data: Path, *, until: int | None = None, wrong: bool = False) -> Installation:
    """Put a ledger together from what another has, up to a block, or whole and finished."""
    roots = whole.roots(LATEST)
    assert roots is not None
    numbers = [one.number for one in whole.config_blocks() if one.number <= LATEST]
    made = Installation(data, roots.statement(CHANNEL_ID), numbers, chk=CHK)
    for number in map(BlockNumber, range(LATEST + 1)):
        if number == until:
            return made
        stored, summary = whole.stored_block(number), whole.summary(number)
        head = BlockHead(
            number, stored.header.previous_hash, stored.header.data_hash, len(stored.verdicts),
            stored.verdicts.count(0), summary.tx_root, stored.commit_hash,
        )  # fmt: skip
        is_whole = number in numbers or number == LATEST
        made.add_block(head, stored.leaves, stored.block() if is_whole else None)
    with whole.checkpoint_view(LATEST) as view:
        for count, (key, entry) in enumerate(view.entries()):
            made.add_entries([(key, entry._replace(value=b"wrong") if wrong and not count else entry)])
    made.finish()
    return made


@pytest.fixture
def joined(whole: LedgerStore, tmp_path: Path) -> Iterator[LedgerStore]:
    install(whole, tmp_path)
    store = LedgerStore.open(tmp_path, CHANNEL_ID, chk=CHK)
    yield store
    store.close()


def test_a_joined_ledger_says_the_same_of_every_block_id_and_entry(whole: LedgerStore, joined: LedgerStore) -> None:
    assert joined.height == LATEST + 1
    for number in map(BlockNumber, range(joined.height)):
        assert joined.summary(number) == whole.summary(number)
        assert joined.vblock(number).leaves == whole.vblock(number).leaves
        assert joined.vblock(number).header == whole.vblock(number).header
        assert joined.number_of(whole.summary(number).block_hash) == number
    assert joined.config_blocks() == whole.config_blocks()
    assert joined.roots(LATEST) == whole.roots(LATEST)
    with whole.checkpoint_view(LATEST) as there, joined.checkpoint_view(LATEST) as here:
        assert list(here.entries()) == list(there.entries())
    for tx_id in joined.iter_tx_ids():
        assert joined.places(tx_id) == tuple(place for place in whole.places(tx_id) if place.block <= LATEST)
    assert set(joined.iter_tx_ids()) == {
        tx_id for tx_id in whole.iter_tx_ids() if whole.places(tx_id)[0].block <= LATEST
    }


def test_it_judges_what_follows_as_the_others_do(whole: LedgerStore, joined: LedgerStore) -> None:
    """Goal: state, versions, expiries and used ids are all there.  Method: the next blocks, judged in its own state."""
    for outcome in LIFE.outcomes[LATEST + 1 :]:
        transition = LIFE.channel.transition
        prepared = transition.prepare(outcome.block, LIFE.channel.bundle)
        view = joined.staged_view()
        again = transition.judge(prepared, view, LIFE.channel.bundle)
        assert (again.verdicts, again.commit_hash) == (outcome.verdicts, outcome.commit_hash)
        joined.commit(again)
    assert joined.roots_now() == whole.roots_now()


def test_a_pruned_invalid_transaction_of_before_is_still_a_duplicate(joined: LedgerStore) -> None:
    """Field case P13: its body was never here, its id is."""
    old = LIFE.outcomes[10]
    index = TxIndex(old.verdicts.index(11))
    assert joined.places(old.tx_ids[index])[0] == TxPlace(BlockNumber(10), index, 11)
    channel = LIFE.channel
    block = channel.block(old.block.envelopes[index])
    prepared = channel.transition.prepare(block, channel.bundle)
    outcome = channel.transition.judge(prepared, joined.staged_view(), channel.bundle)
    assert Verdict(outcome.verdicts[0]) is Verdict.DUPLICATE_TXID


def test_blocks_below_are_answered_at_once_by_a_typed_error(joined: LedgerStore) -> None:
    assert (joined.joined_at, joined.first_block, joined.prune_point) == (LATEST, LATEST, LATEST - 1)
    assert joined.block_bytes(LATEST)
    for number in (0, 5, LATEST - 1):
        with pytest.raises(BeforeJoining) as caught:
            joined.block_bytes(BlockNumber(number))
        assert (caught.value.block, caught.value.first_block) == (number, LATEST)
        assert isinstance(caught.value, Pruned)
    with pytest.raises(NotFound):
        joined.block_bytes(BlockNumber(LATEST + 1))


def test_envelopes_below_are_typed_errors_that_name_the_verdict_valid_ones_too(joined: LedgerStore) -> None:
    for index, verdict in enumerate(LIFE.outcomes[5].verdicts):
        with pytest.raises(BeforeJoining) as caught:
            joined.envelope(TxPlace(BlockNumber(5), index, verdict))  # type: ignore[arg-type]
        assert (caught.value.block, caught.value.index, caught.value.verdict) == (5, index, verdict)
    at_checkpoint = LIFE.outcomes[LATEST].block.envelopes
    for index, verdict in enumerate(LIFE.outcomes[LATEST].verdicts):
        assert joined.envelope(TxPlace(LATEST, index, verdict)) == at_checkpoint[index]  # type: ignore[arg-type]


def test_a_vblock_below_does_not_look_whole(whole: LedgerStore, joined: LedgerStore) -> None:
    assert joined.vblock(BlockNumber(5)).lacks_envelopes
    assert joined.vblock(BlockNumber(5)).header.valid_count == whole.vblock(BlockNumber(5)).header.valid_count
    assert not joined.vblock(BlockNumber(6)).lacks_envelopes  # A config block.
    assert not joined.vblock(LATEST).lacks_envelopes
    assert not whole.vblock(BlockNumber(5)).lacks_envelopes


def test_config_blocks_are_served_whole(whole: LedgerStore, joined: LedgerStore) -> None:
    for one in joined.config_blocks():
        assert joined.config_block_bytes(one.number) == whole.config_block_bytes(one.number)
    assert joined.last_config(LATEST).number == 9


def test_no_history_is_given_rather_than_a_short_one(joined: LedgerStore) -> None:
    for outcome in LIFE.outcomes[LATEST + 1 :]:
        joined.commit(outcome)
    for key in ("last", "key13", "never written"):
        with pytest.raises(BeforeJoining) as caught:
            joined.history("asset", key)
        assert caught.value.first_block == LATEST + 1
    with pytest.raises(BeforeJoining):
        joined.collection_commits()


def test_it_can_be_pruned_and_opened_again(joined: LedgerStore, tmp_path: Path) -> None:
    for outcome in LIFE.outcomes[LATEST + 1 :]:
        joined.commit(outcome)
    joined.prune(BlockNumber(LATEST - 1), b"receipt")
    joined.close()
    again = LedgerStore.open(tmp_path, CHANNEL_ID, chk=CHK)
    assert (again.joined_at, again.prune_point, again.height) == (LATEST, LATEST - 1, proven.HEIGHT)
    assert again.view().get(public_key("asset", "last")) is not None
    again.close()


def test_a_lost_database_can_t_be_made_again_and_that_is_said(joined: LedgerStore, tmp_path: Path) -> None:
    """Goal: no half ledger, no wrong answer.  Method: the database is gone, the segments are not."""
    joined.close()
    shutil.rmtree(tmp_path / "channels" / CHANNEL_ID / "db")

    def rejudge(stored: StoredBlock, view: LedgerView) -> Outcome:
        assert stored.number == 0, "block 1 has no bodies"
        return LIFE.outcomes[0]

    for _ in range(2):  # The first try may have taken block 0 in.
        with pytest.raises(StorageDamaged, match=r"joined from a checkpoint.*join again"):
            store = LedgerStore.open(tmp_path, CHANNEL_ID, chk=CHK)
            try:
                store.recommit(rejudge)
            finally:
                store.close()


def test_nothing_is_installed_over_a_ledger(whole: LedgerStore, joined: LedgerStore, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="is there already"):
        install(whole, tmp_path)


def test_a_ledger_that_appears_meanwhile_is_left_alone(
    whole: LedgerStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a peer that was started too early keeps what it made.  Method: its folder appears before the rename."""
    target = tmp_path / "channels" / CHANNEL_ID
    close = Installation._close

    def close_late(installation: Installation) -> None:
        close(installation)
        (target / "kept").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(Installation, "_close", close_late)
    with pytest.raises(Conflict, match="meanwhile"):
        install(whole, tmp_path)
    assert [path.name for path in target.iterdir()] == ["kept"]


@pytest.mark.parametrize("until", [0, 1, 6, LATEST])
def test_what_a_killed_joiner_left_is_thrown_away(until: int, whole: LedgerStore, tmp_path: Path) -> None:
    """Goal: a half ledger is never opened.  Method: left as it is at any block, then done anew."""
    left = install(whole, tmp_path, until=until)
    left._files.close()
    left._engine.close()  # As the end of the process does; nothing is removed.
    folder = installing_folder(tmp_path / "channels" / CHANNEL_ID)
    assert folder.exists()
    assert not (tmp_path / "channels" / CHANNEL_ID).exists()
    install(whole, tmp_path)
    assert not folder.exists()
    store = LedgerStore.open(tmp_path, CHANNEL_ID, chk=CHK)
    assert store.roots(LATEST) == whole.roots(LATEST)
    store.close()


def test_a_state_that_is_not_the_signed_one_is_not_installed(whole: LedgerStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint) as caught:
        install(whole, tmp_path, wrong=True)
    assert caught.value.rule == "statement"
    assert list((tmp_path / "channels").iterdir()) == []
