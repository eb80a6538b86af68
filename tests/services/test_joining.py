"""Whatever single sources do, does a joiner come to the true ledger, or say in words why not?

Real doors behind mutual TLS; liars twist the answers of honest ones. The life of the channel is `tests.kit.proven`:
organisations come and leave, so a checkpoint of block 12 is signed by others than one of block 8.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.client import joining as client
from ledger.core import joining as rules
from ledger.core.checkpoint import CheckpointRoots
from ledger.core.checkpoint_proof import Scope
from ledger.core.errors import Busy, Conflict, InvalidPolicy, NotFound, PeerUnreachable, Refused
from ledger.core.names import BlockNumber, Digest
from ledger.node import join as join_module
from ledger.node import join_freshness, join_sources
from ledger.node.join import Trust
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.ledger_store import LedgerStore
from ledger.wire import checkpoint as wire_checkpoint
from ledger.wire.ledger_v1 import joining_pb2 as pb
from tests.kit import proven
from tests.kit.joining import (
    CHANNEL_ID,
    LATEST,
    OrdererStub,
    Seller,
    honest_proof,
    join,
    joined_store,
    make_joiner,
    ordered,
    settings_for,
)

Change = Callable[[Any], None]

ANSWERS: dict[str, Any] = {
    "GetOffer": pb.Offer,
    "GetConfigBlock": pb.BlockAnswer,
    "GetCheckpointBlock": pb.BlockAnswer,
    "GetHeads": pb.Heads,
    "GetLeaves": pb.Leaves,
    "GetChunk": pb.Chunk,
}


@pytest.fixture(autouse=True)
def small_and_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several chunks and pages of a small ledger; silence is noticed soon."""
    monkeypatch.setattr(rules, "ENTRIES_PER_CHUNK", 2)
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.7)
    monkeypatch.setattr(join_module, "OFFER_GRACE_S", 1.0)
    monkeypatch.setattr(join_freshness, "ORDERER_TIMEOUT_S", 1.0)
    monkeypatch.setattr("ledger.node.join_blocks.LEAVES_PER_PAGE", 20)
    monkeypatch.setattr("ledger.node.join_blocks.HEADS_PER_PAGE", 5)


def twist(method: str, change: Change) -> Callable[[str, bytes, bytes], bytes | None]:
    """Change every answer to one kind of question."""

    def twisted(asked: str, question: bytes, honest: bytes) -> bytes | None:
        if asked != method:
            return None
        message = ANSWERS[method].FromString(honest)
        change(message)
        return bytes(message.SerializeToString())

    return twisted


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def check_joined(directory: Path) -> None:
    """The joined ledger is the true one: the next blocks come to the same as on a peer that was there all along."""
    store = joined_store(directory)
    assert store.joined_at == LATEST
    assert store.roots(LATEST) is not None
    for outcome in proven.life().outcomes[LATEST + 1 :]:
        assert store.commit_hash
        store.commit(outcome)
    assert store.roots_now().state_hash == true_state_hash()
    store.close()


def true_state_hash() -> bytes:
    from tests.kit.joining import honest_folder

    store = LedgerStore.open(honest_folder() / "data", CHANNEL_ID, chk=proven.CHK)
    try:
        return store.roots_now().state_hash
    finally:
        store.close()


# -- what sources say


def set_block(change: Callable[[Any], None]) -> Change:
    """Change the block in an answer."""
    from fabric_protos.common import common_pb2

    def changed(message: Any) -> None:
        block = common_pb2.Block.FromString(message.block)
        change(block)
        message.block = block.SerializeToString()

    return changed


