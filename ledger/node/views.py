"""How does the REST interface see this peer?  The node's channels in the shape that the door asks for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ledger.core.admin_token import check_token
from ledger.core.checkpoint_proof import describe_global_policy
from ledger.core.checkpoint_status import CheckpointStatus
from ledger.core.errors import ChannelStopped, Fault, NotFound
from ledger.core.names import BlockNumber, ChannelId, TxIndex
from ledger.core.ports import LedgerReader
from ledger.core.pruning import PruneReceipt
from ledger.interfaces.rest import ports
from ledger.interfaces.rest.ports import (
    BackupStatus,
    ChannelState,
    ChannelStatus,
    ChannelSummary,
    CheckpointReport,
    ComponentHealth,
)
from ledger.node.agreement import Agreement
from ledger.node.channel import Channel
from ledger.node.channels import OPENING, Channels
from ledger.node.space import DiskSpace
from ledger.services.proofs import ProofSource
from ledger.services.pruning import PrunePlan


class RestChannel:
    """One channel as the door sees it."""

    def __init__(self, channel: Channel, agreement: Agreement) -> None:
        """Take an open channel and its services."""
        self._channel = channel
        self._checkpointing = agreement.checkpointing
        self._pruning = agreement.pruning
        self._backups = agreement.backups
        self._records = agreement.records
        self._finder = agreement.finder

    @property
    def ledger(self) -> LedgerReader:
        """The ledger."""
        return self._channel.store

    @property
    def proofs(self) -> ProofSource:
        """Proofs of what the ledger says."""
        return ProofSource(self._channel.store, self._records, self._channel.chk)

    def status(self) -> ChannelStatus:
        """Say what the channel is doing."""
        known, settings = self._checkpointing.status(), self._pruning.settings
        stopped = self._channel.stopped_because
        state = ChannelState.FOLLOWING
        if stopped:
            state = ChannelState.STOPPED if self._channel.halted_because else ChannelState.PAUSED
        return ChannelStatus(
            state=ChannelState.DIVERGED if known.diverged else state,
            reason="; ".join(filter(None, (known.diverged, self._finder.text))) or stopped,
            checkpoint_interval_blocks=known.interval_blocks,
            checkpoint_intervals_of_others=known.intervals_of_others,
            latest_valid_checkpoint=known.latest_valid,
            pruning_mode=settings.mode.value,
            pruning_keep_blocks=settings.keep_blocks_min,
            pruning_reason=self._pruning.reason,
            global_policy=known.global_policy or describe_global_policy(self._channel.bundle),
            local_policy=known.local_policy,
        )

    def faults(self, number: BlockNumber) -> Mapping[TxIndex, Fault]:
        """Say why transactions are invalid."""
        return self._channel.store.faults(number)

    def checkpoints(self) -> Sequence[CheckpointReport]:
        """List the checkpoints, newest first."""
        return tuple(report(one) for one in self._checkpointing.checkpoints())

    def checkpoint(self, number: BlockNumber) -> CheckpointReport:
        """Return one checkpoint."""
        return report(self._checkpointing.checkpoint(number))

    def abandon(self, number: BlockNumber) -> CheckpointReport:
        """Give up a pending checkpoint."""
        return report(self._checkpointing.abandon(number))

    def divergence(self) -> Mapping[str, Any]:
        """Say where this peer differs."""
        divergence = self._records.divergence
        if divergence is None:
            raise NotFound(f"this peer did not diverge on channel {self._channel.channel_id}")
        return {
            "checkpoint": divergence.computed.number,
            "reason": self._checkpointing.stopped,
            "computed": divergence.computed,
            "agreed": divergence.proof.statement,
            "found": self._finder.found,
            "summary": self._finder.text,
        }

    def prune_plan(self, to_block: BlockNumber | None) -> PrunePlan:
        """Say what pruning would do."""
        return self._pruning.plan(to_block)

    def prune(self, to_block: BlockNumber | None) -> PruneReceipt | None:
        """Prune."""
        return self._pruning.prune(to_block)

    def receipts(self) -> Sequence[PruneReceipt]:
        """List the receipts."""
        return self._pruning.receipts()

    def start_backup(self, to: str) -> BackupStatus:
        """Begin a backup."""
        return self._backups.start(to)

    def backup_status(self) -> BackupStatus | None:
        """Say how far the present or the last backup has come."""
        return self._backups.status

    async def wait_above(self, height: int) -> None:
        """Wait for more blocks."""
        await self._channel.wait_above(height)


def report(status: CheckpointStatus) -> CheckpointReport:
    """Show a checkpoint as the door does."""
    return CheckpointReport(
        statement=status.statement,
        status=ports.CheckpointStatus(status.state.value),
        signatures=tuple(signer.signed for signer in status.signers),
        missing=status.missing,
    )


class RestNode:
    """The peer as the door sees it.

    Args:
        name: Name of this peer.
        msp_id: Its organisation.
        channels: Its channels.
        space: The space on the disk.
        now_ms: The clock.
    """

    def __init__(
        self,
        name: str,
        msp_id: str,
        channels: Channels,
        space: DiskSpace,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """Take the parts."""
        self._name = name
        self._msp_id = msp_id
        self._channels = channels
        self._space = space
        self._now_ms = now_ms

    def channels(self) -> Sequence[ChannelSummary]:
        """List the channels by name."""
        found: dict[str, ChannelSummary] = {}
        for name, reason in self._channels.failed.copy().items():
            state = ChannelState.OPENING if reason == OPENING else ChannelState.FAILED
            found[name] = ChannelSummary(ChannelId(name), state, reason)
        for name in tuple(self._channels.opened):
            status = self.channel(name).status()
            found[name] = ChannelSummary(ChannelId(name), status.state, status.reason)
        return tuple(found[name] for name in sorted(found))

    def channel(self, channel_id: str) -> RestChannel:
        """Return a channel."""
        channel = self._channels.opened.get(channel_id)
        if channel is not None:
            return RestChannel(channel, self._channels.agreements[channel_id])
        if (reason := self._channels.failed.get(channel_id)) is not None:
            raise ChannelStopped(f"channel {channel_id} is not open: {reason}")
        raise NotFound(f"this peer is not in a channel {channel_id}")

    def components(self) -> Sequence[ComponentHealth]:
        """Report on each part of the node."""
        shortage = self._space.shortage
        found = [ComponentHealth("storage", not shortage, shortage)]
        for name, channel in sorted(self._channels.opened.copy().items()):
            stopped = channel.halted_because
            found.append(ComponentHealth(f"committer/{name}", not stopped, stopped))
            source = channel.following_from
            reason = f"following {source}" if source else "no orderer is delivering"
            found.append(ComponentHealth(f"orderer/{name}", bool(source), reason))
            known = self._channels.agreements[name].checkpointing.status()
            begins = self._channels.agreements[name].finder.text
            fault = f"{known.diverged}; {begins}" if known.diverged else known.failed
            agreed = "no checkpoint is valid yet" if known.latest_valid is None else f"valid at {known.latest_valid}"
            found.append(ComponentHealth(f"checkpointing/{name}", not fault, fault or known.silent or agreed))
        failed = sorted(self._channels.failed.copy().items())
        found += [ComponentHealth(f"channel/{name}", False, reason) for name, reason in failed]
        return tuple(found)

    def authorize(self, token: str, channel_id: str, action: str) -> None:
        """Check an admin token."""
        channel = self._channels.opened.get(channel_id)
        if channel is None:
            raise NotFound(f"this peer has no open channel {channel_id}")
        check_token(
            token, peer=self._name, channel=channel_id, action=action, now_ms=self._now_ms(),
            msps=channel.bundle.msps, msp_id=self._msp_id,
        )  # fmt: skip
