"""Peers to join from, behind their real doors, what they say twisted where a test wants it; and a joiner's settings."""

import asyncio
import atexit
import contextlib
import datetime
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fabric_protos.common import common_pb2
from fabric_protos.orderer import ab_pb2, ab_pb2_grpc

from ledger.core.checkpoint import CheckpointProof
from ledger.core.checkpoint_proof import Scope
from ledger.core.errors import LedgerError
from ledger.core.names import BlockNumber, ChannelId
from ledger.interfaces.grpc.answers import answer_status
from ledger.interfaces.grpc.joining import JoiningDoor
from ledger.interfaces.grpc.server import ServerTls, make_mutual_server, make_server
from ledger.node.authorities import make_authority
from ledger.node.config import PeerSettings
from ledger.node.join import Joiner, JoinReport, Trust
from ledger.services.joining import JoinSource
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.ledger_store import LedgerStore
from ledger.wire.block import encode_block
from tests.kit import proven
from tests.kit.channel import CHANNEL
from tests.kit.organisations import pem
from tests.kit.peer_folder import honest_proof

CHANNEL_ID = ChannelId(CHANNEL)
LATEST = BlockNumber(proven.CHECKPOINTS[-1])

Twist = Callable[[str, bytes, bytes], bytes | None]
"""Makes of method, question and honest answer what is answered; None lets it stand. It may raise instead."""