def lies(name: str) -> Change:
    def offer_root(m: Any) -> None:
        m.state_root = flipped(m.state_root, 0)

    def offer_higher(m: Any) -> None:
        m.proof.statement.number += 4

    def offer_without_last_config(m: Any) -> None:
        del m.config_numbers[-1]

    def offer_without_middle_config(m: Any) -> None:
        del m.config_numbers[2]

    def offer_one_signature(m: Any) -> None:
        del m.proof.signatures[1:]

    def offer_other_channel(m: Any) -> None:
        m.proof.statement.channel = "another"

    def unsigned(block: Any) -> None:
        block.metadata.metadata[0] = b""

    def wrong_envelope(block: Any) -> None:
        block.data.data[0] = flipped(block.data.data[0], -1)

    def renumbered(block: Any) -> None:
        block.header.number += 1

    def one_less(block: Any) -> None:
        del block.data.data[0]

    def head_root(m: Any) -> None:
        m.heads[-1].tx_root = flipped(m.heads[-1].tx_root, 3)

    def head_hash(m: Any) -> None:
        m.heads[2].data_hash = flipped(m.heads[2].data_hash, 3)

    def head_missing(m: Any) -> None:
        del m.heads[1]

    def heads_swapped(m: Any) -> None:
        first, second = m.heads[1].SerializeToString(), m.heads[2].SerializeToString()
        m.heads[1].ParseFromString(second)
        m.heads[2].ParseFromString(first)

    def leaf_digest(m: Any) -> None:
        m.blocks[0].envelope_digests = flipped(m.blocks[0].envelope_digests, 5)

    def leaf_id(m: Any) -> None:
        m.blocks[0].tx_ids[0] = "another"

    def leaf_verdict(m: Any) -> None:
        m.blocks[0].verdicts = bytes((11,)) + m.blocks[0].verdicts[1:]

    def leaf_block_missing(m: Any) -> None:
        del m.blocks[0]

    def leaf_part_missing(m: Any) -> None:
        del m.blocks[0].tx_ids[0]

    def no_leaves(m: Any) -> None:
        del m.blocks[:]

    def entry_value(m: Any) -> None:
        for entry in m.entries[:1]:
            entry.value += b"!"

    def entry_version(m: Any) -> None:
        for entry in m.entries[:1]:
            entry.index += 1

    def entry_missing(m: Any) -> None:
        del m.entries[:1]

    def entry_twice(m: Any) -> None:
        m.entries.extend(m.entries[:1])

    def entry_elsewhere(m: Any) -> None:
        m.entries.add(namespace="asset", key=b"key that hashes into some other chunk")

    def entry_of_no_kind(m: Any) -> None:
        for entry in m.entries[:1]:
            entry.kind = 300

    def chunk_index(m: Any) -> None:
        m.index += 1

    def chunk_way(m: Any) -> None:
        m.siblings = flipped(m.siblings, 0)

    def chunk_long_way(m: Any) -> None:
        m.siblings += bytes(32 * 20)

    table: dict[str, Change] = {k: v for k, v in locals().items() if callable(v)}
    return table[name]


LIES = [
    ("GetOffer", "offer_root", "state hash"),
    ("GetOffer", "offer_higher", "forged signature"),
    ("GetOffer", "offer_without_last_config", "unknown identity|state hash|not satisfied|global policy"),
    ("GetOffer", "offer_without_middle_config", "sequence"),
    ("GetOffer", "offer_one_signature", "global policy"),
    ("GetOffer", "offer_other_channel", "channel"),
    ("GetConfigBlock", "unsigned", "orderer signatures|slot"),
    ("GetConfigBlock", "wrong_envelope", "data hash"),
    ("GetConfigBlock", "renumbered", "block number"),
    ("GetCheckpointBlock", "unsigned", "orderer signatures"),
    ("GetCheckpointBlock", "one_less", "data hash"),
    ("GetCheckpointBlock", "renumbered", "block hash"),
    ("GetHeads", "head_root", "vBlock hash"),
    ("GetHeads", "head_hash", "previous hash"),
    ("GetHeads", "head_missing", "block count"),
    ("GetHeads", "heads_swapped", "block number"),
    ("GetLeaves", "leaf_digest", "transaction root"),
    ("GetLeaves", "leaf_id", "transaction root"),
    ("GetLeaves", "leaf_verdict", "leaf count"),
    ("GetLeaves", "leaf_block_missing", "block number|block count"),
    ("GetLeaves", "leaf_part_missing", "leaf parts"),
    ("GetLeaves", "no_leaves", "block count"),
    ("GetChunk", "entry_value", "state root|end of the way"),
    ("GetChunk", "entry_version", "state root|end of the way"),
    ("GetChunk", "entry_missing", "state root|end of the way"),
    ("GetChunk", "entry_twice", "chunk of an entry"),
    ("GetChunk", "entry_elsewhere", "chunk of an entry|state root"),
    ("GetChunk", "entry_of_no_kind", "kind of an entry"),
    ("GetChunk", "chunk_index", "chunk index"),
    ("GetChunk", "chunk_way", "state root"),
    ("GetChunk", "chunk_long_way", "proof length"),
]

