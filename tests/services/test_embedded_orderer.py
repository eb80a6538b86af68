"""One orderer with its log: how blocks are cut, what an acknowledgement is worth, and what a restart goes on from."""

import asyncio
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from subprocess import PIPE

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fabric_protos.common import common_pb2
from fabric_protos.orderer import configuration_pb2 as orderer_pb2

from ledger.core.blockcutter import Waiting, add
from ledger.core.channel_config import BatchSize, ConfigGroup
from ledger.core.errors import InvalidBlock, StorageDamaged, StorageFailed
from ledger.core.hashing import data_hash, header_hash
from ledger.core.names import BlockNumber
from ledger.core.orderer_signatures import check_orderer_signatures
from ledger.services.ordering import embedded
from ledger.services.ordering.embedded import Answer, EmbeddedOrderer
from ledger.storage.order_log import OrderLog
from ledger.storage.record_log import SEAL_BYTES
from ledger.wire.block import check_well_formed, decode_block, encode_block, is_config_block
from ledger.wire.codec import CODEC
from ledger.wire.orderer_metadata import orderer_metadata
from tests.kit.channel import Channel, genesis_of
from tests.kit.orderer_node import Clock, batching, plain, update_envelope
from tests.kit.organisations import shared_organisation
from tests.kit.paths import ROOT

ORDERERS = shared_organisation("OrdererMSP")
CLIENT = shared_organisation("Org1MSP").client
DONE = Answer(200)


def base_tree() -> ConfigGroup:
    return Channel().tree


def envelopes(count: int, data: bytes = b"no transaction") -> list[bytes]:
    return [plain(CLIENT, data=data).envelope() for _ in range(count)]


def size_update(count: int, version: int = 1) -> bytes:
    size = orderer_pb2.BatchSize(max_message_count=count, absolute_max_bytes=10**6, preferred_max_bytes=10**5)
    return update_envelope(
        ["Orderer"], {"BatchSize": size}, version=version, signers=[ORDERERS.admin], creator=ORDERERS.admin
    ).envelope()


@contextlib.asynccontextmanager
async def ordering(directory: Path, tree: ConfigGroup, log: OrderLog | None = None) -> AsyncIterator[EmbeddedOrderer]:
    """Run an orderer until the block ends."""
    channel = Channel(tree=tree)
    log = log or OrderLog(directory)
    orderer = EmbeddedOrderer(log, encode_block(channel.genesis), channel.orderer, CODEC, Clock())
    running = asyncio.create_task(orderer.run())
    try:
        yield orderer
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        log.close()


async def send(orderer: EmbeddedOrderer, sent: Sequence[bytes]) -> list[Answer]:
    """Send all at once, in this order."""
    async with asyncio.timeout(10):
        return list(await asyncio.gather(*(orderer.broadcast(each) for each in sent)))


def counts(orderer: EmbeddedOrderer) -> list[int]:
    """Envelopes of each block behind the genesis block."""
    return [
        len(decode_block(orderer.block_bytes(BlockNumber(number))).envelopes) for number in range(1, orderer.height)
    ]


def assert_chain(orderer: EmbeddedOrderer, tree: ConfigGroup) -> list[bytes]:
    """Check every block as a peer does, and give all envelopes in their order."""
    found: list[bytes] = []
    channel = Channel(tree=tree)
    previous, last_config = b"", 0
    for number in range(orderer.height):
        block = decode_block(orderer.block_bytes(BlockNumber(number)))
        assert (block.number, block.header.previous_hash) == (number, previous)
        assert block.header.data_hash == data_hash(block.envelopes)
        if number:
            check_well_formed(block)
            check_orderer_signatures(block, orderer_metadata(block, channel.bundle), channel.bundle)
            found += block.envelopes
            slot = common_pb2.Metadata.FromString(block.metadata[0])
            told = common_pb2.OrdererBlockMetadata.FromString(slot.value).last_config.index
            last_config = number if is_config_block(block) else last_config
            assert told == last_config
        previous = header_hash(block.number, block.header.previous_hash, block.header.data_hash)
    return found


# How blocks are cut.


