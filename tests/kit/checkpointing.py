"""Checkpoints for tests: channels with a policy for them, statements, messages, proofs, and peers that really talk."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

import grpc
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ledger.client.checkpointing import CheckpointLink
from ledger.client.tls import ClientTls
from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import (
    CheckpointMessage,
    CheckpointProof,
    CheckpointRoots,
    PeerSignature,
    Statement,
    signed_bytes,
)
from ledger.core.errors import StorageFailed
from ledger.core.names import BlockNumber, ChannelId, Digest
from ledger.core.policy import extended
from ledger.core.policy.ast import ImplicitMetaPolicy, SignaturePolicy
from ledger.interfaces.grpc.checkpointing import CheckpointingDoor
from ledger.interfaces.grpc.server import ServerTls, make_mutual_server
from ledger.services.checkpointing import CheckpointingService, CheckpointingSettings
from ledger.storage.checkpoints import CheckpointStore
from ledger.wire.codec import CODEC
from ledger.wire.config import bundle_from_block
from tests.kit.channel import CHANNEL, channel_tree, config_policy, genesis_of
from tests.kit.organisations import Organisation, Signer, pem, shared_organisation

CHANNEL_ID = ChannelId(CHANNEL)
CHK = 10


def organisations(count: int) -> tuple[Organisation, ...]:
    return tuple(shared_organisation(f"Org{number}MSP") for number in range(1, count + 1))


def make_bundle(
    members: Sequence[Organisation], checkpoint: SignaturePolicy | ImplicitMetaPolicy | str | None = None
) -> Bundle:
    """A channel's configuration, with its own policy for checkpoints if one is given (a text is translated)."""
    if isinstance(checkpoint, str):
        checkpoint = extended.as_signature_policy(extended.parse(checkpoint), [each.msp_id for each in members])
    tree = channel_tree(members, shared_organisation("OrdererMSP"), channel="V2_0", application="V2_0")
    if checkpoint is not None:
        application = tree.groups["Application"]
        policies = {**application.policies, "Checkpoint": config_policy(checkpoint)}
        tree = replace(tree, groups={**tree.groups, "Application": replace(application, policies=policies)})
    return bundle_from_block(genesis_of(tree), CODEC)


@cache
def default_bundle(count: int) -> Bundle:
    """A channel of some organisations, of which a majority makes a checkpoint valid."""
    return make_bundle(organisations(count))


def roots_at(number: int, flavour: str = "") -> CheckpointRoots:
    """What a ledger says of itself; another flavour says something else."""

    def hashed(name: str) -> Digest:
        return Digest(sha256(f"{name} {number} {flavour}".encode()).digest())

    return CheckpointRoots(
        BlockNumber(number), hashed("vblock"), hashed("vledger"), hashed("state"), BlockNumber(0), Digest(bytes(32))
    )


def statement_at(number: int, flavour: str = "", channel: str = CHANNEL) -> Statement:
    return roots_at(number, flavour).statement(ChannelId(channel))


@cache
def signature(signer: Signer, statement: Statement) -> PeerSignature:
    return PeerSignature(signer.serialized, signer.sign(signed_bytes(statement, signer.serialized)))


def message(signer: Signer, statement: Statement) -> CheckpointMessage:
    return CheckpointMessage(statement, signature(signer, statement), CHK)


def proof(statement: Statement, *signers: Signer) -> CheckpointProof:
    return CheckpointProof(statement, tuple(signature(signer, statement) for signer in signers))


class MemorySource:
    """A ledger that has captured what a test says."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.roots: dict[BlockNumber, CheckpointRoots] = {}
        self.kept: list[int] = []
        self.released: list[int] = []
        self.failures: list[Exception] = []
        """Raised, one each, by the next computations."""

    def captured(self) -> tuple[BlockNumber, ...]:
        return tuple(sorted(self.roots))

    def compute_checkpoint(self, number: BlockNumber) -> CheckpointRoots:
        if self.failures:
            raise self.failures.pop(0)
        return self.roots[number]

    def keep_checkpoint(self, number: BlockNumber) -> None:
        self.kept.append(number)

    def release(self, number: BlockNumber) -> None:
        self.released.append(number)
        self.roots.pop(number, None)

    def bundle_at(self, number: BlockNumber) -> Bundle:
        return self.bundle


@dataclass(frozen=True)
class TlsFiles:
    """A node's TLS certificate, by the authority of its organisation."""

    certificate: bytes
    key: bytes


@cache
def tls_files(msp_id: str, common_name: str = "peer0") -> TlsFiles:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = shared_organisation(msp_id).tls.certify(common_name, key)
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return TlsFiles(pem(certificate), encoded)


def tls_roots(*msp_ids: str) -> bytes:
    return b"".join(pem(shared_organisation(msp_id).tls.certificate) for msp_id in msp_ids)