WHOLE_BLOCKS = {"unsigned", "wrong_envelope", "renumbered", "one_less"}


@pytest.mark.parametrize(("method", "lie", "rule"), LIES, ids=lambda each: str(each).replace("|", " or "))
async def test_a_liar_is_dropped_with_the_rule_it_broke(method: str, lie: str, rule: str, tmp_path: Path) -> None:
    """Goal: each piece is checked, under a rule with a name.  Method: a liar alone, from which nothing comes."""
    change = set_block(lies(lie)) if lie in WHOLE_BLOCKS else lies(lie)
    async with Seller(tmp_path / "liar", twist=twist(method, change)).open() as liar:
        with pytest.raises(PeerUnreachable) as caught:
            await join(tmp_path / "new", liar)
    assert any(one in str(caught.value) for one in rule.split("|")), caught.value
    assert not (tmp_path / "new/data/channels/testchannel").exists()


@pytest.mark.parametrize("method", ANSWERS)
async def test_no_flipped_byte_comes_through(method: str, tmp_path: Path) -> None:
    """Goal: the joined ledger is true whatever one source says.  Method: one that flips bytes, and an honest one."""
    chance = random.Random(method)

    def flip(asked: str, question: bytes, honest: bytes) -> bytes | None:
        return flipped(honest, chance.randrange(len(honest))) if asked == method and honest else None

    async with Seller(tmp_path / "liar", twist=flip).open() as liar, Seller(tmp_path / "honest").open() as honest:
        for number in range(4):
            report = await join(tmp_path / f"new{number}", liar, honest)
            assert report.checkpoint == LATEST
            assert "answers" in report.sources[honest.address]
            check_joined(tmp_path / f"new{number}")


async def test_a_liar_beside_an_honest_source_is_dropped_and_the_joining_completes(tmp_path: Path) -> None:
    liar = Seller(tmp_path / "liar", twist=twist("GetChunk", lies("entry_value")))
    async with liar.open(), Seller(tmp_path / "honest").open() as honest:
        report = await join(tmp_path / "new", liar, honest)
    assert "state root" in report.sources[liar.address] or "end of the way" in report.sources[liar.address]
    check_joined(tmp_path / "new")


async def test_members_that_left_can_t_sell_a_state_by_leaving_out_the_block_that_removed_them(tmp_path: Path) -> None:
    """Goal: the hole that the whole block at the checkpoint closes.

    Method: Org1, which left in block 9, and a peer of Org3 sign a state under the configuration of block 6. The offer
    leaves block 9 out of the trail, and everything in it fits together.
    """
    life = proven.life()
    signers = (life.organisations[0].peer, life.organisations[2].peer)
    async with Seller(tmp_path / "liar").open() as liar:
        roots = liar.store.roots(LATEST)
        assert roots is not None
        old = liar.store.config_blocks()[2]
        false = CheckpointRoots(
            LATEST, roots.vblock_hash, roots.vledger_root, roots.state_root, old.number, old.envelope_digest
        ).statement(CHANNEL_ID)  # fmt: skip

        def offer(message: Any) -> None:
            del message.config_numbers[-1]
            message.proof.Clear()
            wire_checkpoint.put_proof(message.proof, honest_proof(false, signers))

        liar.twist = twist("GetOffer", offer)
        with pytest.raises(PeerUnreachable, match="last config index"):
            await join(tmp_path / "new", liar)


# -- sources that say nothing


@pytest.mark.parametrize("method", ANSWERS)
async def test_a_source_that_falls_silent_is_left_behind(method: str, tmp_path: Path) -> None:
    async with Seller(tmp_path / "a", silent_at=method).open() as silent, Seller(tmp_path / "b").open() as other:
        report = await join(tmp_path / "new", silent, other)
    assert "DEADLINE_EXCEEDED" in report.sources[silent.address] or silent.asked.count(method) == 0
    check_joined(tmp_path / "new")


