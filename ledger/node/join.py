"""How does a new peer begin at a checkpoint of others?  Step by step, each believed only as far as it was checked.

1. *Offers*: every source says which checkpoint it can be joined from; the newest is tried first.
2. *Config trail*: from the genesis block, each config block is checked by its orderer signatures under the
   configuration before it and by re-applying its update.
3. *Checkpoint*: the proof satisfies the channel's policy, and this peer's own if it has one, under the configuration
   after the checkpoint.
4. *Heads* of all blocks, against the hashes that were signed; a pinned vBlock hash, if one was given, is among them.
5. *The block at the checkpoint*, whole, signed by the orderers, naming the last config block of the trail.
6. *Freshness*: the orderers are asked for their newest block. The checkpoint must not be older than what they can still
   deliver from, and there must be no newer config block than the trail's.
7. *Leaves* of each block against its head, *chunks* of the state against the state root, from all sources at once.
8. Everything is put together beside, its roots are computed and compared, and one rename installs it.

Killed anywhere, it begins again with what was checked already, or, if the sources have moved on, anew.
"""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from ledger.client.joining import JoinClient
from ledger.client.orderer import OrdererClient
from ledger.client.tls import ClientTls
from ledger.core.block import Block
from ledger.core.channel_config import Bundle
from ledger.core.checkpoint_proof import CheckpointRules, CountedSigner, Scope
from ledger.core.errors import InvalidBlock, LedgerError, PeerUnreachable, Refused
from ledger.core.hashing import digest
from ledger.core.joining import (
    BlockHead,
    JoinOffer,
    StateChunk,
    check_checkpoint_block,
    check_chunk,
    check_heads,
    check_leaves,
    check_offer,
)
from ledger.core.names import BlockNumber, ChannelId, Digest
from ledger.core.policy import extended
from ledger.core.ports import Signer
from ledger.core.vblock import Leaf
from ledger.node.config import PeerChannel, PeerSettings
from ledger.node.files import read
from ledger.node.join_sources import AnswerFolder, Source, Sources
from ledger.node.rules import check_block, check_signatures, genesis_bundle
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.installing import Installation
from ledger.wire import joining as wire
from ledger.wire.block import decode_block
from ledger.wire.codec import CODEC
from ledger.wire.config import config_payload, next_bundle
from ledger.wire.orderer_metadata import orderer_metadata

log = logging.getLogger("peerledger.join")

ASKED_AT_ONCE = 8
"""Questions about leaves and chunks that are under way at once."""

ORDERER_TIMEOUT_S = 10.0