@cache
def tls_of(number: int) -> tuple[bytes, bytes]:
    """Certificate and key of a node of the n-th organisation of that life, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    organisation = proven.life().organisations[number - 1]
    return pem(organisation.tls.certify("localhost", key)), encoded


def tls_roots() -> bytes:
    """The TLS authorities of all organisations of that life."""
    return b"".join(pem(one.tls.certificate) for one in proven.life().organisations)


@cache
def honest_folder() -> Path:
    """The data directory of a peer that was there from the start and keeps all its checkpoints; to be copied."""
    folder = Path(tempfile.mkdtemp(prefix="joining-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    store = LedgerStore.open(folder / "data", CHANNEL_ID, chk=proven.CHK)
    store.commit_group(proven.life().outcomes)
    with CheckpointStore(store.records_directory, CHANNEL_ID) as records:
        for number in map(BlockNumber, proven.CHECKPOINTS):
            statement = store.compute_checkpoint(number).statement(CHANNEL_ID)
            records.record_valid(honest_proof(statement, proven.life().signers[number]), Scope.FULL)
            store.keep_checkpoint(number)
    store.close()
    return folder


class _Twisted(grpc.GenericRpcHandler):
    """The honest service, each answer passed through a twist."""

    def __init__(self, honest: grpc.GenericRpcHandler, seller: "Seller") -> None:
        self._honest = honest
        self._seller = seller

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        found: Any = self._honest.service(details)
        if found is None:
            return None
        method = str(details.method).rpartition("/")[2]

        async def answer(request: bytes, context: Any) -> bytes:
            self._seller.asked.append(method)
            if self._seller.silent_at == method:
                await asyncio.sleep(3600)
            await asyncio.sleep(self._seller.delay_s)
            honest: bytes = await found.unary_unary(request, context)
            twist = self._seller.twist
            try:
                twisted = twist(method, request, honest) if twist is not None else None
            except LedgerError as error:
                await context.abort(*answer_status(error))
                raise
            return honest if twisted is None else twisted

        return grpc.unary_unary_rpc_method_handler(answer)


@dataclass
class Seller:
    """A peer that can be joined from."""

    directory: Path
    organisation: int = 2
    twist: Twist | None = None
    silent_at: str = ""
    """Method that is never answered."""

    delay_s: float = 0.0
    """Time before each answer."""

    chk: int = proven.CHK
    latest: CheckpointProof | None = None
    """What it offers instead of its latest valid checkpoint."""

    address: str = ""
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.directory.exists():
            shutil.copytree(honest_folder(), self.directory)

    @property
    def bundle(self) -> Any:
        return proven.life().channel.bundle

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Seller"]:
        """Serve, until the block ends."""
        certificate, key = tls_of(self.organisation)
        with contextlib.ExitStack() as stack:
            store = LedgerStore.open(self.directory / "data", CHANNEL_ID, chk=self.chk)
            stack.callback(store.close)
            records = CheckpointStore(store.records_directory, CHANNEL_ID)
            stack.callback(records.close)
            self.store, self.records = store, records
            source = JoinSource(store, lambda: self.latest or records.latest_valid, self.chk,
                                store.directory / "serving")  # fmt: skip
            stack.callback(source.close)
            executor = ThreadPoolExecutor(2)
            stack.callback(executor.shutdown)
            server, port = make_mutual_server("127.0.0.1:0", ServerTls(certificate, key, tls_roots()))
            door = JoiningDoor({CHANNEL: self}, {CHANNEL: source}, executor)
            server.add_generic_rpc_handlers((_Twisted(door.handler(), self),))
            await server.start()
            self.server = server
            self.address = f"localhost:{port}"
            try:
                yield self
            finally:
                await server.stop(0)

    def offer(self, number: int) -> None:
        """Offer an earlier checkpoint."""
        self.latest = self.records.proof(BlockNumber(number))
        assert self.latest is not None


@dataclass
class OrdererStub(ab_pb2_grpc.AtomicBroadcastServicer):  # type: ignore[misc]  # Generated code has no types.
    """An orderer that delivers what a test gives it."""

    blocks: dict[int, bytes] = field(default_factory=dict)
    first: int = 0
    """What is below was pruned."""

    address: str = ""
    roots: bytes = b""

    async def Deliver(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for envelope in requests:
            payload = common_pb2.Payload.FromString(envelope.payload)
            start = ab_pb2.SeekInfo.FromString(payload.data).start
            newest = start.WhichOneof("Type") == "newest"
            number = max(self.blocks) if newest else start.specified.number
            if number < self.first or number not in self.blocks:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"block {number} was pruned")
            yield ab_pb2.DeliverResponse(block=common_pb2.Block.FromString(self.blocks[number]))

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["OrdererStub"]:
        """Serve, until the block ends."""
        authority = make_authority("tlsca", "test", datetime.datetime.now(datetime.UTC))
        made = authority.issue("orderer", None, ("localhost", "127.0.0.1"))
        self.roots = authority.credential.certificate
        server, port = make_server("127.0.0.1:0", ServerTls(made.certificate, made.key, self.roots))
        ab_pb2_grpc.add_AtomicBroadcastServicer_to_server(self, server)
        await server.start()
        self.address = f"localhost:{port}"
        try:
            yield self
        finally:
            await server.stop(0)


def ordered(high: int) -> dict[int, bytes]:
    """The blocks `[0, high)` as they were ordered."""
    return {number: encode_block(proven.life().outcomes[number].block) for number in range(high)}


def settings_for(
    directory: Path,
    *,
    genesis: bytes | None = None,
    orderers: Sequence[OrdererStub] = (),
    lcvp: str | None = None,
    interval_blocks: int = proven.CHK,
) -> PeerSettings:
    """The settings of a new peer of Org3."""
    directory.mkdir(parents=True, exist_ok=True)
    certificate, key = tls_of(3)
    files = {
        "tls.pem": certificate,
        "tls.key": key,
        "roots.pem": tls_roots(),
        "genesis.block": genesis or proven.life().genesis,
    }
    for index, orderer in enumerate(orderers):
        files[f"orderer{index}.pem"] = orderer.roots
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return PeerSettings.model_validate(
        {
            "name": "new",
            "msp_id": "Org3MSP",
            "msp_dir": directory,
            "tls": {
                "certificate": directory / "tls.pem",
                "key": directory / "tls.key",
                "roots": [directory / "roots.pem"],
            },
            "grpc_listen": "127.0.0.1:0",
            "checkpoint_listen": "127.0.0.1:0",
            "rest_listen": "127.0.0.1:0",
            "data_dir": directory / "data",
            "channels": [
                {
                    "genesis": directory / "genesis.block",
                    "orderers": [
                        {"address": orderer.address, "tls_roots": directory / f"orderer{index}.pem"}
                        for index, orderer in enumerate(orderers)
                    ],
                }
            ],
            "checkpoint": {"interval_blocks": interval_blocks, "lcvp": lcvp},
        }
    )


def make_joiner(settings: PeerSettings, addresses: Sequence[str], trust: Trust | None = None) -> Joiner:
    """A joiner with these settings."""
    return Joiner(
        settings, settings.channels[0], proven.life().organisations[2].peer, addresses, trust, lambda *_: None
    )


async def join(directory: Path, *sources: Seller, trust: Trust | None = None, **options: Any) -> JoinReport:
    """Join with the settings of a new peer."""
    return await make_joiner(settings_for(directory, **options), [one.address for one in sources], trust).run()


def joined_store(directory: Path) -> LedgerStore:
    """Open what was joined."""
    return LedgerStore.open(directory / "data", CHANNEL_ID, chk=proven.CHK)


__all__ = [
    "CHANNEL_ID",
    "LATEST",
    "OrdererStub",
    "Seller",
    "honest_folder",
    "honest_proof",
    "join",
    "joined_store",
    "make_joiner",
    "ordered",
    "settings_for",
]