async def test_it_fails_within_seconds_and_says_why_of_each_source(tmp_path: Path) -> None:
    began = time.monotonic()
    async with (
        Seller(tmp_path / "a", silent_at="GetChunk").open() as silent,
        Seller(tmp_path / "b", twist=twist("GetLeaves", lies("leaf_id"))).open() as liar,
    ):
        nobody = Seller(tmp_path / "c", address="localhost:1")
        with pytest.raises(PeerUnreachable) as caught:
            await join(tmp_path / "new", silent, liar, nobody)
    text = str(caught.value)
    assert f"{silent.address}: peer at {silent.address}: DEADLINE_EXCEEDED" in text
    assert f"{liar.address}: leaves of block" in text
    assert "localhost:1: peer at localhost:1: UNAVAILABLE" in text
    assert time.monotonic() - began < 10


async def test_without_any_address_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(PeerUnreachable, match="no address was given"):
        await join(tmp_path / "new")


async def test_a_peer_without_a_valid_checkpoint_says_so(tmp_path: Path) -> None:
    async with Seller(tmp_path / "a").open() as seller:
        seller.records = CheckpointStore(tmp_path / "none", CHANNEL_ID)  # What it looks into from now on.
        seller.twist = raising(NotFound("no checkpoint of testchannel is valid yet"))
        with pytest.raises(PeerUnreachable, match="no checkpoint of testchannel is valid yet"):
            await join(tmp_path / "new", seller)


def raising(error: Exception) -> Callable[[str, bytes, bytes], bytes | None]:
    def twisted(asked: str, question: bytes, honest: bytes) -> bytes | None:
        raise error

    return twisted


async def test_a_source_that_closes_in_the_middle_is_replaced(tmp_path: Path) -> None:
    async with Seller(tmp_path / "a").open() as closing, Seller(tmp_path / "b").open() as other:

        def close(asked: str, question: bytes, honest: bytes) -> bytes | None:
            if asked == "GetChunk":
                closing.silent_at = "GetChunk"
                raise PeerUnreachable("it went away")
            return None

        closing.twist = close
        report = await join(tmp_path / "new", closing, other)
    assert "answers" in report.sources[other.address]
    check_joined(tmp_path / "new")


async def test_a_busy_source_is_asked_again(tmp_path: Path) -> None:
    """Goal: a source that answers others is not dropped.  Method: each second question is turned away."""
    turns: list[str] = []

    def busy(asked: str, question: bytes, honest: bytes) -> bytes | None:
        turns.append(asked)
        if len(turns) % 2:
            raise Busy("16 questions are being answered")
        return None

    async with Seller(tmp_path / "a", twist=busy).open() as seller:
        report = await join(tmp_path / "new", seller)
    assert "answers" in report.sources[seller.address]
    check_joined(tmp_path / "new")


async def test_a_source_that_is_busy_for_ever_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_module, "OFFER_WAIT_S", 0.5)
    monkeypatch.setattr(join_sources, "BUSY_PAUSE_S", 0.05)
    async with Seller(tmp_path / "a", twist=raising(Busy("always"))).open() as seller:
        with pytest.raises(PeerUnreachable, match="RESOURCE_EXHAUSTED: always"):
            await join(tmp_path / "new", seller)


# -- which checkpoint


async def test_older_checkpoints_are_left_aside_with_the_reason(tmp_path: Path) -> None:
    async with Seller(tmp_path / "a").open() as newest, Seller(tmp_path / "b").open() as older:
        older.offer(8)
        report = await join(tmp_path / "new", newest, older)
    assert report.checkpoint == LATEST
    assert report.sources[older.address] == "it offers checkpoint 8, not 12"
    check_joined(tmp_path / "new")


async def test_where_the_newest_checkpoint_can_t_be_had_the_next_older_one_is_taken(tmp_path: Path) -> None:
    """Goal: who alone has the newest checkpoint can't keep a joiner out by saying nothing more."""
    async with Seller(tmp_path / "a", silent_at="GetLeaves").open() as newest, Seller(tmp_path / "b").open() as older:
        older.offer(8)
        report = await join(tmp_path / "new", newest, older)
    assert report.checkpoint == 8
    assert "DEADLINE_EXCEEDED" in report.sources[newest.address]
    store = joined_store(tmp_path / "new")
    for outcome in proven.life().outcomes[9:]:
        store.commit(outcome)
    assert store.roots_now().state_hash == true_state_hash()
    store.close()


