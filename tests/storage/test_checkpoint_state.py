"""The state at a checkpoint is what it was while the ledger goes on, and it costs what changed, not what there is."""

import random
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from ledger.core.block import Block, Header
from ledger.core.checkpoint import CheckpointRoots
from ledger.core.encoding import lp, u64
from ledger.core.errors import NotFound, StorageFailed
from ledger.core.hashing import header_hash
from ledger.core.merkle import leaf_hash, tree_hash
from ledger.core.names import NEVER, BlockNumber, ChannelId, TxId, TxIndex
from ledger.core.outcome import Outcome
from ledger.core.rwset import CollectionSet, HashedWrite, NamespaceSet, ReadWriteSet, Write
from ledger.core.state import HASHED, Entry, StateKey, Version, hashed_key, public_key
from ledger.core.state_tree import slow_root, verify_absence, verify_presence
from ledger.storage.checkpoint_state import RETAINED_ALL, CheckpointState, CheckpointStateView, is_retained
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.ledger_values import CheckpointWork
from tests.kit.channel import CHANNEL, Channel, TestCollection, definition_fields, definition_writes
from tests.kit.memory_view import MemoryLedger
from tests.kit.outcomes import State, judged
from tests.kit.stores import Databases

CHK = 4
LIFE = 3
"""Blocks that a value of the collection `short` lives behind the block that wrote it."""


class Ledger:
    """A channel whose blocks are judged by the real rules, with its store; and the state after each block."""

    def __init__(self, directory: Path, *, chk: int = CHK) -> None:
        self.channel = Channel()
        self.store = LedgerStore.open(directory, ChannelId(CHANNEL), chk=chk)
        self.states: list[State] = []
        empty = MemoryLedger()
        prepared = self.channel.transition.prepare(self.channel.genesis, self.channel.bundle)
        self._take(self.channel.transition.judge(prepared, empty, self.channel.bundle))

    def define(self) -> None:
        """Commit the definition with its two collections."""
        fields = definition_fields(collections=[TestCollection("short", LIFE), TestCollection("long")])
        self.commit(definition_writes("asset", fields), chaincode="_lifecycle")

    def commit(self, *sets: ReadWriteSet, chaincode: str = "asset") -> None:
        """Commit a block with one valid transaction for each set."""
        outcome = self.channel.commit(*(self.channel.draft(each, chaincode) for each in sets))
        assert not any(outcome.verdicts), outcome.faults
        self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        self.store.commit(outcome)
        self.states.append(dict(self.channel.ledger.state))
        assert outcome.block.number == len(self.states) - 1

    def vblock_hashes(self, number: int) -> list[bytes]:
        return [self.store.summary(BlockNumber(each)).vblock_hash for each in range(number + 1)]


def public(*pairs: tuple[str, bytes]) -> NamespaceSet:
    """Writes of public keys; an empty value deletes."""
    return NamespaceSet("asset", writes=tuple(Write(key, value, is_delete=not value) for key, value in pairs))


def private(collection: str, *pairs: tuple[str, bytes]) -> NamespaceSet:
    """Writes of hashed private keys; an empty value deletes."""
    hashes = [
        HashedWrite(sha256(key.encode()).digest(), sha256(value).digest() if value else b"", is_delete=not value)
        for key, value in pairs
    ]
    return NamespaceSet("asset", collections=(CollectionSet(collection, writes=tuple(hashes)),))


def short(key: str) -> StateKey:
    return hashed_key("asset", "short", sha256(key.encode()).digest())


def one_set(*namespaces: NamespaceSet) -> ReadWriteSet:
    """Several parts of the one namespace as a set."""
    writes = tuple(write for each in namespaces for write in each.writes)
    collections = tuple(part for each in namespaces for part in each.collections)
    return ReadWriteSet((NamespaceSet("asset", writes=writes, collections=collections),))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "data")
    yield made
    made.store.close()


def read_as_a_joiner(view: CheckpointStateView) -> State:
    """Take every entry in chunks, as they are sent, and see that none comes twice and that they are in order."""
    pairs = list(view.entries())
    keys = [key for key, _ in pairs]
    assert len(set(keys)) == len(keys)
    return dict(pairs)


def assert_state_hash(roots: CheckpointRoots, state: State, config_number: int, config_envelope: bytes) -> None:
    """Recompute what the statement says of the state from plain entries, by the definition."""
    root = slow_root(state)
    expected = sha256(lp("peerledger/state/v1") + root + u64(config_number) + sha256(config_envelope).digest()).digest()
    assert roots.state_root == root
    assert roots.state_hash == expected