Progress = Callable[[str, int, int | None], None]
"""Hears what is being done, how much of it is, and how much there is."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Trust:
    """A vBlock that is known to be true."""

    number: BlockNumber
    vblock_hash: bytes


@dataclass(frozen=True, slots=True)
class Trail:
    """Where the config blocks lead."""

    blocks: tuple[Block, ...]
    """The config blocks, genesis block first."""

    before: Bundle
    """The configuration before the last of them."""

    after: Bundle
    """The configuration after it."""

    @property
    def last(self) -> Block:
        """The last config block."""
        return self.blocks[-1]


@dataclass(slots=True)
class JoinReport:
    """What was done."""

    channel: str
    checkpoint: int
    vblock_hash: str
    state_hash: str
    signers: tuple[str, ...]
    """Who signed the checkpoint."""

    warnings: tuple[str, ...]
    """What had to be trusted without a check."""

    sources: dict[str, str] = field(default_factory=dict)
    """Each source: how many answers it gave, or why it was dropped."""


class Joiner:
    """Joins one channel.

    Args:
        settings: The peer's settings.
        channel: The channel's settings.
        signer: The peer's identity, to ask orderers with.
        addresses: Checkpointing addresses of peers to join from.
        trust: A vBlock that is known to be true.
        tell: Hears of progress.
    """

    def __init__(
        self,
        settings: PeerSettings,
        channel: PeerChannel,
        signer: Signer,
        addresses: Sequence[str],
        trust: Trust | None,
        tell: Progress,
    ) -> None:
        """Read the genesis block, which is the trust root.

        Raises:
            InvalidBlock: It is none.
            InvalidPolicy: The local policy of the settings is none.
        """
        self._settings = settings
        self._signer = signer
        self._genesis = read(channel.genesis)
        self._first = genesis_bundle(self._genesis)
        self._channel_id = ChannelId(self._first.channel_id)
        local = settings.checkpoint.lcvp
        self._rules = CheckpointRules(extended.parse(local) if local is not None else None)
        self._orderers = channel.orderers
        self._trust = trust
        self._tell = tell
        tls = ClientTls(
            b"\n".join(read(path) for path in settings.tls.roots), read(settings.tls.certificate),
            read(settings.tls.key),
        )  # fmt: skip
        self._tls = tls
        self._addresses = tuple(addresses)
        self._sources = Sources(())
        self._folder = settings.data_dir / "channels" / f".joining-{self._channel_id}"

    async def run(self) -> JoinReport:
        """Join.

        Raises:
            Conflict: The channel has a ledger already.
            PeerUnreachable: Nobody can be joined from; the text says why of each source.
            Refused: The checkpoint is not fresh.
            StorageFailed: The disk failed.
        """
        self._sources = Sources([Source(address, JoinClient(address, self._tls)) for address in self._addresses])
        try:
            offer, trail, signers = await self._choose()
            heads = await self._heads(offer)
            whole = await self._checkpoint_block(offer, trail, heads[-1])
            floor, warnings = await self._check_freshness(offer, trail)
            await self._install(offer, trail, heads, whole, floor)
        finally:
            await self._sources.close()
        statement = offer.proof.statement
        return JoinReport(
            self._channel_id, statement.number, statement.vblock_hash.hex(), statement.state_hash.hex(),
            tuple(f"{one.identity.msp_id} {one.name}" for one in signers), warnings,
            {one.address: one.dropped or f"{one.answers} answers" for one in self._sources.all},
        )  # fmt: skip

    # -- steps 1 to 3

    async def _choose(self) -> tuple[JoinOffer, Trail, tuple[CountedSigner, ...]]:
        """Find the newest checkpoint that somebody offers and that is valid."""
        question = wire.encode_offer_question(self._channel_id)
        self._tell("asking for checkpoints", 0, len(self._sources.all))
        asked = [self._sources.ask_one(one, "GetOffer", question, wire.decode_offer) for one in self._sources.all]
        offers = [
            (source, offer)
            for source, offer in zip(self._sources.all, await asyncio.gather(*asked), strict=True)
            if offer is not None
        ]
        failure: LedgerError | None = None
        for number in sorted({offer.number for _, offer in offers}, reverse=True):
            same = [(source, offer) for source, offer in offers if offer.number == number and not source.dropped]
            for source, offer in same:
                try:
                    trail = await self._trail(source, offer)
                    config_digest = digest(trail.last.envelopes[0])
                    signers = check_offer(offer, self._channel_id, trail.after, config_digest, self._rules)
                except LedgerError as error:
                    failure = error
                    self._sources.drop(source, error)
                    continue
                self._keep_those_of(offer, offers)
                return offer, trail, signers
        raise self._sources.none_left() from failure

    def _keep_those_of(self, chosen: JoinOffer, offers: Iterable[tuple[Source, JoinOffer]]) -> None:
        """Ask no more who offers something else."""
        for source, offer in offers:
            if offer.proof.statement != chosen.proof.statement or offer.chunk_bits != chosen.chunk_bits:
                text = f"it offers checkpoint {offer.number}, and {chosen.number} is joined from"
                self._sources.drop(source, PeerUnreachable(text))

    async def _trail(self, source: Source, offer: JoinOffer) -> Trail:
        """Follow the config blocks that a source names, from the genesis block on (step 2)."""
        genesis = decode_block(self._genesis)
        blocks, before, after = [genesis], self._first, self._first
        for number in offer.config_numbers[1:]:
            self._tell("config blocks", len(blocks), len(offer.config_numbers))
            question = wire.BlockQuestion(self._channel_id, number, offer.number)
            answer = await source.client.ask("GetConfigBlock", wire.encode_block_question(question))
            block = decode_block(wire.decode_block_answer(answer))
            if block.number != number:
                raise InvalidBlock(f"config block {number}", rule="block number", expected=number, found=block.number)
            check_block(block)
            check_signatures(block, after)
            before, after = after, next_bundle(after, config_payload(block.envelopes[0])[1], CODEC)
            blocks.append(block)
        return Trail(tuple(blocks), before, after)

    # -- steps 4 to 6

    async def _heads(self, offer: JoinOffer) -> tuple[BlockHead, ...]:
        """Get the heads of all blocks from one source, and check them together (step 4)."""
        count = offer.number + 1
        while self._sources.left:
            source = self._sources.left[0]
            heads: list[BlockHead] = []
            try:
                while len(heads) < count:
                    question = wire.BlockQuestion(self._channel_id, BlockNumber(len(heads)), offer.number)
                    page = wire.decode_heads(await source.client.ask("GetHeads", wire.encode_block_question(question)))
                    if not page:
                        raise InvalidBlock("heads", rule="block count", expected=count, found=len(heads))
                    heads += page
                    self._tell("heads of blocks", len(heads), count)
                hashes = check_heads(heads, offer.proof.statement)
            except LedgerError as error:
                self._sources.drop(source, error)
                continue
            self._check_trust(hashes)
            return tuple(heads)
        raise self._sources.none_left()

    def _check_trust(self, hashes: Sequence[Digest]) -> None:
        """Check the pinned vBlock."""
        trust = self._trust
        if trust is None:
            return
        found = hashes[trust.number] if trust.number < len(hashes) else None
        if found != trust.vblock_hash:
            raise InvalidBlock(
                f"vBlock {trust.number}", rule="pinned vBlock hash", expected=trust.vblock_hash,
                found=found or f"none: the checkpoint is at block {len(hashes) - 1}",
            )  # fmt: skip

    async def _checkpoint_block(self, offer: JoinOffer, trail: Trail, head: BlockHead) -> Block:
        """Get the block at the checkpoint whole (step 5)."""
        before = trail.before if trail.last.number == offer.number else trail.after

        def check(answer: bytes) -> Block:
            block = decode_block(wire.decode_block_answer(answer))
            check_checkpoint_block(block, head, orderer_metadata(block, before), before, trail.last.number)
            return block

        if offer.number == 0:
            return trail.last
        question = wire.BlockQuestion(self._channel_id, offer.number, offer.number)
        return await self._sources.ask("GetCheckpointBlock", wire.encode_block_question(question), check)

    async def _check_freshness(self, offer: JoinOffer, trail: Trail) -> tuple[int, tuple[str, ...]]:
        """Ask the orderers how far they are (step 6); give the newest height known, and what was not checked.

        Raises:
            Refused: There is a newer config block, or the orderers can't deliver what follows any more.
        """
        for setting in self._orderers:
            orderer = OrdererClient(setting.address, ClientTls(read(setting.tls_roots), self._tls.certificate,
                                                               self._tls.key))  # fmt: skip
            try:
                async with asyncio.timeout(ORDERER_TIMEOUT_S):
                    newest = decode_block(await orderer.newest_block(self._channel_id, self._signer))
                    await self._check_newest(newest, offer, trail, orderer)
                return max(newest.number, offer.number), ()
            except (PeerUnreachable, TimeoutError) as error:
                log.info("orderer_not_asked", extra={"orderer": setting.address, "reason": str(error)})
            finally:
                await orderer.close()
        if self._trust is not None or self._rules.local_policy is not None:
            return offer.number, ("no orderer answered: whether the checkpoint is fresh was not checked",)
        return offer.number, (
            "no orderer answered, and neither a local policy nor a pinned vBlock was given: that those who signed were "
            "still members when they did rests on the sources' word",
        )

    async def _check_newest(self, newest: Block, offer: JoinOffer, trail: Trail, orderer: OrdererClient) -> None:
        """Check what the orderers say of their newest block."""
        subject = f"checkpoint {offer.number}"
        if newest.number < offer.number:
            raise Refused(subject, rule="freshness", expected=f"at most block {newest.number}, the orderers' newest",
                          found=offer.number)  # fmt: skip
        if newest.number == 0:
            return
        metadata = orderer_metadata(newest, trail.after)
        if metadata.last_config > trail.last.number:
            raise Refused(
                subject, rule="newer configuration", expected=f"none after block {trail.last.number}",
                found=f"config block {metadata.last_config}; join once a checkpoint above it is valid",
            )  # fmt: skip
        check_signatures(newest, trail.after)
        if newest.number > offer.number:
            following = decode_block(await orderer.block(self._channel_id, self._signer, offer.number + 1))
            if following.number != offer.number + 1:
                raise Refused(subject, rule="freshness", expected=f"orderers that deliver block {offer.number + 1}",
                              found=following.number)  # fmt: skip

    # -- steps 7 and 8

    async def _install(
        self, offer: JoinOffer, trail: Trail, heads: Sequence[BlockHead], whole: Block, floor: int
    ) -> None:
        """Get leaves and state, put everything together and install it."""
        statement = offer.proof.statement
        answers = AnswerFolder(self._folder, statement.encoded + bytes((offer.chunk_bits,)))
        chk = self._settings.checkpoint.interval_blocks
        installation = Installation(self._settings.data_dir, statement, offer.config_numbers, chk=chk)
        try:
            blocks = {block.number: block for block in (*trail.blocks, whole)}
            await self._add_blocks(offer, heads, blocks, installation, answers)
            await self._add_chunks(offer, installation, answers)
            self._tell("comparing with what was signed", 0, None)
            with CheckpointStore(installation.records_directory, self._channel_id) as records:
                records.record_valid(offer.proof, Scope.FULL)
                records.raise_floor(floor)
            await asyncio.to_thread(installation.finish)
        except BaseException:
            installation.abandon()
            raise
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _add_blocks(
        self,
        offer: JoinOffer,
        heads: Sequence[BlockHead],
        whole: dict[BlockNumber, Block],
        installation: Installation,
        answers: AnswerFolder,
    ) -> None:
        """Get the leaves of all blocks, in order."""
        number = BlockNumber(0)
        while number <= offer.number:
            question = wire.encode_block_question(wire.BlockQuestion(self._channel_id, number, offer.number))
            page = await self._sources.ask("GetLeaves", question, partial(checked_leaves, heads, number), answers)
            for each, leaves in page:
                installation.add_block(heads[each], leaves, whole.get(each))
            number = BlockNumber(number + len(page))
            self._tell("leaves of blocks", number, offer.number + 1)

    async def _add_chunks(self, offer: JoinOffer, installation: Installation, answers: AnswerFolder) -> None:
        """Get the chunks of the state, several at once."""
        count = 1 << offer.chunk_bits
        done = 0

        async def get(index: int) -> StateChunk:
            question = wire.encode_chunk_question(wire.ChunkQuestion(self._channel_id, offer.number, index))
            return await self._sources.ask("GetChunk", question, partial(checked_chunk, offer, index), answers)

        async def add(chunk: StateChunk) -> None:
            nonlocal done
            installation.add_entries(chunk.entries)
            done += 1
            self._tell("chunks of the state", done, count)

        await at_once(range(count), get, add)


async def at_once(
    items: Iterable[int], get: Callable[[int], Awaitable[Item]], use: Callable[[Item], Awaitable[None]]
) -> None:
    """Get some at once, and use them one by one as they come."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await use(await get(item))

    async with asyncio.TaskGroup() as group:
        for _ in range(ASKED_AT_ONCE):
            group.create_task(worker())