async def test_a_joiner_follows_its_sources_to_a_newer_checkpoint(tmp_path: Path) -> None:
    """Goal: chunks that are not served any more are no end.  Method: they go at the third question for one."""
    asked: list[str] = []
    async with Seller(tmp_path / "a").open() as seller:
        seller.offer(8)

        def gone(method: str, question: bytes, honest: bytes) -> bytes | None:
            if method == "GetChunk" and pb.ChunkRequest.FromString(question).checkpoint == 8:
                asked.append(method)
                if len(asked) > 2:
                    seller.latest = None
                    raise NotFound("no chunk of the state at block 8 is served here")
            return None

        seller.twist = gone
        report = await join(tmp_path / "new", seller)
    assert report.checkpoint == LATEST
    check_joined(tmp_path / "new")


async def test_a_checkpoint_at_a_config_block_is_judged_by_the_configurations_before_and_after_it(
    tmp_path: Path,
) -> None:
    """Goal: block 9, in which Org1 leaves, is checked under the old configuration, its checkpoint under the new one."""
    life, folder = proven.life(), tmp_path / "a"
    folder.mkdir()
    store = LedgerStore.open(folder / "data", CHANNEL_ID, chk=3)
    store.commit_group(life.outcomes[:11])
    statement = store.compute_checkpoint(BlockNumber(9)).statement(CHANNEL_ID)
    with CheckpointStore(store.records_directory, CHANNEL_ID) as records:
        records.record_valid(honest_proof(statement, life.signers[12]), Scope.FULL)
    store.keep_checkpoint(BlockNumber(9))
    store.close()
    async with Seller(folder, chk=3).open() as seller, OrdererStub(ordered(10)).open() as orderer:
        report = await join(tmp_path / "new", seller, orderers=[orderer], interval_blocks=3)
        assert report.checkpoint == 9
        assert report.warnings == ()
        joined = LedgerStore.open(tmp_path / "new/data", CHANNEL_ID, chk=3)
        for outcome in life.outcomes[10:]:
            joined.commit(outcome)
        assert joined.roots_now().state_hash == true_state_hash()
        joined.close()
        orderer.blocks = ordered(13)
        report = await join(tmp_path / "newer", seller, orderers=[orderer], interval_blocks=3)
        assert report.warnings == ()


async def test_the_genesis_block_is_the_trust_root(tmp_path: Path) -> None:
    """Goal: another channel's genesis block of the same name gets nothing."""
    from ledger.wire.block import encode_block
    from tests.kit.channel import Channel

    other = encode_block(Channel().genesis)
    async with Seller(tmp_path / "a").open() as seller:
        with pytest.raises(PeerUnreachable, match=r"orderer signatures|update|identity|policy"):
            await join(tmp_path / "new", seller, genesis=other)


# -- own policy, pinned vBlock, freshness


async def test_the_joiner_s_own_policy_must_hold_too(tmp_path: Path) -> None:
    async with Seller(tmp_path / "a").open() as seller:
        with pytest.raises(PeerUnreachable, match="local policy"):
            await join(tmp_path / "no", seller, lcvp="AND('Org2MSP.peer','Org3MSP.peer','Org1MSP.peer')")
        report = await join(tmp_path / "yes", seller, lcvp="AND('Org2MSP.peer','Org3MSP.peer')")
    assert report.signers == ("Org2MSP peer0", "Org3MSP peer0")
    with pytest.raises(InvalidPolicy):
        make_joiner(settings_for(tmp_path / "bad", lcvp="AND("), [])


