"""Where does a peer that stands alone begin to differ?  Found between real ledgers over real doors, mutual TLS and all.

The channel is that of `tests.kit.proven`. One peer is made to differ by what lies on its disk, as by damage or a bug;
what others tell it is twisted where a test wants a liar.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledger.client.comparing import CompareLink
from ledger.client.tls import ClientTls, open_channel
from ledger.core.channel_config import Bundle
from ledger.core.checkpoint_proof import Scope
from ledger.core.errors import Busy, LedgerError, NotFound
from ledger.core.names import BlockNumber, Digest, Verdict
from ledger.core.outcome import Outcome
from ledger.core.state import StateKey, hashed_key, public_key
from ledger.core.tree_descent import Place
from ledger.interfaces.grpc import comparing
from ledger.interfaces.grpc.answers import Allowance, answer_status
from ledger.interfaces.grpc.comparing import ComparingDoor
from ledger.interfaces.grpc.joining import JoiningDoor
from ledger.interfaces.grpc.server import ServerTls, make_mutual_server
from ledger.services.checkpointing import CompareSource, DivergenceFinder, answering, finding
from ledger.services.joining import JoinSource
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.keys import entry_of, entry_value, state_key
from ledger.storage.ledger_store import LedgerStore
from ledger.wire import comparing as wire
from tests.kit import proven
from tests.kit.channel import CHANNEL
from tests.kit.checkpointing import tls_files, until
from tests.kit.checkpointing import tls_roots as foreign_roots
from tests.kit.joining import CHANNEL_ID, tls_of, tls_roots
from tests.kit.peer_folder import digest, honest_proof

EIGHT, TWELVE = BlockNumber(8), BlockNumber(12)
LAST = public_key("asset", "last")

Twist = Callable[[str, bytes, bytes], bytes]
"""Makes of method, question and honest answer what is answered."""


def with_verdict(outcome: Outcome, index: int, verdict: int) -> Outcome:
    return replace(outcome, verdicts=outcome.verdicts[:index] + bytes((verdict,)) + outcome.verdicts[index + 1 :])


class Peer:
    """The ledger of one peer and what it says to others, behind its door."""

    def __init__(self, directory: Path, outcomes: Sequence[Outcome], organisation: int = 1) -> None:
        self.store = LedgerStore.open(directory / "data", CHANNEL_ID, chk=proven.CHK)
        self.records = CheckpointStore(self.store.records_directory, CHANNEL_ID)
        self.source = CompareSource(self.store, self.records)
        self.organisation = organisation
        self.twist: Twist | None = None
        self.asked: list[str] = []
        self.address = ""
        for outcome in outcomes:
            self.store.commit(outcome)

    @property
    def bundle(self) -> Bundle:
        return proven.life().channel.bundle

    def patch(self, key: StateKey, change: Callable[[bytes], bytes] | None) -> None:
        """Change the value of a live entry on the disk behind everybody's back, or take it out."""
        engine = self.store._engine
        batch = engine.batch()
        raw = engine.get(state_key(key))
        assert raw is not None
        if change is None:
            batch.delete(state_key(key))
        else:
            entry = entry_of(raw)
            batch.put(state_key(key), entry_value(entry._replace(value=change(entry.value))))
        batch.write()

    def agree(self, number: int) -> None:
        """Let a checkpoint become valid, as the service does it."""
        at = BlockNumber(number)
        statement = self.store.compute_checkpoint(at).statement(CHANNEL_ID)
        self.records.record_valid(honest_proof(statement, proven.life().signers[number]), Scope.FULL)
        self.store.keep_checkpoint(at)
        for other in self.store.captured():
            if other < number:
                self.store.release(other)

    def diverge(self, other: "Peer", number: int) -> None:
        """Find that others agreed on something else."""
        at = BlockNumber(number)
        computed = self.store.compute_checkpoint(at).statement(CHANNEL_ID)
        proof = other.records.proof(at)
        assert proof is not None and proof.statement != computed
        self.records.record_divergence(computed, proof)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Peer"]:
        """Serve, until the block ends."""
        certificate, key = tls_of(self.organisation)
        joining = JoinSource(
            self.store, lambda: self.records.latest_valid, proven.CHK, self.store.directory / "serving"
        )
        with ThreadPoolExecutor(2) as executor, contextlib.closing(joining):
            server, port = make_mutual_server(
                "127.0.0.1:0", ServerTls(certificate, key, tls_roots() + foreign_roots("Org4MSP"))
            )
            doors = (
                ComparingDoor({CHANNEL: self}, {CHANNEL: self.source}, executor).handler(),
                JoiningDoor({CHANNEL: self}, {CHANNEL: joining}, executor).handler(),
            )
            server.add_generic_rpc_handlers(tuple(Heard(door, self) for door in doors))
            await server.start()
            self.address = f"localhost:{port}"
            try:
                yield self
            finally:
                await server.stop(0)

    def link(self, name: str = "other") -> CompareLink:
        certificate, key = tls_of(3)
        return CompareLink(name, self.address, ClientTls(tls_roots(), certificate, key))

    def close(self) -> None:
        self.source.close()
        self.records.close()
        self.store.close()