def assert_proofs(view: CheckpointStateView, state: State, absent: Sequence[StateKey]) -> None:
    """Every entry is proved present, and each of some keys absent, against the root."""
    for key, entry in state.items():
        verify_presence(view.roots.state_root, key, entry, view.prove(key))
        assert view.get(key) == entry
    for key in absent:
        verify_absence(view.roots.state_root, key, view.prove(key))
        assert view.get(key) is None


# The state at a checkpoint, behind three intervals that change it.


def test_checkpointed_state_is_served_behind_three_intervals_that_overwrite_delete_and_expire(ledger: Ledger) -> None:
    """Goal: a joiner gets the state at block 8 whole when the ledger is at block 20.

    Method: three more intervals overwrite, delete, let expire and write again; then the entries are read as a joiner
    reads them, compared with what the rules said at that block, and hashed by the slow twin.
    """
    ledger.define()
    ledger.commit(one_set(public(*((f"key{each:03}", b"first") for each in range(300)))))
    ledger.commit(one_set(private("long", *((f"secret{each}", b"first") for each in range(50)))))
    ledger.commit(one_set(public(("key000", b"second"), ("key001", b""))))
    ledger.store.compute_checkpoint(BlockNumber(4))
    ledger.commit(one_set(public(("left", b"alone"))))
    ledger.commit(one_set(private("short", ("dies at 10", b"x"), ("written again", b"x"), ("deleted", b"x"))))
    ledger.commit(one_set(private("short", ("dies at 11", b"x"))))
    ledger.commit(one_set(public(("key002", b"second")), private("short", ("dies at 12", b"x"))))
    at_8 = ledger.store.compute_checkpoint(BlockNumber(8))
    ledger.store.keep_checkpoint(BlockNumber(8))
    expected = ledger.states[8]
    assert {short("dies at 10"), short("dies at 11"), short("dies at 12"), short("written again")} <= expected.keys()

    later = change_everything_in_three_intervals(ledger)

    assert len(ledger.states) == 21
    live = ledger.states[20]
    assert not {short("dies at 10"), short("dies at 11"), short("dies at 12"), short("deleted")} & live.keys()
    assert short("written again") in live
    with ledger.store.checkpoint_view(BlockNumber(8)) as view:
        assert view.roots == at_8
        state = read_as_a_joiner(view)
        assert state == expected
        assert_state_hash(at_8, state, 0, ledger.channel.genesis.envelopes[0])
        assert_proofs(view, state, [key for key in live if key not in expected])
    assert at_8.vledger_root == tree_hash([leaf_hash(each) for each in ledger.vblock_hashes(8)])
    for roots in later:
        assert_state_hash(roots, ledger.states[roots.number], 0, ledger.channel.genesis.envelopes[0])


def change_everything_in_three_intervals(ledger: Ledger) -> list[CheckpointRoots]:
    """Blocks 9 to 20: overwrite, delete, expire, write again; compute the checkpoints 12, 16 and 20."""
    computed = []
    for number in range(9, 21):
        parts = [
            public(*((f"key{each:03}", b"at %d" % number) for each in range(number * 7, number * 7 + 20))),
            public(*((f"key{each:03}", b"") for each in range(290 - number, 290 - number + 2))),
            public((f"new{number}", b"new")),
            private("long", (f"secret{number}", b"at %d" % number), (f"secret{number + 20}", b"")),
        ]
        if number == 9:
            parts[-1:] = [*parts[-1:], private("short", ("written again", b"y"), ("deleted", b""))]
        if number == 12:
            parts.append(private("short", ("written again", b"z")))
        if number == 17:
            parts.append(private("short", ("written again", b"last")))
        ledger.commit(one_set(*parts))
        if number % CHK == 0:
            computed.append(ledger.store.compute_checkpoint(BlockNumber(number)))
    return computed


def test_open_view_shows_its_checkpoint_while_commits_go_on_and_its_checkpoint_is_released(ledger: Ledger) -> None:
    """A joiner that reads slowly gets one state, not a mixture; what it held goes when it is done."""
    ledger.define()
    ledger.commit(one_set(public(*((f"key{each}", b"first") for each in range(40)))))
    ledger.commit(one_set(public(("key1", b"second"))))
    ledger.commit(one_set(public(("key2", b"second"))))
    ledger.store.compute_checkpoint(BlockNumber(4))
    view = ledger.store.checkpoint_view(BlockNumber(4))
    reading = view.entries()
    taken = [next(reading) for _ in range(3)]
    ledger.commit(one_set(public(*((f"key{each}", b"") for each in range(40)), ("other", b"x"))))
    ledger.store.release(BlockNumber(4))
    assert dict([*taken, *reading]) == ledger.states[4]
    assert read_as_a_joiner(view) == ledger.states[4]
    with pytest.raises(NotFound, match="no checkpoint is captured at block 3"):
        ledger.store.checkpoint_view(BlockNumber(3))
    view.close()
    view.close()
    with pytest.raises(NotFound, match="no checkpoint is captured at block 4"):
        ledger.store.checkpoint_view(BlockNumber(4))