@pytest.mark.parametrize(
    ("number", "right", "found"),
    [(5, True, ""), (5, False, "pinned vBlock hash"), (13, True, "the checkpoint is at block 12")],
)
async def test_a_pinned_vblock_is_in_the_history_or_nothing_is_joined(
    number: int, right: bool, found: str, tmp_path: Path
) -> None:
    async with Seller(tmp_path / "a").open() as seller:
        known = seller.store.summary(BlockNumber(number)).vblock_hash
        trust = Trust(BlockNumber(number), known if right else bytes(32))
        if not found:
            report = await join(tmp_path / "new", seller, trust=trust)
            assert "whether the checkpoint is fresh was not checked" in report.warnings[0]
            return
        with pytest.raises(Refused, match=found):
            await join(tmp_path / "new", seller, trust=trust)


async def test_without_orderer_policy_and_pin_it_warns_what_is_trusted(tmp_path: Path) -> None:
    async with Seller(tmp_path / "a").open() as seller:
        report = await join(tmp_path / "new", seller)
    assert "rests on the sources' word" in report.warnings[0]


async def test_another_interval_is_a_warning(tmp_path: Path) -> None:
    async with Seller(tmp_path / "a").open() as seller, OrdererStub(ordered(15)).open() as orderer:
        report = await join(tmp_path / "new", seller, orderers=[orderer], interval_blocks=5)
    assert report.warnings == (
        "checkpoint.interval_blocks is 5 here and 4 at the peers that were joined from: it should be the same",
    )


def altered(number: int, change: Callable[[Any], None]) -> dict[int, bytes]:
    """The ordered blocks, one of them changed."""
    from fabric_protos.common import common_pb2

    blocks = ordered(15)
    block = common_pb2.Block.FromString(blocks[number])
    change(block)
    return blocks | {number: bytes(block.SerializeToString())}


def unsign(block: Any) -> None:
    block.metadata.metadata[0] = b""


@pytest.mark.parametrize(
    ("blocks", "first", "offered", "rule"),
    [
        (ordered(15), 0, 8, "newer configuration"),
        (ordered(12), 0, 12, "freshness"),
        (ordered(15), 14, 12, "freshness"),
    ],
    ids=["a newer configuration", "orderers that are behind", "orderers that pruned what follows"],
)
async def test_a_checkpoint_that_is_not_fresh_is_refused(
    blocks: dict[int, bytes], first: int, offered: int, rule: str, tmp_path: Path
) -> None:
    async with Seller(tmp_path / "a").open() as seller, OrdererStub(blocks, first).open() as orderer:
        seller.offer(offered)
        with pytest.raises(Refused) as caught:
            await join(tmp_path / "new", seller, orderers=[orderer])
    assert caught.value.rule == rule
    assert not (tmp_path / "new/data/channels/testchannel").exists()


async def test_several_newer_configurations_are_refused_too(tmp_path: Path) -> None:
    """Goal: a config block that does not follow directly can't be checked, and is no reason to go on."""
    async with Seller(tmp_path / "a").open() as seller, OrdererStub(ordered(15)).open() as orderer:
        seller.offer(4)
        with pytest.raises(Refused, match="no config block after 3"):
            await join(tmp_path / "new", seller, orderers=[orderer])


async def test_an_orderer_that_shows_what_nobody_signed_does_not_count(tmp_path: Path) -> None:
    lying = OrdererStub(altered(14, unsign))
    async with Seller(tmp_path / "a").open() as seller, lying.open():
        report = await join(tmp_path / "alone", seller, orderers=[lying])
        assert "orderer signatures" in report.warnings[0]
        async with OrdererStub(ordered(15)).open() as honest:
            report = await join(tmp_path / "beside", seller, orderers=[lying, honest])
        assert report.warnings == ()


async def test_nothing_is_signed_at_or_below_what_the_orderers_have(tmp_path: Path) -> None:
    async with Seller(tmp_path / "a").open() as seller, OrdererStub(ordered(15)).open() as orderer:
        await join(tmp_path / "new", seller, orderers=[orderer])
    with CheckpointStore(tmp_path / "new/data/channels/testchannel/records", CHANNEL_ID) as records:
        assert records.floor == 14
        latest = records.latest_valid
        assert latest is not None and latest.statement.number == LATEST


# -- the folder