class Heard(grpc.GenericRpcHandler):
    """A door, its questions counted and its answers twisted."""

    def __init__(self, honest: grpc.GenericRpcHandler, peer: Peer) -> None:
        self._honest = honest
        self._peer = peer

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        found: Any = self._honest.service(details)
        if found is None:
            return None
        method = str(details.method).rpartition("/")[2]

        async def answer(request: bytes, context: Any) -> bytes:
            self._peer.asked.append(method)
            honest: bytes = await found.unary_unary(request, context)
            try:
                return self._peer.twist(method, request, honest) if self._peer.twist is not None else honest
            except LedgerError as error:
                await context.abort(*answer_status(error))
                raise

        return grpc.unary_unary_rpc_method_handler(answer)


@contextlib.contextmanager
def finder_of(peer: Peer, *links: CompareLink) -> Iterator[DivergenceFinder]:
    with ThreadPoolExecutor(1) as executor:
        yield DivergenceFinder(
            peer.store, peer.records, links, lambda _: proven.life().channel.bundle, executor=executor
        )


async def found_by(peer: Peer, *links: CompareLink) -> dict[str, Any]:
    """Let a peer look, until something is found."""
    with finder_of(peer, *links) as finder:
        running = asyncio.create_task(finder.run())
        try:
            await until(lambda: finder.found is not None)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        assert finder.text == dict(finder.found or {})["summary"]
        return dict(finder.found or {})


@pytest.fixture
def honest(tmp_path: Path) -> Iterator[Peer]:
    peer = Peer(tmp_path / "honest", proven.life().outcomes[:10], organisation=2)
    for number in (4, 8):
        peer.agree(number)
    yield peer
    peer.close()


@pytest.fixture
def alone(tmp_path: Path, honest: Peer) -> Iterator[Peer]:
    """A peer that agreed on checkpoint 4 and has committed what the others have up to block 8."""
    peer = Peer(tmp_path / "alone", proven.life().outcomes[:9])
    peer.agree(4)
    yield peer
    peer.close()


# -- what is found


async def test_a_patched_state_value_is_found_by_name(honest: Peer, alone: Peer) -> None:
    alone.patch(LAST, lambda value: bytes((value[0] ^ 1,)) + value[1:])
    alone.diverge(honest, 8)
    async with honest.open():
        found = await found_by(alone, honest.link())
    assert found["vblock"] is None
    (key,) = found["state"]["keys"]
    assert (key["namespace"], bytes.fromhex(key["key"]), key["differs"]) == ("asset", b"last", ["value"])
    assert key["ours"]["version"] == key["theirs"]["version"]
    assert found["summary"] == "no vBlock differs; 1 differing key: 'last' of asset (value)"
    assert (found["checkpoint"], found["compared_with"], found["refused"]) == (8, "other", {})
    assert honest.asked == ["GetStateOffer", "GetSubtrees", "GetEntries"], "a small tree is shown at once"
    assert found["questions"] == 3


