"""What does a joiner learn of the blocks below its checkpoint?  Heads and leaves, page by page, little of it in memory.

*Heads* make one chain, and only its end is signed: so all of them come from one source, which is dropped if the end is
another; then the next is asked, from the beginning. They are kept in pages on the disk, and read again when needed.
*Leaves* are checked block by block against the heads, so they come from all sources at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from ledger.core.block import Block
from ledger.core.errors import InvalidBlock
from ledger.core.joining import BlockHead, HeadChain, check_leaves
from ledger.core.names import BlockNumber, ChannelId, Digest
from ledger.core.vblock import Leaf
from ledger.node.join_sources import AnswerFolder, NobodyLeft, Source, Sources
from ledger.wire import joining as wire

HEADS_PER_PAGE = 4096
"""What fits into one answer."""

LEAVES_PER_PAGE = 8_000
"""Transactions whose leaves are asked for with one question."""

PAGES_IN_MEMORY = 3


class Heads:
    """The heads of the blocks up to a checkpoint.

    Args:
        channel_id: The channel.
        last: Block of the checkpoint.
        answers: Where the pages lie.
    """

    def __init__(self, channel_id: ChannelId, last: BlockNumber, answers: AnswerFolder) -> None:
        """Know of none yet."""
        self.channel_id = channel_id
        self._answers = answers
        self._pages: dict[int, tuple[BlockHead, ...]] = {}
        self.last = last

    def __getitem__(self, number: int) -> BlockHead:
        """Give the head of a block; it was fetched and checked."""
        page = number // HEADS_PER_PAGE
        if page not in self._pages:
            known = self._answers.get("GetHeads", self._question(page))
            if known is None:
                raise InvalidBlock(f"head {number}", rule="kept heads", expected="the page that was checked")
            self._keep(page, wire.decode_heads(known))
        return self._pages[page][number % HEADS_PER_PAGE]

    def _keep(self, page: int, heads: tuple[BlockHead, ...]) -> None:
        while len(self._pages) >= PAGES_IN_MEMORY:
            del self._pages[next(iter(self._pages))]
        self._pages[page] = heads

    def _bounds(self, page: int) -> tuple[int, int]:
        first = page * HEADS_PER_PAGE
        return first, min(first + HEADS_PER_PAGE - 1, self.last)

    def _question(self, page: int) -> bytes:
        first, last = self._bounds(page)
        return wire.encode_block_question(wire.BlockQuestion(self.channel_id, BlockNumber(first), BlockNumber(last)))

    def pages(self) -> range:
        """Give the numbers of the pages."""
        return range(self.last // HEADS_PER_PAGE + 1)

    async def fetch(self, sources: Sources, page: int, source: Source) -> tuple[BlockHead, ...]:
        """Give a page, of the folder or of a source; raises `NobodyLeft`."""
        heads = await sources.ask("GetHeads", self._question(page), partial(self._read, page), self._answers, source)
        self._keep(page, heads)
        return heads

    def _read(self, page: int, answer: bytes) -> tuple[BlockHead, ...]:
        first, last = self._bounds(page)
        heads = wire.decode_heads(answer)
        if len(heads) != last + 1 - first:
            raise InvalidBlock(f"heads of blocks {first} to {last}", rule="block count", expected=last + 1 - first,
                               found=len(heads))  # fmt: skip
        return heads

    def forget(self) -> None:
        """Drop all pages: some of them are false."""
        self._answers.forget("GetHeads")
        self._pages.clear()


async def fetch_heads(
    heads: Heads, sources: Sources, make_chain: Callable[[], HeadChain], see: Callable[[BlockHead, Digest], None]
) -> None:
    """Fetch all heads, of one source after the other until the chain is the one that was signed.

    Args:
        heads: Where they go.
        sources: Who is asked.
        make_chain: Makes what follows a chain from its beginning on.
        see: Sees each head with the hash of its vBlock; of a chain that turns out to be false too.

    Raises:
        NobodyLeft: No source gave that chain.
    """
    kept = True  # What lay in the folder may be false: then nobody is dropped for it.
    while sources.left:
        source = sources.left[0]
        chain = make_chain()
        try:
            for page in heads.pages():
                for head in await heads.fetch(sources, page, source):
                    see(head, chain.add(head))
            chain.finish()
        except NobodyLeft:
            pass  # The source was dropped.
        except InvalidBlock as error:
            heads.forget()
            if not kept:
                sources.drop(source, error)
            kept = False
        else:
            return
    raise sources.none_left()


def leaf_pages(heads: Heads) -> Iterator[tuple[BlockNumber, BlockNumber]]:
    """Cut the blocks into ranges `[first, last]` whose leaves are asked for with one question each."""
    first, count = 0, 0
    for number in range(heads.last + 1):
        transactions = heads[number].transaction_count
        if number > first and count + transactions > LEAVES_PER_PAGE:
            yield BlockNumber(first), BlockNumber(number - 1)
            first, count = number, 0
        count += transactions
    yield BlockNumber(first), heads.last


async def fetch_leaves(
    heads: Heads, sources: Sources, answers: AnswerFolder, whole: Mapping[BlockNumber, Block],
    bounds: tuple[BlockNumber, BlockNumber],
) -> list[tuple[BlockHead, tuple[Leaf, ...]]]:  # fmt: skip
    """Fetch the leaves of some blocks, from any source; those that it did not fit in are asked for again.

    Args:
        heads: The heads, checked.
        sources: Who is asked.
        answers: Where answers are kept.
        whole: The blocks that are known whole.
        bounds: First and last block.

    Raises:
        NobodyLeft: No source has them.
    """
    number, last = bounds
    found: list[tuple[BlockHead, tuple[Leaf, ...]]] = []
    while number <= last:
        wanted = [heads[each] for each in range(number, last + 1)]
        question = wire.encode_block_question(wire.BlockQuestion(heads.channel_id, number, last))
        page = await sources.ask("GetLeaves", question, partial(checked_leaves, wanted, whole), answers)
        found += zip(wanted, page, strict=False)
        number = BlockNumber(number + len(page))
    return found


def checked_leaves(
    wanted: Sequence[BlockHead], whole: Mapping[BlockNumber, Block], answer: bytes
) -> tuple[tuple[Leaf, ...], ...]:
    """Read the leaves of the first of some blocks and check each block's against its head.

    Raises:
        MalformedMessage, InvalidBlock: They are none, of other blocks, or not those of the heads.
    """
    page = wire.decode_leaves(answer)
    if not 0 < len(page) <= len(wanted):
        raise InvalidBlock(f"leaves from block {wanted[0].number} on", rule="block count",
                           expected=f"1 to {len(wanted)}", found=len(page))  # fmt: skip
    for head, (number, leaves) in zip(wanted, page, strict=False):
        if number != head.number:
            raise InvalidBlock(f"leaves of block {head.number}", rule="block number", expected=head.number,
                               found=number)  # fmt: skip
        check_leaves(head, leaves, whole.get(head.number))
    return tuple(leaves for _, leaves in page)


__all__ = ["Heads", "checked_leaves", "fetch_heads", "fetch_leaves", "leaf_pages"]