def checked_leaves(
    heads: Sequence[BlockHead], number: BlockNumber, answer: bytes
) -> tuple[tuple[BlockNumber, tuple[Leaf, ...]], ...]:
    """Read leaves of blocks from a number on and check each block's against its head.

    Raises:
        MalformedMessage, InvalidBlock: They are none, of other blocks, or not those of the heads.
    """
    page = wire.decode_leaves(answer)
    if not page or number + len(page) > len(heads):
        raise InvalidBlock(f"leaves from block {number} on", rule="block count", expected="some", found=len(page))
    for expected, (found, leaves) in enumerate(page, number):
        if found != expected:
            raise InvalidBlock(f"leaves of block {expected}", rule="block number", expected=expected, found=found)
        check_leaves(heads[expected], leaves)
    return page


def checked_chunk(offer: JoinOffer, index: int, answer: bytes) -> StateChunk:
    """Read a chunk of the state and check it against the state root.

    Raises:
        MalformedMessage, InvalidProof: It is none, another one, or not that of the root.
    """
    chunk = wire.decode_chunk(answer)
    if chunk.index != index:
        raise InvalidBlock(f"chunk {index}", rule="chunk index", expected=index, found=chunk.index)
    check_chunk(chunk, offer.chunk_bits, offer.state_root)
    return chunk


__all__ = ["JoinReport", "Joiner", "Trust"]