async def test_keys_that_are_missing_here_and_private_ones_are_found(honest: Peer, alone: Peer) -> None:
    private = hashed_key("asset", "secret", digest(7))
    alone.patch(LAST, None)
    alone.patch(private, lambda value: digest(0))
    alone.diverge(honest, 8)
    async with honest.open():
        found = await found_by(alone, honest.link())
    keys = {(one["collection"], one["key"]): one for one in found["state"]["keys"]}
    gone = keys["", b"last".hex()]
    assert (gone["ours"], gone["differs"], gone["kind"]) == (None, ["presence"], "public")
    hidden = keys["secret", private.key.hex()]
    assert (hidden["differs"], hidden["kind"]) == (["value"], "hashed private data")
    assert len(keys) == 2


async def test_no_value_is_ever_in_what_is_found(honest: Peer, alone: Peer) -> None:
    alone.patch(LAST, lambda value: b"a value that nobody else may see")
    alone.diverge(honest, 8)
    async with honest.open():
        await found_by(alone, honest.link())
    assert b"nobody else" not in alone.records.finding and b"nobody else".hex().encode() not in alone.records.finding


async def test_a_false_verdict_is_found_by_block_and_transaction_in_log_n_questions(
    tmp_path: Path, honest: Peer
) -> None:
    outcomes = list(proven.life().outcomes[:9])
    index = outcomes[5].verdicts.index(0)
    outcomes[5] = with_verdict(outcomes[5], index, Verdict.MVCC_READ_CONFLICT)
    alone = Peer(tmp_path / "alone", outcomes)
    alone.diverge(honest, 8)
    async with honest.open():
        found = await found_by(alone, honest.link())
    vblock = found["vblock"]
    assert (vblock["number"], vblock["differs"]) == (5, ["valid_count", "tx_root"])
    (transaction,) = vblock["transactions"]
    assert transaction["index"] == index
    assert (transaction["ours"]["verdict"], transaction["theirs"]["verdict"]) == ("MVCC_READ_CONFLICT", "VALID")
    assert found["summary"].startswith(
        "first differing vBlock: 5 (valid_count, tx_root); transaction 0 of it: MVCC_READ_CONFLICT here, VALID there; "
    )
    assert honest.asked.count("GetLogEntry") <= 5, "of 9 blocks"
    assert honest.asked.count("GetLeaves") == 1
    alone.close()


async def test_differing_state_updates_are_found_by_the_block_of_the_commit_hash(tmp_path: Path, honest: Peer) -> None:
    outcomes = list(proven.life().outcomes[:9])
    updates = dict(outcomes[7].updates)
    entry = updates[LAST]
    assert entry is not None
    outcomes[7] = replace(outcomes[7], updates=updates | {LAST: entry._replace(value=b"else")}, commit_hash=bytes(32))
    alone = Peer(tmp_path / "alone", outcomes)
    alone.diverge(honest, 8)
    async with honest.open():
        found = await found_by(alone, honest.link())
    assert (found["vblock"]["number"], found["vblock"]["differs"]) == (7, ["commit_hash"])
    assert found["vblock"]["transactions"] == [] and "GetLeaves" not in honest.asked
    alone.close()


# -- what both can still show


async def test_a_peer_that_moved_on_shows_a_later_state_and_what_was_written_since_is_left_out(
    tmp_path: Path, alone: Peer
) -> None:
    """The honest peer has let go of the state at 8: at 12 `last` was written anew, the private entry was not."""
    later = Peer(tmp_path / "later", proven.life().outcomes[:14], organisation=2)
    for number in (4, 8, 12):
        later.agree(number)
    alone.patch(LAST, lambda value: b"patched")
    private = hashed_key("asset", "secret", digest(7))
    alone.patch(private, lambda value: digest(0))
    alone.diverge(later, 8)
    async with later.open():
        found = await found_by(alone, later.link())
    assert (found["state"]["ours_at"], found["state"]["theirs_at"]) == (8, 12)
    differing = {bytes.fromhex(one["key"]): one["differs"] for one in found["state"]["keys"]}
    assert differing[private.key] == ["value"]
    assert b"last" not in differing, "it was written since, so nothing is known of it"
    later.close()


