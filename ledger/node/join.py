"""How does a new peer begin at a checkpoint of others?  Step by step, each believed only as far as it was checked.

1. *Offers*: every source says which checkpoint it can be joined from; the newest is tried first.
2. *Config trail*: from the genesis block, each config block is checked by its orderer signatures under the
   configuration before it and by re-applying its update.
3. *Checkpoint*: the proof satisfies the channel's policy, and this peer's own if it has one, under the configuration
   after the checkpoint.
4. *Heads* of all blocks, against the hashes that were signed; a pinned vBlock hash, if one was given, is among them;
   and the config blocks of the trail are those of their heads.
5. *The block at the checkpoint*, whole, signed by the orderers, naming the last config block of the trail: else peers
   that were members once could leave out the configuration that removed them, and sell a false state.
6. *Freshness*, see `join_freshness`.
7. *Leaves* of each block against its head, *chunks* of the state against the state root, from all sources at once.
8. Everything is put together beside, its roots are computed and compared, and one rename installs it.

Where all sources of one checkpoint fail, those of the next older one are tried; then, as long as a round brought
anything new, all that did not lie are asked again: the sources may have moved on to a newer checkpoint meanwhile.

Killed anywhere, it begins again with what was checked already, and checks that again.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ledger.client.joining import JoinClient
from ledger.client.orderer import OrdererClient
from ledger.client.tls import ClientTls
from ledger.core.block import Block, block_hash
from ledger.core.channel_config import Bundle
from ledger.core.checkpoint_proof import CheckpointRules, Scope
from ledger.core.errors import (
    Conflict,
    InvalidBlock,
    InvalidCheckpoint,
    InvalidProof,
    LedgerError,
    PeerUnreachable,
)
from ledger.core.hashing import digest
from ledger.core.joining import (
    BlockHead,
    HeadChain,
    JoinOffer,
    StateChunk,
    check_checkpoint_block,
    check_chunk,
    check_is_of,
    check_offer,
)
from ledger.core.names import BlockNumber, ChannelId, Digest
from ledger.core.policy import extended
from ledger.core.ports import Signer
from ledger.core.vblock import Leaf
from ledger.node.config import PeerChannel, PeerSettings
from ledger.node.files import read
from ledger.node.join_blocks import Heads, fetch_heads, fetch_leaves, leaf_pages
from ledger.node.join_freshness import Anchor, newest_height
from ledger.node.join_sources import AnswerFolder, NobodyLeft, Source, Sources, first_of, in_order
from ledger.node.join_values import Checked, JoinReport, Trail, Trust, WrongHistory
from ledger.node.rules import check_block, check_signatures, genesis_bundle
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.files import DirectoryLock
from ledger.storage.installing import Installation, installing_folder
from ledger.wire import joining as wire
from ledger.wire.block import decode_block
from ledger.wire.codec import CODEC
from ledger.wire.config import config_payload, next_bundle
from ledger.wire.orderer_metadata import orderer_metadata

log = logging.getLogger("peerledger.join")

OFFER_WAIT_S = 600.0
"""How long a peer may take to cut its state into chunks for the first joiner, where nobody else offers anything."""

OFFER_GRACE_S = 11.0
"""How long the others are waited for once somebody has offered something: longer than one answer may take."""

ROUNDS_MAX = 8
"""How often the sources are asked for offers."""

Progress = Callable[[str, int, int | None], None]
"""Hears what is being done, how much of it is, and how much there is."""

Offered = tuple[Source, JoinOffer]


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
        self._addresses = tuple(dict.fromkeys(addresses))
        self._sources = Sources(())
        self._target = settings.data_dir / "channels" / self._channel_id
        self._folder = self._target.with_name(f".joining-{self._channel_id}")

    async def run(self) -> JoinReport:
        """Join.

        Raises:
            Conflict: The channel has a ledger already, or another process is joining.
            PeerUnreachable: Nobody can be joined from; the text says why of each source.
            Refused: The checkpoint is not fresh, or not that of the pinned vBlock.
            StorageFailed: The disk failed.
        """
        if self._target.exists():
            remove(self._folder, installing_folder(self._target))
            raise Conflict(
                f"{self._target} is there already: the channel {self._channel_id} has a ledger. To join anew, stop the "
                "peer and move the folder away"
            )
        answers = AnswerFolder(self._folder)
        lock = DirectoryLock(self._folder / "LOCK")
        self._sources = Sources([Source(address, JoinClient(address, self._tls)) for address in self._addresses])
        try:
            checked = await self._rounds(answers)
            remove(self._folder)
        finally:
            await self._sources.close()
            lock.close()
        statement = checked.offer.proof.statement
        return JoinReport(
            self._channel_id, statement.number, statement.vblock_hash.hex(), statement.state_hash.hex(),
            tuple(f"{one.identity.msp_id} {one.name}" for one in checked.signers), checked.warnings,
            {one.address: one.in_words for one in self._sources.all},
        )  # fmt: skip

    async def _rounds(self, answers: AnswerFolder) -> Checked:
        """Ask for offers and join from one, again as long as that brings anything new."""
        for _ in range(ROUNDS_MAX):
            before = self._sources.progress
            try:
                return await self._round(answers)
            except NobodyLeft as error:
                if self._sources.progress == before:
                    raise
                log.info("join_begins_again", extra={"reason": str(error)})
                self._sources.take_back()
        raise self._sources.none_left()

    async def _round(self, answers: AnswerFolder) -> Checked:
        """Join from the newest checkpoint that somebody offers and that can be joined from.

        Raises:
            NobodyLeft: There is none.
        """
        offers = await self._offers()
        groups: dict[tuple[BlockNumber, bytes], list[Offered]] = {}
        for source, offer in offers:
            about = offer.proof.statement.encoded + offer.state_root + bytes((offer.chunk_bits,))
            groups.setdefault((offer.number, about), []).append((source, offer))
        for (number, about), group in sorted(groups.items(), key=lambda pair: (pair[0][0], len(pair[1])), reverse=True):
            for source, offer in offers:
                source.aside = "" if (source, offer) in group else f"it offers checkpoint {offer.number}, not {number}"
            try:
                checked = await self._check(group, answers)
                answers.begin(about)
                await self._install(checked, answers)
            except NobodyLeft as error:
                log.info("checkpoint_given_up", extra={"checkpoint": number, "reason": str(error)})
                continue
            return checked
        raise self._sources.none_left()

    # -- steps 1 to 3

    async def _offers(self) -> list[Offered]:
        """Ask all sources for offers; those that are busy are waited for only where nobody else offers anything."""
        self._tell("asking for checkpoints", 0, len(self._sources.left))
        question = wire.encode_offer_question(self._channel_id)
        tasks = {
            asyncio.create_task(
                self._sources.ask_one(one, "GetOffer", question, self._read_offer, busy_s_max=OFFER_WAIT_S)
            ): one
            for one in self._sources.left
        }
        waiting = set(tasks)
        found: list[Offered] = []
        while waiting:
            done, waiting = await asyncio.wait(waiting, timeout=OFFER_GRACE_S, return_when=asyncio.FIRST_COMPLETED)
            found += [(tasks[one], offer) for one in done if (offer := one.result()) is not None]
            if not done and found:
                break
            if not done:
                self._tell("waiting for a peer that prepares its state", 0, None)
        for one in waiting:
            one.cancel()
            self._sources.drop(tasks[one], PeerUnreachable("it was still preparing its state when others were ready"))
        return found

    def _read_offer(self, answer: bytes) -> JoinOffer:
        """Read an offer; one of another channel is none."""
        offer = wire.decode_offer(answer)
        if offer.channel != self._channel_id:
            raise InvalidCheckpoint("join offer", rule="channel", expected=self._channel_id, found=offer.channel)
        return offer

    async def _check(self, group: Sequence[Offered], answers: AnswerFolder) -> Checked:
        """Do steps 2 to 6 for a checkpoint that some sources offer.

        Raises:
            NobodyLeft: None of them can show it.
            Refused: It is not fresh, or not that of the pinned vBlock.
        """
        for source, offer in group:
            if source.dropped:
                continue
            try:
                trail = await self._trail(source, offer)
                signers = check_offer(
                    offer, self._channel_id, trail.after, digest(trail.last.envelopes[0]), self._rules
                )
                heads = await self._heads(offer, trail, answers)
            except (NobodyLeft, WrongHistory):
                raise
            except LedgerError as error:
                self._sources.drop(source, error)
                continue
            whole = await self._checkpoint_block(offer, trail, heads[offer.number], answers)
            floor, warnings = await self._check_freshness(offer, trail, whole)
            return Checked(offer, trail, signers, heads, whole, floor, warnings)
        raise self._sources.none_left()

    async def _trail(self, source: Source, offer: JoinOffer) -> Trail:
        """Follow the config blocks that a source names, from the genesis block on (step 2)."""
        genesis = decode_block(self._genesis)
        blocks, before, after = [genesis], self._first, self._first

        def check(number: BlockNumber, bundle: Bundle, answer: bytes) -> tuple[Block, Bundle]:
            block = decode_block(wire.decode_block_answer(answer))
            if block.number != number:
                raise InvalidBlock(f"config block {number}", rule="block number", expected=number, found=block.number)
            check_block(block)
            check_signatures(block, bundle)
            if len(block.envelopes) != 1:
                raise InvalidBlock(f"config block {number}", rule="config block", expected="one envelope",
                                   found=len(block.envelopes))  # fmt: skip
            return block, next_bundle(bundle, config_payload(block.envelopes[0])[1], CODEC)

        for number in offer.config_numbers[1:]:
            self._tell("config blocks", len(blocks), len(offer.config_numbers))
            question = wire.encode_block_question(wire.BlockQuestion(self._channel_id, number, offer.number))
            found = await self._sources.ask_one(source, "GetConfigBlock", question, partial(check, number, after))
            if found is None:
                raise PeerUnreachable(source.dropped)
            before = after
            block, after = found
            blocks.append(block)
        return Trail(tuple(blocks), before, after)

    # -- steps 4 to 6

    async def _heads(self, offer: JoinOffer, trail: Trail, answers: AnswerFolder) -> Heads:
        """Get the heads of all blocks (step 4).

        Raises:
            NobodyLeft: Nobody has them.
            InvalidBlock: They were signed, and the trail is not theirs.
        """
        heads = Heads(self._channel_id, offer.number, answers)
        statement, trust = offer.proof.statement, self._trust
        genesis_hash = block_hash(trail.blocks[0])
        pinned: list[Digest] = []

        def see(head: BlockHead, vblock_hash: Digest) -> None:
            if trust is not None and head.number == trust.number:
                pinned[:] = [vblock_hash]
            self._tell("heads of blocks", head.number + 1, offer.number + 1)

        await fetch_heads(heads, self._sources, lambda: HeadChain(statement, genesis_hash), see)
        for block in trail.blocks:
            check_is_of(block, heads[block.number])
        if trust is not None and pinned != [trust.vblock_hash]:
            raise WrongHistory(
                f"vBlock {trust.number}", rule="pinned vBlock hash", expected=trust.vblock_hash,
                found=pinned[0] if pinned else f"none: the checkpoint is at block {offer.number}",
            )  # fmt: skip
        return heads

    async def _checkpoint_block(self, offer: JoinOffer, trail: Trail, head: BlockHead, answers: AnswerFolder) -> Block:
        """Get the block at the checkpoint whole (step 5)."""
        before = trail.bundle_before(offer.number)

        def check(answer: bytes) -> Block:
            block = decode_block(wire.decode_block_answer(answer))
            check_checkpoint_block(block, head, orderer_metadata(block, before), before, trail.last.number)
            return block

        question = wire.encode_block_question(wire.BlockQuestion(self._channel_id, offer.number, offer.number))
        return await self._sources.ask("GetCheckpointBlock", question, check, answers)

    async def _check_freshness(self, offer: JoinOffer, trail: Trail, whole: Block) -> tuple[int, tuple[str, ...]]:
        """Ask the orderers how far they are (step 6); give the newest height known, and what was not checked.

        Raises:
            NotFresh: There is a newer config block, or the orderers can't deliver what follows any more.
        """
        self._tell("asking the orderers", 0, None)
        anchor = Anchor(
            self._channel_id, whole, trail.last.number, trail.bundle_before(offer.number), trail.after
        )  # fmt: skip
        orderers = self._orderers_of(trail.after)
        try:
            newest, failures = await newest_height(anchor, orderers, self._signer)
        finally:
            await asyncio.gather(*(one.close() for one in orderers))
        warnings = []
        if offer.interval_blocks != self._settings.checkpoint.interval_blocks:
            warnings.append(
                f"checkpoint.interval_blocks is {self._settings.checkpoint.interval_blocks} here and "
                f"{offer.interval_blocks} at the peers that were joined from: it should be the same"
            )
        if newest < 0:
            why = "; ".join(failures) or "the channel names none"
            if self._trust is not None or self._rules.local_policy is not None:
                warnings.append(f"no orderer answered ({why}): whether the checkpoint is fresh was not checked")
            else:
                warnings.append(
                    f"no orderer answered ({why}), and neither a local policy nor a pinned vBlock was given: that those"
                    " who signed were still members when they did rests on the sources' word"
                )
        return max(newest, offer.number), tuple(warnings)

    def _orderers_of(self, bundle: Bundle) -> list[OrdererClient]:
        """Connect to the orderers of the settings and to those that the configuration names."""
        roots = {one.address: read(one.tls_roots) for one in self._orderers}
        for organisation in bundle.orderer.organisations:
            for address in organisation.endpoints:
                roots.setdefault(address, b"\n".join(organisation.tls_roots))
        return [
            OrdererClient(address, ClientTls(root, self._tls.certificate, self._tls.key))
            for address, root in roots.items()
            if root
        ]

    # -- steps 7 and 8

    async def _install(self, checked: Checked, answers: AnswerFolder) -> None:
        """Get leaves and state, put everything together and install it."""
        offer = checked.offer
        chk = self._settings.checkpoint.interval_blocks
        installation = Installation(self._settings.data_dir, offer.proof.statement, offer.config_numbers, chk=chk)
        try:
            await self._add_blocks(checked, installation, answers)
            await self._add_chunks(offer, installation, answers)
            self._tell("comparing with what was signed", 0, None)
            with CheckpointStore(installation.records_directory, self._channel_id) as records:
                records.record_valid(offer.proof, Scope.FULL)
                records.raise_floor(checked.floor)
            installation.finish()
        except BaseExceptionGroup as group:
            installation.abandon()
            raise first_of(group) from group
        except InvalidCheckpoint:  # Every piece was true, and the whole is not: nothing of it is used again.
            remove(self._folder)
            raise
        except BaseException:
            installation.abandon()
            raise

    async def _add_blocks(self, checked: Checked, installation: Installation, answers: AnswerFolder) -> None:
        """Get the leaves of all blocks, used in order."""
        heads = checked.heads
        whole = {block.number: block for block in (*checked.trail.blocks, checked.whole)}

        async def get(bounds: tuple[BlockNumber, BlockNumber]) -> Sequence[tuple[BlockHead, Sequence[Leaf]]]:
            return await fetch_leaves(heads, self._sources, answers, whole, bounds)

        def use(page: Sequence[tuple[BlockHead, Sequence[Leaf]]]) -> None:
            for head, leaves in page:
                installation.add_block(head, leaves, whole.get(head.number))
            self._tell("leaves of blocks", page[-1][0].number + 1, heads.last + 1)

        await in_order(leaf_pages(heads), get, use)

    async def _add_chunks(self, offer: JoinOffer, installation: Installation, answers: AnswerFolder) -> None:
        """Get the chunks of the state."""
        count = 1 << offer.chunk_bits

        async def get(index: int) -> StateChunk:
            question = wire.encode_chunk_question(wire.ChunkQuestion(self._channel_id, offer.number, index))
            return await self._sources.ask("GetChunk", question, partial(checked_chunk, offer, index), answers)

        def use(chunk: StateChunk) -> None:
            installation.add_entries(chunk.entries)
            self._tell("chunks of the state", chunk.index + 1, count)

        await in_order(range(count), get, use)


def checked_chunk(offer: JoinOffer, index: int, answer: bytes) -> StateChunk:
    """Read a chunk of the state and check it against the state root.

    Raises:
        MalformedMessage, InvalidProof: It is none, another one, or not that of the root.
    """
    chunk = wire.decode_chunk(answer)
    if chunk.index != index:
        raise InvalidProof(f"chunk {index}", rule="chunk index", expected=index, found=chunk.index)
    check_chunk(chunk, offer.chunk_bits, offer.state_root)
    return chunk


def remove(*folders: Path) -> None:
    """Remove what an earlier or a finished joining left; what can't be removed is in nobody's way."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["JoinReport", "Joiner", "Trust"]