# What it costs.


def work_with(directory: Path, key_count: int) -> CheckpointWork:
    """Change the same hundred keys of a state with so many keys, and compute the checkpoint behind them."""
    ledger = Ledger(directory)
    ledger.define()
    keys = [f"key{each:06}" for each in range(key_count)]
    ledger.commit(one_set(public(*((key, b"first") for key in keys))))
    ledger.commit(one_set(public(("last", b"one"))))
    ledger.commit(one_set(public(("last", b"two"))))
    ledger.store.compute_checkpoint(BlockNumber(4))
    ledger.store.close()  # What is in memory by then is not what this is about.
    ledger.store = LedgerStore.open(directory, ChannelId(CHANNEL), chk=CHK)
    ledger.commit(one_set(public(*((key, b"second") for key in keys[:1000:20]))))
    ledger.commit(one_set(public(*((key, b"third") for key in keys[:1000:20]))))
    ledger.commit(one_set(public(*((key, b"") for key in keys[10:1000:40]))))
    ledger.commit(one_set(public(*((f"new{each}", b"x") for each in range(25)))))
    roots = ledger.store.compute_checkpoint(BlockNumber(8))
    assert roots.state_root == slow_root(ledger.states[8])
    work = ledger.store.last_work
    ledger.store.close()
    return work


def test_work_of_a_checkpoint_depends_on_what_changed_alone(tmp_path: Path) -> None:
    """Twenty times as many entries, the same hundred changed: the same entries and about as many pages."""
    small, large = work_with(tmp_path / "small", 1_000), work_with(tmp_path / "large", 20_000)
    assert small.entries == large.entries == 100
    for work in (small, large):
        assert 0 < work.pages_read <= 2 * work.entries
        assert 0 < work.pages_written <= 2 * work.entries
    assert large.pages_read <= 1.5 * small.pages_read  # The tree is log 20 deeper, its upper part is shared.
    assert large.pages_written <= 1.5 * small.pages_written


def test_interval_that_changed_nothing_costs_no_entry_and_no_page(ledger: Ledger) -> None:
    ledger.define()
    ledger.commit(one_set(public(*((f"key{each}", b"x") for each in range(100)))))
    while len(ledger.states) <= 8:
        ledger.commit(ReadWriteSet())
    at_4 = ledger.store.compute_checkpoint(BlockNumber(4))
    assert ledger.store.last_work.entries > 100
    at_8 = ledger.store.compute_checkpoint(BlockNumber(8))
    assert ledger.store.last_work == CheckpointWork(0, 0, 0)
    assert at_8.state_root == at_4.state_root
    assert at_8.statement(ChannelId(CHANNEL)) != at_4.statement(ChannelId(CHANNEL))


# Which are retained, and that any order of computing, keeping, dropping and starting again leaves them right.


@pytest.mark.parametrize("chk", [1, 7, 100])
def test_checkpoints_that_wait_are_thinned_to_a_bounded_number_by_age_alone(chk: int) -> None:
    newest = 1000 * chk
    retained = [number for number in range(0, newest + 1, chk) if is_retained(number, newest, chk)]
    assert retained[-RETAINED_ALL:] == [newest - age * chk for age in range(RETAINED_ALL - 1, -1, -1)]
    assert len(retained) <= RETAINED_ALL + 4 * 7 + 4  # Four for each doubling of the age from 8 up to 1,000.
    for number in range(0, newest, chk):  # What is dropped once never comes back.
        later = [is_retained(number, each, chk) for each in range(number, newest + 1, chk)]
        assert later == sorted(later, reverse=True)


def random_outcome(rng: random.Random, number: int, previous: bytes, state: State) -> Outcome:
    """A block that writes, deletes and lets expire a few of few keys; nobody judged it."""
    block = Block(Header(BlockNumber(number), previous, bytes(32)), (b"envelope %d" % number,), (b"",) * 5)
    updates: dict[StateKey, Entry | None] = {}
    for _ in range(rng.randrange(6)):
        key = public_key("cc", f"key{rng.randrange(30)}")
        if rng.random() < 0.3:
            updates[key] = None
        else:
            version = Version(BlockNumber(number), TxIndex(0))
            updates[key] = Entry(rng.randbytes(3), version, rng.choice([b"", b"metadata"]), NEVER)
    mortal = [key for key in sorted(state) if key.kind == HASHED]
    expired = tuple(key for key in mortal if rng.random() < 0.3)
    for _ in range(rng.randrange(3)):
        key = hashed_key("cc", "col", bytes([rng.randrange(10)]) * 32)
        if key not in expired:
            updates[key] = Entry(rng.randbytes(32), Version(BlockNumber(number), TxIndex(0)), b"", number + 5)
    digest = header_hash(BlockNumber(number), previous, bytes(32))
    tx_ids = (TxId(f"tx{number}"),)
    return Outcome(block, digest, b"\0", (), tx_ids, updates, expired, (), b"hash" if number else b"", False)