async def test_our_state_is_kept_from_the_divergence_on(honest: Peer, alone: Peer) -> None:
    alone.patch(LAST, lambda value: b"patched")
    alone.diverge(honest, 8)
    with finder_of(alone) as finder:
        running = asyncio.create_task(finder.run())
        await until(lambda: finder.text.startswith("where it begins is not found yet: there is no other peer to ask"))
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    alone.store.release_before(BlockNumber(100))
    assert EIGHT in alone.store.captured()


async def test_the_state_that_is_being_compared_is_held_while_checkpoints_go_on(honest: Peer) -> None:
    offer = honest.source.state(EIGHT)
    for outcome in proven.life().outcomes[10:14]:
        honest.store.commit(outcome)
    honest.agree(12)
    assert honest.source.subtrees(EIGHT, (Place(0, bytes(32)),))
    assert honest.source.state(EIGHT) == offer
    honest.source.close()
    assert honest.source.state(EIGHT).proof.statement.number == TWELVE


async def test_states_that_are_held_are_bounded_in_number_and_time(
    honest: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "HELD_MAX", 1)
    honest.source.state(EIGHT)
    for outcome in proven.life().outcomes[10:14]:
        honest.store.commit(outcome)
    honest.agree(12)
    with pytest.raises(Busy, match="states at 8 are held for others"):
        honest.source.state(TWELVE)
    monkeypatch.setattr(answering, "HOLD_S", -1.0)
    honest.source.state(EIGHT)
    honest.source.sweep()
    assert honest.source.state(TWELVE).proof.statement.number == TWELVE
    assert EIGHT not in honest.store.captured()


async def test_ledgers_whose_states_are_gone_are_compared_by_their_vblocks_and_the_rest_is_looked_for_again(
    tmp_path: Path, honest: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "PAUSE_S_MIN", 0.05)
    outcomes = list(proven.life().outcomes[:9])
    outcomes[5] = replace(outcomes[5], commit_hash=bytes(32))
    alone = Peer(tmp_path / "alone", outcomes)
    alone.diverge(honest, 8)
    honest.twist = refusing("GetStateOffer")
    async with honest.open():
        found = await found_by(alone, honest.link())
        assert found["vblock"]["number"] == 5 and found["state"] is None
        assert "keys not compared: " in found["summary"]
        honest.twist = None
        with finder_of(alone, honest.link()) as finder:
            running = asyncio.create_task(finder.run())
            await until(lambda: dict(finder.found or {})["state"] is not None)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
    alone.close()


# -- over restarts


async def test_what_was_found_survives_a_restart_and_goes_when_the_ledger_is_made_again(
    tmp_path: Path, honest: Peer, alone: Peer
) -> None:
    alone.patch(LAST, lambda value: b"patched")
    alone.diverge(honest, 8)
    async with honest.open():
        found = await found_by(alone, honest.link())
    shutil.copytree(alone.store.records_directory, tmp_path / "copy")
    with CheckpointStore(tmp_path / "copy", CHANNEL_ID) as records:
        assert records.finding == alone.records.finding and found["summary"].encode() in records.finding
        assert len(list(records.evidence())) == 1, "what was found is no further evidence"
        records.resolve_divergence()
    with CheckpointStore(tmp_path / "copy", CHANNEL_ID) as records:
        assert (records.finding, records.divergence) == (b"", None)


# -- liars, and those who can't answer


def refusing(method: str) -> Twist:
    def twist(asked: str, _: bytes, honest: bytes) -> bytes:
        if asked == method:
            raise NotFound("it is gone")
        return honest

    return twist


def other_root(method: str, _: bytes, honest: bytes) -> bytes:
    if method != "GetStateOffer":
        return honest
    offer = wire.decode_state_offer(honest)
    return wire.encode_state_offer(replace(offer, roots=replace(offer.roots, state_root=Digest(digest(1)))))


def other_proof(method: str, _: bytes, honest: bytes) -> bytes:
    if method != "GetStateOffer":
        return honest
    offer = wire.decode_state_offer(honest)
    roots = replace(offer.roots, state_root=Digest(digest(1)))
    return wire.encode_state_offer(
        replace(offer, roots=roots, proof=replace(offer.proof, statement=roots.statement(CHANNEL_ID)))
    )