@dataclass
class TalkingPeer:
    """A peer's checkpointing over real gRPC, on a disk of its own."""

    organisation: Organisation
    directory: Path
    source: MemorySource
    local_policy: str | None = None
    either: bool = False
    signs: bool = True
    newest_ordered: int = 0
    links: list[CheckpointLink] = field(default_factory=list)
    valid: list[int] = field(default_factory=list)
    diverged: list[str] = field(default_factory=list)
    port: int = 0
    on_diverged: Callable[[str], None] | None = None
    orderers_answer: asyncio.Event = field(default_factory=asyncio.Event)
    """The orderers are silent while this is not set."""
    valid_failure: Exception | None = None
    """Raised by who hears of a valid checkpoint."""
    further_roots: tuple[str, ...] = ()
    """Organisations besides the channel's whose TLS certificates the server takes."""
    failure: BaseException | None = None
    """With what the service ended by itself."""

    @property
    def service(self) -> CheckpointingService:
        assert self._service is not None
        return self._service

    @property
    def store(self) -> CheckpointStore:
        assert self._store is not None
        return self._store

    _service: CheckpointingService | None = None
    _store: CheckpointStore | None = None
    _server: grpc.aio.Server | None = None
    _running: "asyncio.Task[None] | None" = None

    def __post_init__(self) -> None:
        self.orderers_answer.set()

    @property
    def has_ended(self) -> bool:
        return self._running is not None and self._running.done()

    def link_to(self, other: "TalkingPeer") -> CheckpointLink:
        """A way to another peer that is running."""
        own = tls_files(self.organisation.msp_id)
        roots = tls_roots(other.organisation.msp_id)
        tls = ClientTls(roots, own.certificate, own.key, server_name="peer0")
        return CheckpointLink(f"peer0.{other.organisation.msp_id}", f"127.0.0.1:{other.port}", tls)

    def reach(self, number: int, flavour: str = "") -> None:
        """Commit a checkpoint height."""
        self.source.roots[BlockNumber(number)] = roots_at(number, flavour)
        if self._service is not None:
            self._service.height_captured()

    @asynccontextmanager
    async def running(self, *, fails: bool = False) -> AsyncIterator["TalkingPeer"]:
        """Run it with its door; the end is as abrupt as cancellation is.

        Args:
            fails: Whether the service is expected to end by itself.
        """
        with ThreadPoolExecutor(1) as executor, CheckpointStore(self.directory, CHANNEL_ID) as store:
            self._store = store
            self._service = self._make_service(executor, store)
            self._server = self._make_server(self._service)
            await self._server.start()
            self._running = asyncio.create_task(self._service.run())
            try:
                yield self
            finally:
                await self.stop()
            assert (self.failure is not None) == fails, f"the service ended with {self.failure!r}"

    async def stop_service(self) -> None:
        """Stop the service; the door stays open."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            try:
                await running
            except asyncio.CancelledError:
                pass
            except StorageFailed as failure:
                self.failure = failure

    async def stop(self) -> None:
        """Stop service and door."""
        await self.stop_service()
        server, self._server = self._server, None
        if server is not None:
            await server.stop(0)

    def _make_service(self, executor: ThreadPoolExecutor, store: CheckpointStore) -> CheckpointingService:
        async def newest() -> int:
            await self.orderers_answer.wait()
            return self.newest_ordered

        def note_valid(proof: CheckpointProof) -> None:
            self.valid.append(proof.statement.number)
            if self.valid_failure is not None:
                raise self.valid_failure

        def note_divergence(reason: str) -> None:
            self.diverged.append(reason)
            if self.on_diverged is not None:
                self.on_diverged(reason)

        settings = CheckpointingSettings(
            f"peer0.{self.organisation.msp_id}",
            CHK,
            self.local_policy,
            self.either,
            signs=self.signs,
            reconnect_delay_s_max=0.1,
            repeat_interval_s=0.1,
        )
        return CheckpointingService(
            CHANNEL_ID,
            self.organisation.peer,
            self.source,
            store,
            self.links,
            settings,
            executor=executor,
            on_valid=note_valid,
            on_diverged=note_divergence,
            newest_ordered=newest,
        )

    def _make_server(self, service: CheckpointingService) -> grpc.aio.Server:
        own = tls_files(self.organisation.msp_id)
        members = [each.msp_id for each in self.source.bundle.application.organisations]
        tls = ServerTls(own.certificate, own.key, tls_roots(*members, *self.further_roots))
        server, self.port = make_mutual_server(f"127.0.0.1:{self.port}", tls)
        channels: Mapping[str, MemorySource] = {CHANNEL: self.source}
        server.add_generic_rpc_handlers((CheckpointingDoor(channels, {CHANNEL: service}).handler(),))
        return server


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  # What is waited for tells nobody.
            await asyncio.sleep(0.01)


__all__ = [
    "CHANNEL_ID",
    "CHK",
    "MemorySource",
    "TalkingPeer",
    "default_bundle",
    "make_bundle",
    "message",
    "organisations",
    "proof",
    "roots_at",
    "signature",
    "statement_at",
    "tls_files",
    "tls_roots",
    "until",
]
