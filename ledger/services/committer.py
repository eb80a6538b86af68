"""Who turns ordered blocks into ledger?  One committer a channel, driven from one thread.

The pipeline over blocks (design, section 9): *prepare* (decode, all signature checks) depends on no state and runs on
a thread pool ahead of the block that is being committed; *judge* (policies, versions) and *commit* follow in order in
the committer's thread. A config block is a barrier: what stands behind it is prepared under the configuration it
brings. Blocks that wait form a group that is synced once; nothing is told to anyone before the group is durable.

What can end a commit, and what then:

1. The block is wrong (`InvalidBlock`): it is refused whole, the ledger is as before, the source is told.
2. The block can't be judged (`ChannelStopped`): the channel stops before it; reads go on.
3. The disk fails (`StorageFailed`): no verdict is made of it; the owner closes and reopens the store.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Protocol

from ledger.core.block import Block, check_link
from ledger.core.channel_config import Bundle
from ledger.core.errors import ChannelStopped, InvalidBlock
from ledger.core.names import BlockNumber, Digest
from ledger.core.outcome import Outcome
from ledger.core.state import LedgerView
from ledger.core.transition import Prepared


class CommitStore(Protocol):
    """What the committer asks of a channel's store."""

    @property
    def height(self) -> int:
        """Blocks committed and durable, staged ones not counted."""
        ...

    @property
    def block_hash(self) -> Digest:
        """Header hash of the last of them."""
        ...

    def staged_view(self) -> LedgerView:
        """The state after the last staged block."""
        ...

    def stage(self, outcome: Outcome) -> None:
        """Add a judged block to the group under way."""
        ...

    def finish_group(self) -> None:
        """Make the staged blocks durable: append all, sync once, write their batches."""
        ...

    def abandon_group(self) -> None:
        """Forget what was staged and not finished."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """The functions that decode and judge: `wire` and `core` put together by whoever builds the node."""

    decode: Callable[[bytes], Block]
    """Decode a serialized block; raises `InvalidBlock`."""

    check_well_formed: Callable[[Block], None]
    """Check metadata slots, envelopes and data hash; raises `InvalidBlock`."""

    check_signatures: Callable[[Block, Bundle], None]
    """Check the orderer's signatures under a configuration; raises `InvalidBlock`."""

    prepare: Callable[[Block, Bundle], Prepared]
    """Everything about a block that depends on the configuration but not on the state."""

    judge: Callable[[Prepared, LedgerView, Bundle], Outcome]
    """Verdicts and updates in a state; raises `ChannelStopped` for a config block that does not apply."""

    bundle_after: Callable[[Outcome, Bundle], Bundle]
    """The configuration in force after a block."""

    is_config: Callable[[Block], bool]
    """Whether a block is a config block."""


class Committer:
    """Commits the blocks of one channel.  Not thread-safe: one thread calls it.

    Args:
        store: The channel's store.
        bundle: The configuration in force after the store's last block.
        rules: How blocks are decoded and judged.
        workers: Where blocks are prepared ahead; its threads share the signature checks.
        on_committed: Called with each durable group, in order, in the committer's thread; must not block.
    """

    def __init__(
        self,
        store: CommitStore,
        bundle: Bundle,
        rules: Rules,
        *,
        workers: Executor,
        on_committed: Callable[[tuple[Outcome, ...]], None],
    ) -> None:
        """Stand after the store's last block."""
        self.store = store
        self.bundle = bundle
        self._rules = rules
        self._workers = workers
        self._on_committed = on_committed

    def commit(self, blocks: Sequence[bytes]) -> tuple[Outcome, ...]:
        """Commit serialized blocks in order, as one group or, around config blocks, several.

        Args:
            blocks: Serialized blocks, the first of them the next one of the channel.

        Returns:
            Their outcomes.

        Raises:
            InvalidBlock: A block is refused whole; those before it are committed.
            ChannelStopped: A config block can't be applied; those before it are committed.
            StorageFailed: The disk failed; what was told before is durable, the rest is not in the ledger.

        Durability: every returned outcome, and every one given to `on_committed`, survives a crash.
        """
        return self._commit_all(deque(blocks))

    def commit_decoded(self, blocks: Sequence[Block]) -> tuple[Outcome, ...]:
        """Commit blocks that are decoded already; otherwise as `commit`."""
        return self._commit_all(deque(blocks))

    def _commit_all(self, waiting: deque[bytes | Block]) -> tuple[Outcome, ...]:
        outcomes: list[Outcome] = []
        while waiting:
            outcomes += self._commit_run(waiting)
        return tuple(outcomes)

    def _commit_run(self, waiting: deque[bytes | Block]) -> tuple[Outcome, ...]:
        """Commit blocks up to and with the first config block; take them off `waiting`."""
        run: list[tuple[Block, Future[Prepared]]] = []
        refusal: InvalidBlock | None = None
        while waiting:
            following = waiting.popleft()
            try:
                block = following if isinstance(following, Block) else self._rules.decode(following)
            except InvalidBlock as error:
                refusal = error
                break
            run.append((block, self._workers.submit(self._check_and_prepare, block, self.bundle)))
            if self._rules.is_config(block):
                break
        staged: list[Outcome] = []
        try:
            for outcome in self._judged(run):
                self.store.stage(outcome)
                staged.append(outcome)
        except InvalidBlock as error:
            refusal = error
        except ChannelStopped:
            self._finish(staged)
            raise
        except BaseException:
            self.store.abandon_group()
            raise
        finally:
            for _, future in run:
                future.cancel()
        self._finish(staged)
        if refusal is not None:
            raise refusal
        return tuple(staged)

    def _check_and_prepare(self, block: Block, bundle: Bundle) -> Prepared:
        """Do all of a block's work that needs no state; runs on a worker."""
        self._rules.check_well_formed(block)
        if block.number > 0:  # The genesis block carries no signature: trust comes from whoever joined the peer.
            self._rules.check_signatures(block, bundle)
        return self._rules.prepare(block, bundle)

    def _judged(self, run: Sequence[tuple[Block, "Future[Prepared]"]]) -> Iterator[Outcome]:
        """Judge prepared blocks in order, each in the state after the one before it."""
        number, previous = BlockNumber(self.store.height), self.store.block_hash
        for block, future in run:
            check_link(block, number, previous if number > 0 else None)
            outcome = self._rules.judge(future.result(), self.store.staged_view(), self.bundle)
            yield outcome
            number, previous = BlockNumber(number + 1), outcome.block_hash

    def _finish(self, staged: list[Outcome]) -> None:
        """Make a group durable, move the configuration on, and tell."""
        if not staged:
            return
        try:
            self.store.finish_group()
        except BaseException:
            self.store.abandon_group()
            raise
        if staged[-1].is_config:
            self.bundle = self._rules.bundle_after(staged[-1], self.bundle)
        self._on_committed(tuple(staged))