@pytest.mark.parametrize("seed", range(10))
def test_views_are_right_whatever_is_computed_kept_released_and_reopened_in_between(seed: int, tmp_path: Path) -> None:
    """Goal: no order of events makes an older state wrong.  Method: random events beside a plain model."""
    rng = random.Random(seed)
    databases, chk = Databases("memory"), rng.choice([1, 2, 3, 5])
    store = LedgerStore.open(tmp_path, ChannelId("random"), chk=chk, open_engine=databases.open)
    states: list[State] = []
    state: State = {}
    previous = b""
    views: dict[CheckpointStateView, int] = {}
    kept: set[int] = set()
    for number in range(60):
        outcome = random_outcome(rng, number, previous, state)
        previous = outcome.block_hash
        state = {key: entry for key, entry in state.items() if key not in outcome.expired}
        for key, entry in outcome.updates.items():
            state.pop(key, None)
            if entry is not None:
                state[key] = entry
        states.append(dict(state))
        store.commit(outcome)
        for _ in range(rng.randrange(3)):
            captured = store.captured()
            if not captured:
                break
            chosen = rng.choice(captured)
            match rng.randrange(7):
                case 0 | 1:
                    computed = _computed(store, chosen)
                    if computed is not None:
                        assert computed.state_root == slow_root(states[chosen])
                case 2:
                    store.keep_checkpoint(chosen)
                    kept.add(chosen)
                case 3:
                    store.release(chosen)
                    kept.discard(chosen)
                case 4 if store.roots(chosen) is not None:
                    views[store.checkpoint_view(chosen)] = chosen
                case 5:
                    store.release_before(chosen)
                case 6 if not views:
                    store.close()
                    store = LedgerStore.open(tmp_path, ChannelId("random"), chk=chk, open_engine=databases.open)
                case _:
                    pass
        for view, at in list(views.items()):
            assert read_as_a_joiner(view) == states[at], f"seed {seed}, block {number}, view of {at}"
            if rng.random() < 0.2:
                view.close()
                del views[view]
    for at in store.captured():
        if store.roots(at) is None and _computed(store, at) is None:
            continue
        with store.checkpoint_view(at) as view:
            assert read_as_a_joiner(view) == states[at], f"seed {seed}, at the end, view of {at}"
            assert_proofs(view, states[at], [key for key in state if key not in states[at]])
    assert kept <= set(store.captured())
    for view in views:
        view.close()
    store.close()


def _computed(store: LedgerStore, number: BlockNumber) -> CheckpointRoots | None:
    """Compute a checkpoint; None where the tree is past it, which the error says."""
    try:
        return store.compute_checkpoint(number)
    except NotFound as error:
        assert "the state tree is past block" in str(error)
        return None


def test_recorded_channel_has_the_right_state_at_every_checkpoint_that_is_still_there(tmp_path: Path) -> None:
    """Real blocks, with private data that expire and many configurations."""
    known = judged("rich")
    configs = [outcome.block.number for outcome in known.outcomes if outcome.is_config]
    store = LedgerStore.open(tmp_path, known.channel_id, chk=10)
    store.commit_group(known.outcomes)
    newest = store.captured()[-1]
    store.compute_checkpoint(newest)
    assert len(store.captured()) > RETAINED_ALL
    for number in store.captured():
        roots = store.roots(number)
        assert roots is not None, "all captured before the newest are computed with it"
        with store.checkpoint_view(number) as view:
            state = read_as_a_joiner(view)
        assert state == known.states[number + 1]
        assert roots.config_block == max(each for each in configs if each <= number)
        envelope = known.outcomes[roots.config_block].block.envelopes[0]
        assert_state_hash(roots, state, roots.config_block, envelope)
    store.close()


def test_work_that_a_closing_stops_goes_on_where_it_stood_after_a_start(tmp_path: Path) -> None:
    """A crash or stop before the roots are written only repeats the work; the roots come out the same."""
    known = judged("mini")
    databases = Databases("memory")
    store = LedgerStore.open(tmp_path, known.channel_id, chk=50, open_engine=databases.open)
    store.commit_group(known.outcomes)
    stopped = CheckpointState(store._engine, 50)
    stopped.close()
    with pytest.raises(StorageFailed, match="being closed"):
        stopped.compute(BlockNumber(50))
    assert store.roots(BlockNumber(50)) is None
    roots = store.compute_checkpoint(BlockNumber(50))
    assert roots.state_root == slow_root(known.states[51])
    store.close()