def other_tree(method: str, _: bytes, honest: bytes) -> bytes:
    return wire.encode_subtrees([None]) if method == "GetSubtrees" else honest


def other_entry(method: str, _: bytes, honest: bytes) -> bytes:
    if method != "GetEntries":
        return honest
    return wire.encode_entries([(key, entry._replace(value=b"lie")) for key, entry in wire.decode_entries(honest)])


def no_entry(method: str, _: bytes, honest: bytes) -> bytes:
    return wire.encode_entries([]) if method == "GetEntries" else honest


def garbage(method: str, _: bytes, honest: bytes) -> bytes:
    return b"\xff" if method == "GetSubtrees" else honest


@pytest.mark.parametrize(
    ("lie", "rule"),
    [
        (other_root, "state of another peer: state hash"),
        (other_proof, "state of another peer: statement"),
        (other_tree, "state tree of another peer: node hash"),
        (other_entry, "entry of another peer: value hash"),
        (no_entry, "entries of another peer: entry"),
        (garbage, "subtrees: protobuf"),
    ],
)
async def test_a_liar_is_named_with_the_rule_and_the_next_peer_is_asked(
    tmp_path: Path, honest: Peer, alone: Peer, lie: Twist, rule: str
) -> None:
    liar = Peer(tmp_path / "liar", proven.life().outcomes[:10])
    liar.agree(4)
    liar.agree(8)
    liar.twist = lie
    alone.patch(LAST, lambda value: b"patched")
    alone.diverge(honest, 8)
    async with honest.open(), liar.open():
        found = await found_by(alone, liar.link("liar"), honest.link("honest"))
    assert found["compared_with"] == "honest"
    assert found["refused"]["liar"].startswith(rule)
    liar.close()


async def test_a_false_vblock_is_noticed_whoever_tells_it(tmp_path: Path, honest: Peer) -> None:
    """Two peers with the same false ledger can't make each other believe: the log is the one that was agreed on."""
    outcomes = list(proven.life().outcomes[:9])
    outcomes[5] = replace(outcomes[5], commit_hash=bytes(32))
    alone, twin = Peer(tmp_path / "alone", outcomes), Peer(tmp_path / "twin", outcomes)
    alone.diverge(honest, 8)
    twin.store.compute_checkpoint(EIGHT)
    async with honest.open(), twin.open():
        found = await found_by(alone, twin.link("twin"), honest.link("honest"))
    assert found["refused"]["twin"].startswith("inclusion proof: root")
    assert found["compared_with"] == "honest" and found["vblock"]["number"] == 5
    alone.close()
    twin.close()


async def test_a_peer_that_is_down_is_named_and_asked_again(
    honest: Peer, alone: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "PAUSE_S_MIN", 0.05)
    alone.patch(LAST, lambda value: b"patched")
    alone.diverge(honest, 8)
    async with honest.open():
        link = honest.link()
    with finder_of(alone, link) as finder:
        running = asyncio.create_task(finder.run())
        await until(lambda: finder.text.startswith("where it begins is not found yet: other: "))
        assert "UNAVAILABLE" in finder.text
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


# -- the door


async def ask(peer: Peer, method: str, question: bytes, organisation: int = 3) -> tuple[grpc.StatusCode, str]:
    certificate, key = tls_of(organisation)
    return await refused_call(peer, method, question, ClientTls(tls_roots(), certificate, key))


async def refused_call(peer: Peer, method: str, question: bytes, tls: ClientTls) -> tuple[grpc.StatusCode, str]:
    channel = open_channel(peer.address, tls)
    try:
        call: Any = channel.unary_unary(f"/ledger.v1.Comparing/{method}")
        await call(question, timeout=5)
        return grpc.StatusCode.OK, ""
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    finally:
        await channel.close()


QUESTION = wire.encode_state_question(wire.StateQuestion(CHANNEL_ID, EIGHT))