async def test_a_channel_that_is_there_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    async with Seller(tmp_path / "a").open() as seller:
        await join(tmp_path / "new", seller)
        asked = len(seller.asked)
        (tmp_path / "new/data/channels/.joining-testchannel").mkdir()
        with pytest.raises(Conflict, match="move the folder away"):
            await join(tmp_path / "new", seller)
        assert len(seller.asked) == asked
    assert [path.name for path in (tmp_path / "new/data/channels").iterdir()] == ["testchannel"]


async def test_a_joiner_that_failed_goes_on_with_what_was_checked(tmp_path: Path) -> None:
    def chunks(seller: Seller) -> int:
        return seller.asked.count("GetChunk")

    async with Seller(tmp_path / "a").open() as seller:
        await join(tmp_path / "whole", seller)
        needed, leaves = chunks(seller), seller.asked.count("GetLeaves")

        def stop(method: str, question: bytes, honest: bytes) -> bytes | None:
            if method == "GetChunk" and pb.ChunkRequest.FromString(question).index > 1:
                raise NotFound("gone")
            return None

        seller.twist, seller.asked = stop, []
        with pytest.raises(PeerUnreachable):
            await join(tmp_path / "new", seller)
        seller.twist, seller.asked = None, []
        await join(tmp_path / "new", seller)
        assert 0 < chunks(seller) <= needed - 2
        assert leaves > 1
        assert seller.asked.count("GetLeaves") == seller.asked.count("GetHeads") == 0
    check_joined(tmp_path / "new")


async def test_what_was_kept_is_checked_again(tmp_path: Path) -> None:
    """Goal: a folder that somebody changed installs nothing false.  Method: each kept answer gets a flipped byte."""
    async with Seller(tmp_path / "a").open() as seller:

        def stop(method: str, question: bytes, honest: bytes) -> bytes | None:
            if method == "GetChunk" and pb.ChunkRequest.FromString(question).index > 1:
                raise NotFound("gone")
            return None

        seller.twist = stop
        with pytest.raises(PeerUnreachable):
            await join(tmp_path / "new", seller)
        seller.twist = None
        kept = [path for path in (tmp_path / "new/data/channels/.joining-testchannel").iterdir() if "-" in path.name]
        assert {path.name.partition("-")[0] for path in kept} >= {"GetHeads", "GetLeaves", "GetChunk"}
        for path in kept:
            content = path.read_bytes()
            path.write_bytes(flipped(content, len(content) // 2))
        report = await join(tmp_path / "new", seller)
    assert "answers" in report.sources[seller.address]
    check_joined(tmp_path / "new")


async def test_a_joined_peer_serves_the_next_joiner(tmp_path: Path) -> None:
    async with Seller(tmp_path / "a").open() as first:
        await join(tmp_path / "second", first)
    async with Seller(tmp_path / "second").open() as second:
        report = await join(tmp_path / "third", second)
    assert report.sources == {second.address: report.sources[second.address]}
    check_joined(tmp_path / "third")


# -- the source


async def test_the_block_at_an_offered_checkpoint_is_pinned_once_each_for_the_last_two(tmp_path: Path) -> None:
    async with Seller(tmp_path / "a").open() as seller:
        for turn, number in enumerate((4, 8, 8, 12, 12)):
            seller.offer(number)
            await join(tmp_path / f"new{turn}", seller)
        assert sorted(pin.number for pin in seller.store.pins()) == [8, 12]


async def test_a_stranger_is_not_answered(tmp_path: Path) -> None:
    """Goal: only organisations of the channel are answered.  Method: Org1 left in block 9."""
    from tests.kit.joining import tls_of

    settings = settings_for(tmp_path / "new")
    certificate, key = tls_of(1)
    (tmp_path / "new/tls.pem").write_bytes(certificate)
    (tmp_path / "new/tls.key").write_bytes(key)
    async with Seller(tmp_path / "a").open() as seller:
        with pytest.raises(PeerUnreachable, match="PERMISSION_DENIED"):
            await make_joiner(settings, [seller.address]).run()


def test_a_digest_of_the_wrong_length_is_no_answer() -> None:
    with pytest.raises(Refused, match="hash length"):
        from ledger.wire.joining import decode_heads

        decode_heads(bytes(pb.Heads(heads=[pb.Head(tx_root=Digest(bytes(31)))]).SerializeToString()))