def test_blocks_are_cut_by_count_size_and_the_largest_alone() -> None:
    """The pure machine, by Fabric's rule: (sizes offered, sizes in each block, sizes that wait)."""
    limits = BatchSize(max_message_count=3, absolute_max_bytes=1_000, preferred_max_bytes=100)
    cases: list[tuple[list[int], list[list[int]], list[int]]] = [
        ([10, 10], [], [10, 10]),
        ([10, 11, 12], [[10, 11, 12]], []),
        ([10, 11, 12, 13], [[10, 11, 12]], [13]),
        ([60, 40], [], [60, 40]),
        ([60, 41], [[60]], [41]),
        ([100], [], [100]),
        ([101], [[101]], []),
        ([10, 101], [[10], [101]], []),
        ([10, 101, 20], [[10], [101]], [20]),
        ([90, 20, 20, 20], [[90], [20, 20, 20]], []),
        ([101, 102], [[101], [102]], []),
    ]
    for offered, expected, left in cases:
        waiting: Waiting[int] = Waiting()
        blocks: list[list[int]] = []
        for size in offered:
            cut, waiting = add(waiting, size, size, limits)
            blocks += [list(batch) for batch in cut]
        assert (blocks, list(waiting.messages), waiting.size_bytes) == (expected, left, sum(left)), offered


async def test_full_batch_is_cut_at_once_and_the_rest_when_the_time_is_over(tmp_path: Path) -> None:
    tree = batching(base_tree(), count=4, timeout="150ms")
    async with ordering(tmp_path, tree) as orderer:
        loop = asyncio.get_running_loop()
        sent, began = envelopes(10), loop.time()
        ends: list[float] = []

        async def one(envelope: bytes) -> Answer:
            answer = await orderer.broadcast(envelope)
            ends.append(loop.time() - began)
            return answer

        assert await asyncio.gather(*map(one, sent)) == [DONE] * 10
        assert counts(orderer) == [4, 4, 2]
        assert max(ends[:8]) < 0.15 <= min(ends[8:])
        assert assert_chain(orderer, tree) == sent


async def test_time_runs_from_the_first_that_waits_and_later_ones_do_not_prolong_it(tmp_path: Path) -> None:
    tree = batching(base_tree(), count=1_000, timeout="200ms")
    async with ordering(tmp_path, tree) as orderer:
        began = asyncio.get_running_loop().time()
        first = asyncio.create_task(orderer.broadcast(envelopes(1)[0]))
        others = []
        while not first.done():
            others.append(asyncio.create_task(orderer.broadcast(envelopes(1)[0])))
            await asyncio.sleep(0.02)
        assert 0.2 <= asyncio.get_running_loop().time() - began < 1
        assert len(others) > 3
        await asyncio.gather(*others)
        assert counts(orderer)[0] > 3


async def test_batch_is_cut_before_it_gets_larger_than_preferred_and_a_large_one_goes_alone(tmp_path: Path) -> None:
    tree = batching(base_tree(), count=1_000, preferred=5_000, timeout="100ms")
    async with ordering(tmp_path, tree) as orderer:
        small, large = envelopes(3, data=bytes(1_000)), envelopes(1, data=bytes(6_000))
        sent = [*small[:2], *large, small[2]]
        assert await send(orderer, sent) == [DONE] * 4
        assert counts(orderer) == [2, 1, 1]
        assert assert_chain(orderer, tree) == sent


async def test_configuration_goes_alone_behind_what_waited_and_before_what_follows(tmp_path: Path) -> None:
    tree = batching(base_tree(), count=10, timeout="100ms")
    async with ordering(tmp_path, tree) as orderer:
        before, after = envelopes(2), envelopes(3)
        assert await send(orderer, [*before, size_update(2), *after]) == [DONE] * 6
        assert counts(orderer) == [2, 1, 2, 1]
        found = assert_chain(orderer, tree)
        assert (found[:2], found[3:]) == (before, after)
        assert is_config_block(decode_block(orderer.block_bytes(BlockNumber(2))))