def places(*found: Place, checkpoint: int = 8) -> bytes:
    return wire.encode_subtrees_question(wire.SubtreesQuestion(CHANNEL_ID, BlockNumber(checkpoint), found))


def log_entry(checkpoint: int, number: int) -> bytes:
    return wire.encode_log_question(wire.LogQuestion(CHANNEL_ID, BlockNumber(checkpoint), BlockNumber(number)))


def entries(*keys: StateKey) -> bytes:
    return wire.encode_entries_question(wire.EntriesQuestion(CHANNEL_ID, EIGHT, keys))


async def test_door_answers_organisations_of_the_channel_alone(honest: Peer) -> None:
    async with honest.open():
        assert await ask(honest, "GetStateOffer", QUESTION) == (grpc.StatusCode.OK, "")
        stranger = tls_files("Org4MSP")
        tls = ClientTls(tls_roots(), stranger.certificate, stranger.key)
        code, text = await refused_call(honest, "GetStateOffer", QUESTION, tls)
    assert code is grpc.StatusCode.PERMISSION_DENIED and "TLS certificate" in text


ROOT_PLACE = Place(0, bytes(32))


@pytest.mark.parametrize(
    ("method", "question", "code", "rule"),
    [
        ("GetStateOffer", b"\xff", "INVALID_ARGUMENT", "protobuf"),
        ("GetStateOffer", b"", "INVALID_ARGUMENT", "format version"),
        ("GetLogEntry", b"", "INVALID_ARGUMENT", "format version"),
        ("GetSubtrees", b"", "INVALID_ARGUMENT", "number of places"),
        ("GetSubtrees", places(*[ROOT_PLACE] * 65), "INVALID_ARGUMENT", "number of places"),
        ("GetSubtrees", places(Place(1, b"\xff" * 32)), "INVALID_ARGUMENT", "place"),
        ("GetSubtrees", places(ROOT_PLACE, checkpoint=6), "NOT_FOUND", "no checkpoint is captured at block 6"),
        ("GetEntries", b"", "INVALID_ARGUMENT", "number of keys"),
        ("GetEntries", entries(StateKey(7, "a", "", b"k")), "INVALID_ARGUMENT", "kind of an entry"),
        ("GetEntries", entries(*[LAST] * 257), "INVALID_ARGUMENT", "number of keys"),
        ("GetLogEntry", log_entry(6, 1), "NOT_FOUND", "no checkpoint at block 6"),
        ("GetLogEntry", log_entry(8, 9), "NOT_FOUND", "above checkpoint 8"),
    ],
)
async def test_door_refuses_by_name(honest: Peer, method: str, question: bytes, code: str, rule: str) -> None:
    async with honest.open():
        found, text = await ask(honest, method, question)
    assert found.name == code and rule in text


async def test_questions_of_an_organisation_are_bounded(honest: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "QUESTIONS_AT_ONCE", 2)
    monkeypatch.setattr(comparing, "QUESTIONS_PER_SECOND", 0.001)
    async with honest.open():
        codes = [(await ask(honest, "GetStateOffer", QUESTION))[0].name for _ in range(3)]
        other = (await ask(honest, "GetStateOffer", QUESTION, organisation=2))[0].name
    assert (codes, other) == (["OK", "OK", "RESOURCE_EXHAUSTED"], "OK")


def test_allowance_comes_back_with_time() -> None:
    allowance = Allowance(1e12, 1)
    for _ in range(5):
        allowance.take("Org1MSP")
    slow = Allowance(0.001, 1)
    slow.take("Org1MSP")
    with pytest.raises(Busy, match=r"Org1MSP asks more than 0\.001 questions a second"):
        slow.take("Org1MSP")


async def test_walks_over_the_whole_state_come_one_at_a_time_with_rests(
    honest: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "WALK_REST", 1_000_000.0)
    honest.source.state(EIGHT)
    assert honest.source.entries(EIGHT, (), (digest(1),)) == ()
    with pytest.raises(Busy, match="is being walked"):
        honest.source.entries(EIGHT, (), (digest(1),))
    assert honest.source.entries(EIGHT, (LAST,), ())[0][0] == LAST
