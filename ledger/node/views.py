"""How does the REST interface see this peer?  The node's channels in the shape that the door asks for."""

from collections.abc import Callable, Mapping, Sequence

from ledger.core.admin_token import check_token
from ledger.core.errors import ChannelStopped, Fault, NotFound, PruneRefused
from ledger.core.names import BlockNumber, ChannelId, TxIndex
from ledger.core.ports import LedgerReader
from ledger.core.pruning import PruneReceipt, decode_receipt
from ledger.interfaces.rest.ports import (
    ChannelState,
    ChannelStatus,
    ChannelSummary,
    CheckpointReport,
    ComponentHealth,
)
from ledger.node.channel import Channel
from ledger.services.pruning import PrunePlan

NO_CHECKPOINT = "no checkpoint is valid yet"


class RestChannel:
    """One channel as the door sees it."""

    def __init__(self, channel: Channel, pruning_mode: str, keep_blocks: int) -> None:
        """Take an open channel and its settings."""
        self._channel = channel
        self._mode = pruning_mode
        self._keep_blocks = keep_blocks

    @property
    def ledger(self) -> LedgerReader:
        """The ledger."""
        return self._channel.store

    def status(self) -> ChannelStatus:
        """Say what the channel is doing."""
        stopped = self._channel.stopped_because
        return ChannelStatus(
            state=ChannelState.STOPPED if stopped else ChannelState.FOLLOWING,
            reason=stopped,
            checkpoint_interval_blocks=self._channel.chk,
            pruning_mode=self._mode,
            pruning_keep_blocks=self._keep_blocks,
            pruning_reason="pruning is off" if self._mode == "off" else NO_CHECKPOINT,
        )

    def faults(self, number: BlockNumber) -> Mapping[TxIndex, Fault]:
        """Say why transactions are invalid."""
        return self._channel.store.faults(number)

    def checkpoints(self) -> Sequence[CheckpointReport]:
        """List the checkpoints."""
        return ()

    def checkpoint(self, number: BlockNumber) -> CheckpointReport:
        """Return one checkpoint."""
        raise NotFound(f"no checkpoint is known at block {number}")

    def prune_plan(self, to_block: BlockNumber | None) -> PrunePlan:
        """Refuse: nothing is proved yet."""
        raise PruneRefused(
            f"prune to {to_block}", rule="latest valid checkpoint", expected="nothing yet", found=NO_CHECKPOINT
        )

    def prune(self, to_block: BlockNumber | None) -> PruneReceipt | None:
        """Refuse: nothing is proved yet."""
        self.prune_plan(to_block)
        return None

    def receipts(self) -> Sequence[PruneReceipt]:
        """List the receipts."""
        return tuple(decode_receipt(record.receipt) for record in self._channel.store.prune_records())

    async def wait_above(self, height: int) -> None:
        """Wait for more blocks."""
        await self._channel.wait_above(height)


class RestNode:
    """The peer as the door sees it.

    Args:
        name: Name of this peer.
        msp_id: Its organisation.
        channels: The open channels.
        failed: Why others did not open, by name.
        pruning_mode: As set.
        keep_blocks: As set.
        now_ms: The clock.
    """

    def __init__(
        self,
        name: str,
        msp_id: str,
        channels: Mapping[str, Channel],
        failed: Mapping[str, str],
        *,
        pruning_mode: str,
        keep_blocks: int,
        now_ms: Callable[[], int],
    ) -> None:
        """Take the parts."""
        self._name = name
        self._msp_id = msp_id
        self._channels = channels
        self._failed = failed
        self._now_ms = now_ms
        self._views = {name: RestChannel(channel, pruning_mode, keep_blocks) for name, channel in channels.items()}

    def channels(self) -> Sequence[ChannelSummary]:
        """List the channels by name."""
        opened = {name: (view.status().state, view.status().reason) for name, view in self._views.items()}
        failed = {name: (ChannelState.FAILED, reason) for name, reason in self._failed.items()}
        return tuple(
            ChannelSummary(ChannelId(name), state, reason)
            for name, (state, reason) in sorted((opened | failed).items())
        )

    def channel(self, channel_id: str) -> RestChannel:
        """Return a channel."""
        if channel_id in self._failed:
            raise ChannelStopped(f"channel {channel_id} did not open: {self._failed[channel_id]}")
        view = self._views.get(channel_id)
        if view is None:
            raise NotFound(f"this peer is not in a channel {channel_id}")
        return view

    def components(self) -> Sequence[ComponentHealth]:
        """Report on each part of the node."""
        found = []
        for name, channel in sorted(self._channels.items()):
            stopped = channel.stopped_because
            found.append(ComponentHealth(f"committer/{name}", not stopped, stopped))
            source = channel.following_from
            reason = f"following {source}" if source else "no orderer is delivering"
            found.append(ComponentHealth(f"orderer/{name}", bool(source), reason))
        found += [ComponentHealth(f"channel/{name}", False, reason) for name, reason in sorted(self._failed.items())]
        return tuple(found)

    def authorize(self, token: str, channel_id: str, action: str) -> None:
        """Check an admin token."""
        channel = self._channels.get(channel_id)
        if channel is None:
            raise NotFound(f"this peer is not in a channel {channel_id}")
        check_token(
            token, peer=self._name, channel=channel_id, action=action, now_ms=self._now_ms(),
            msps=channel.bundle.msps, msp_id=self._msp_id,
        )  # fmt: skip