async def test_more_than_may_wait_are_told_to_come_back_and_nothing_else_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "QUEUE_MAX", 5)
    tree = batching(base_tree(), count=100, timeout="50ms")
    async with ordering(tmp_path, tree) as orderer:
        sent = envelopes(9)
        answers = await send(orderer, sent)
        taken = [envelope for envelope, answer in zip(sent, answers, strict=True) if answer == DONE]
        assert [answer.status for answer in answers] == [200] * 5 + [503] * 4
        assert answers[-1].info == "5 envelopes are waiting; send it again later"
        assert assert_chain(orderer, tree) == taken


# What an acknowledgement is worth.


class SlowLog(OrderLog):
    """A log whose disk takes its time, or fails, when it is told to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.may_write = threading.Event()
        self.may_write.set()
        self.failures = 0
        self.writing = threading.Event()

    def append(self, number: BlockNumber, block: bytes) -> None:
        self.writing.set()
        assert self.may_write.wait(10)
        if self.failures:
            self.failures -= 1
            raise StorageFailed("the disk of this test failed")
        super().append(number, block)


async def test_nothing_is_acknowledged_or_delivered_before_its_block_is_synced(tmp_path: Path) -> None:
    log = SlowLog(tmp_path)
    async with ordering(tmp_path, batching(base_tree(), count=1), log) as orderer:
        log.writing.clear()
        log.may_write.clear()
        sending = asyncio.create_task(orderer.broadcast(envelopes(1)[0]))
        assert await asyncio.to_thread(log.writing.wait, 5)
        await asyncio.sleep(0.05)
        assert not sending.done()
        assert orderer.height == 1
        log.may_write.set()
        assert await asyncio.wait_for(sending, 5) == DONE
        assert orderer.height == 2


async def test_failing_disk_is_unavailable_to_the_senders_and_the_next_block_takes_the_number(tmp_path: Path) -> None:
    log, tree = SlowLog(tmp_path), batching(base_tree(), count=1)
    async with ordering(tmp_path, tree, log) as orderer:
        log.failures = 2
        lost, update, good = envelopes(1)[0], size_update(1), envelopes(1)[0]
        assert await send(orderer, [lost]) == [Answer(503, "the orderer's disk failed")]
        assert await send(orderer, [update]) == [Answer(503, "the orderer's disk failed")]
        assert orderer.bundle.sequence == 0, "a configuration that is not durable is not in force"
        assert await send(orderer, [good]) == [DONE]
        assert assert_chain(orderer, tree) == [good]


async def test_stop_under_a_write_waits_for_it_and_the_log_stays_whole(tmp_path: Path) -> None:
    log, tree = SlowLog(tmp_path), batching(base_tree(), count=1)
    async with ordering(tmp_path, tree, log) as orderer:
        log.writing.clear()
        log.may_write.clear()
        sending = asyncio.create_task(orderer.broadcast(envelopes(1)[0]))
        assert await asyncio.to_thread(log.writing.wait, 5)
        asyncio.get_running_loop().call_later(0.1, log.may_write.set)
    assert not sending.done(), "whether it is ordered is not said"
    sending.cancel()
    again = OrderLog(tmp_path)
    assert again.height == 2
    again.close()


CHILD = """
import asyncio, pickle, sys
from pathlib import Path
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from ledger.services.ordering.embedded import EmbeddedOrderer
from ledger.storage.order_log import OrderLog
from ledger.storage.record_log import SEAL_BYTES
from ledger.wire.codec import CODEC
from tests.kit.orderer_node import Clock
from tests.kit.organisations import Signer

directory, genesis, (msp_id, certificate, serialized, key), sent = pickle.load(sys.stdin.buffer)
signer = Signer(msp_id, certificate, serialized, load_pem_private_key(key, None))

async def one(orderer, index, envelope):
    answer = await orderer.broadcast(envelope)
    if answer.status == 200:
        print(index, flush=True)

async def main():
    orderer = EmbeddedOrderer(OrderLog(Path(directory)), genesis, signer, CODEC, Clock())
    running = asyncio.create_task(orderer.run())
    for start in range(0, len(sent), 3):
        await asyncio.gather(*(one(orderer, start + at, each) for at, each in enumerate(sent[start : start + 3])))

