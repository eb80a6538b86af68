"""How does a channel of this peer come to checkpoints and pruning?  The services of one open channel, built and run.

The checkpointing service hears of new heights from the channel's feed, so it can't delay a commit. A checkpoint that
becomes valid is told to pruning; a divergence halts the channel.
"""

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib.metadata import version

from ledger.client.checkpointing import CheckpointLink
from ledger.client.comparing import CompareLink
from ledger.client.tls import ClientTls
from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import CheckpointProof, CheckpointRoots
from ledger.core.errors import StorageDamaged, StorageFailed
from ledger.core.names import BlockNumber
from ledger.core.ports import Signer
from ledger.node.backup import Backups
from ledger.node.channel import Channel
from ledger.node.clock import now_ms
from ledger.node.config import Combine, PeerSettings
from ledger.node.files import read
from ledger.services.checkpointing import (
    CheckpointingService,
    CheckpointingSettings,
    CompareSource,
    DivergenceFinder,
)
from ledger.services.joining import JoinSource
from ledger.services.pruning import PruningMode, PruningService, PruningSettings
from ledger.storage.checkpoints import CheckpointStore
from ledger.telemetry.metrics import Metrics
from ledger.wire.block import decode_block
from ledger.wire.codec import CODEC
from ledger.wire.config import bundle_from_block

LIBRARIES = ("cryptography", "protobuf", "plyvel", "zstandard")
"""Libraries on which a verdict could depend; peers tell each other their versions."""


class ChannelSource:
    """A channel's ledger as checkpointing sees it."""

    def __init__(self, channel: Channel) -> None:
        """Take the open channel."""
        self._channel = channel
        self._store = channel.store
        self._bundles: dict[int, Bundle] = {}

    def captured(self) -> tuple[BlockNumber, ...]:
        """List the heights whose checkpoint can be computed."""
        return self._store.captured()

    def compute_checkpoint(self, number: BlockNumber) -> CheckpointRoots:
        """Compute the roots at a captured height."""
        return self._store.compute_checkpoint(number)

    def keep_checkpoint(self, number: BlockNumber) -> None:
        """Keep the state at a height."""
        self._store.keep_checkpoint(number)

    def release(self, number: BlockNumber) -> None:
        """Let go of a height."""
        self._store.release(number)

    def bundle_at(self, number: BlockNumber) -> Bundle:
        """Give the configuration in force after a block."""
        config = self._store.last_config(number).number
        bundle = self._bundles.get(config)
        if bundle is None:
            block = decode_block(self._store.config_block_bytes(config))
            bundle = self._bundles[config] = bundle_from_block(block, CODEC)
        return bundle


@dataclass(frozen=True, slots=True)
class Agreement:
    """Checkpointing, pruning, what other peers are told, and backups, of one channel."""

    channel: Channel
    records: CheckpointStore
    checkpointing: CheckpointingService
    pruning: PruningService
    joining: JoinSource
    backups: Backups
    comparing: CompareSource
    finder: DivergenceFinder

    async def follow_heights(self) -> None:
        """Tell checkpointing of every height at which a checkpoint is captured; until cancelled."""
        height = 0
        while True:
            before, height = height, await self.channel.wait_above(height)
            if (before - 1) // self.channel.chk != (height - 1) // self.channel.chk:
                self.checkpointing.height_captured()
                await asyncio.to_thread(self.comparing.sweep)

    async def run(self) -> None:
        """Agree on checkpoints until cancelled; raises `StorageFailed`, see `Channel.fault`."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.follow_heights())
                group.create_task(self.checkpointing.run())
                group.create_task(self.finder.run())
        except* StorageDamaged as damaged:
            self.channel.halt(f"storage of checkpoints: {damaged.exceptions[0]}")
        except* StorageFailed as failed:
            self.channel.fault(StorageFailed(f"storage of checkpoints: {failed.exceptions[0]}"))

    def close(self) -> None:
        """End the work for joiners and the backup under way, and close the records."""
        self.backups.close()
        self.joining.close()
        self.comparing.close()
        self.records.close()


def connect_peers(settings: PeerSettings) -> list[CheckpointLink]:
    """Make ways to the checkpointing services of the other peers; they open when used."""
    return [CheckpointLink(name, address, tls) for name, address, tls in peer_addresses(settings)]


def peer_addresses(settings: PeerSettings) -> list[tuple[str, str, ClientTls]]:
    """List the other peers: name, address for peers, and whom to trust and what to show there."""
    own, key = read(settings.tls.certificate), read(settings.tls.key)
    return [(one.name, one.checkpoint_address, ClientTls(read(one.tls_roots), own, key)) for one in settings.peers]


def make_agreement(
    channel: Channel,
    settings: PeerSettings,
    signer: Signer,
    executor: Executor,
    metrics: Metrics,
) -> Agreement:
    """Build checkpointing and pruning of an open channel.

    Raises:
        InvalidPolicy: The local policy of the settings is none.
        StorageDamaged, StorageFailed: The records can't be read.
    """
    records = CheckpointStore(channel.store.records_directory, channel.channel_id)

    def valid(proof: CheckpointProof) -> None:
        pruning.checkpoint_valid(proof.statement.number)

    def diverged(reason: str) -> None:
        channel.halt(reason)
        finder.wake()

    source = ChannelSource(channel)
    finder = DivergenceFinder(
        channel.store, records, [CompareLink(*one) for one in peer_addresses(settings)], source.bundle_at,
        executor=executor, metrics=metrics,
    )  # fmt: skip
    checkpointing = CheckpointingService(
        channel.channel_id,
        signer,
        source,
        records,
        connect_peers(settings),
        CheckpointingSettings(
            peer_name=settings.name,
            interval_blocks=settings.checkpoint.interval_blocks,
            local_policy=settings.checkpoint.lcvp,
            either_policy_prunes=settings.checkpoint.combine is Combine.OR,
            libraries=tuple((name, version(name)) for name in LIBRARIES),
        ),
        executor=executor,
        on_valid=valid,
        on_diverged=diverged,
        newest_ordered=channel.newest_ordered,
        metrics=metrics,
    )
    pruning = PruningService(
        channel.store,
        checkpointing,
        signer,
        PruningSettings(
            mode=PruningMode(settings.pruning.mode.value),
            interval_blocks=settings.checkpoint.interval_blocks,
            keep_blocks_min=settings.pruning.keep_blocks_min,
            archive_directory=settings.pruning.archive_dir,
        ),
        now_ms=now_ms,
    )
    joining = JoinSource(
        channel.store, lambda: records.latest_valid, settings.checkpoint.interval_blocks,
        channel.store.directory / "serving",
    )  # fmt: skip
    backups = Backups(channel.store, settings.backup_dir)
    comparing = CompareSource(channel.store, records)
    return Agreement(channel, records, checkpointing, pruning, joining, backups, comparing, finder)
