"""What does a block do to the ledger?  Prepare it, judge it, and say everything that follows.

*Preparing* needs no state and may run ahead on other threads: decode every envelope and check every signature, under
the configuration in force. *Judging* happens in order, in the state before the block: verdicts, updates, expiries,
history and commit hash, as one `Outcome`.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from ledger.core.block import Block
from ledger.core.channel_config import Bundle
from ledger.core.outcome import Outcome
from ledger.core.ports import Codec
from ledger.core.state import LedgerView
from ledger.core.transaction import Transaction
from ledger.core.validation import PreparedTransaction


@dataclass(frozen=True, slots=True)
class Prepared:
    """A block of which everything is known that needs no state."""

    block: Block
    sequence: int
    """Sequence of the configuration that signatures were checked under."""

    transactions: tuple[PreparedTransaction, ...]


class Transition:
    """The rules of one channel, with what they need from outside.  `judge` is called from one thread at a time.

    Args:
        decode: Takes an envelope apart; see `wire.transaction.decode_transaction`.
        codec: Decodes identities, policies and chaincode definitions.
        apply_config: Checks that a ConfigEnvelope follows from a configuration and can be used as the next one; raises
            `Refused` if it does not.
    """

    def __init__(
        self,
        decode: Callable[[bytes], Transaction],
        codec: Codec,
        apply_config: Callable[[Bundle, bytes], object],
    ) -> None:
        """Hold the functions; there is no other state than caches."""

    def prepare(self, block: Block, bundle: Bundle, workers: Executor | None = None) -> Prepared:
        """Decode the transactions of a block and check their signatures.  Thread-safe.

        Args:
            block: A block that is well formed and follows the last one.
            bundle: The configuration in force at this block.
            workers: Where to check signatures in parallel; None does it here. Never the pool that this call runs on.
        """
        raise NotImplementedError

    def judge(self, prepared: Prepared, view: LedgerView, bundle: Bundle) -> Outcome:
        """Judge a prepared block in the state before it.

        Args:
            prepared: What `prepare` made of the block, under the same configuration.
            view: The ledger as of the block before.
            bundle: The configuration in force at this block.

        Raises:
            ChannelStopped: The block is a configuration that can't be applied; nothing may be committed.
            StorageFailed: The view could not be read; never a verdict.
        """
        raise NotImplementedError