asyncio.run(main())
"""
"""An orderer in its own process that says which envelopes it has acknowledged."""


def run_and_kill(directory: Path, channel: Channel, sent: Sequence[bytes], acknowledged_min: int) -> list[int]:
    """Run the child, kill it -9 once it has acknowledged so many; give which."""
    signer = channel.orderer
    key = signer.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    parts = (signer.msp_id, signer.certificate, signer.serialized, key)
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=PIPE, stdout=PIPE, cwd=ROOT)
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(pickle.dumps((str(directory), encode_block(channel.genesis), parts, list(sent))))
    child.stdin.close()
    acknowledged = [int(child.stdout.readline()) for _ in range(acknowledged_min)]
    os.kill(child.pid, signal.SIGKILL)
    rest = child.stdout.read().split(b"\n")
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL, "it was still at work"
    return acknowledged + [int(line) for line in rest if line]


def test_kill_nine_loses_nothing_that_was_acknowledged_and_the_chain_goes_on(tmp_path: Path) -> None:
    """Goal: an acknowledged envelope is in the order, whatever happens then.  Method: kill three processes in a row."""
    tree = batching(base_tree(), count=2, timeout="5ms")
    channel = Channel(tree=tree)
    told: list[bytes] = []
    for acknowledged_min in (1, 40, 17):
        sent = envelopes(600)
        told += [sent[index] for index in run_and_kill(tmp_path, channel, sent, acknowledged_min)]
        log = OrderLog(tmp_path)
        orderer = EmbeddedOrderer(log, encode_block(channel.genesis), channel.orderer, CODEC, Clock())
        found = assert_chain(orderer, tree)
        log.close()
        assert len(set(found)) == len(found), "nothing twice"
        assert set(told) <= set(found)


# Starting again.


async def test_restart_goes_on_with_chain_and_configuration_of_the_log(tmp_path: Path) -> None:
    tree = batching(base_tree(), count=1, timeout="50ms")
    first, second = envelopes(2), envelopes(3)
    async with ordering(tmp_path, tree) as orderer:
        await send(orderer, [first[0], size_update(2), first[1]])
        await send(orderer, envelopes(1))
        height = orderer.height
    async with ordering(tmp_path, tree) as orderer:
        assert (orderer.height, orderer.feed.height) == (height, height)
        assert (orderer.bundle.sequence, orderer.bundle.orderer.batch_size.max_message_count) == (1, 2)
        assert await send(orderer, [*second[:2], size_update(1, version=2), second[2]]) == [DONE] * 4
        assert counts(orderer)[height - 1 :] == [2, 1, 1]
        assert assert_chain(orderer, tree)[-1] == second[2]


async def test_torn_last_block_is_out_of_the_order_and_its_number_is_given_again(tmp_path: Path) -> None:
    tree = batching(base_tree(), count=1)
    sent = envelopes(3)
    async with ordering(tmp_path, tree) as orderer:
        await send(orderer, sent)
    path = tmp_path / "blocks.log"
    os.truncate(path, path.stat().st_size - SEAL_BYTES - 5)
    async with ordering(tmp_path, tree) as orderer:
        assert orderer.height == 3
        (another,) = envelopes(1)
        await send(orderer, [another])
        assert assert_chain(orderer, tree) == [*sent[:2], another]


async def test_damaged_log_stops_the_start_and_is_named(tmp_path: Path) -> None:
    async with ordering(tmp_path, batching(base_tree(), count=1)) as orderer:
        await send(orderer, envelopes(3))
    path = tmp_path / "blocks.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(StorageDamaged, match=r"blocks\.log: record \d is damaged"):
        async with ordering(tmp_path, base_tree()):
            pytest.fail("it runs on a damaged log")


async def test_log_of_another_genesis_block_is_refused_with_both_hashes(tmp_path: Path) -> None:
    async with ordering(tmp_path, batching(base_tree(), count=1)) as orderer:
        await send(orderer, envelopes(1))
    other = genesis_of(batching(base_tree(), count=7))
    log = OrderLog(tmp_path)
    with pytest.raises(InvalidBlock) as caught:
        EmbeddedOrderer(log, encode_block(other), Channel().orderer, CODEC, Clock())
    assert caught.value.rule == "genesis block"
    header = other.header
    assert caught.value.found == header_hash(header.number, header.previous_hash, header.data_hash)
    assert caught.value.expected != caught.value.found
    log.close()
