"""How is a local network made?  Organisations, certificates, genesis block and node settings, all or nothing.

The layout of `organizations/` is that of Fabric's cryptogen, so that its tools and samples find what they look for:

    DIR/network.yaml                       the network in a few lines; also what it can be made from
    DIR/channels/CHANNEL.block             the genesis block
    DIR/organizations/peerOrganizations/org1.example.com/{ca,tlsca,msp,peers/…/{msp,tls},users/…/{msp,tls}}
    DIR/organizations/ordererOrganizations/example.com/…
    DIR/nodes/NODE/{orderer.yaml|peer.yaml}, DIR/nodes/NODE/data
"""

import datetime
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from ledger.core.errors import Conflict, InvalidSetting, StorageFailed
from ledger.node.authorities import Authority, Credential, make_authority
from ledger.node.config import PruningMode, Section, explain, load_mapping
from ledger.storage.msp_folder import msp_config_from_folder
from ledger.wire.genesis import ConsenterSpec, GenesisSpec, OrdererOrganisation, PeerOrganisation, genesis_block

DOMAIN = "example.com"
NODE_OUS = {
    "NodeOUs": {"Enable": True}
    | {
        f"{role}OUIdentifier": {"Certificate": "cacerts/ca.pem", "OrganizationalUnitIdentifier": role.lower()}
        for role in ("Client", "Peer", "Admin", "Orderer")
    }
}


class NetworkSpec(Section):
    """A local network in a few lines."""

    channel: str = Field("demo", pattern=r"^[a-z][a-z0-9.-]{0,248}$", description="Name of the channel.")
    orgs: int = Field(2, ge=1, le=20, description="Peer organisations.")
    peers: int = Field(1, ge=1, le=10, description="Peers of each.")
    users: int = Field(1, ge=1, le=100, description="Users of each, beside its admin.")
    checkpoint_interval_blocks: int = Field(100, ge=1, description="Blocks between checkpoints (CHK).")
    batch_messages_max: int = Field(100, ge=1, description="Most transactions in a block.")
    batch_preferred_bytes: int = Field(2 << 20, ge=1, description="Size at which a block is cut.")
    batch_absolute_bytes: int = Field(10 << 20, ge=1, description="Largest transaction.")
    batch_timeout_ms: int = Field(200, ge=1, description="Longest wait for a block to fill.")
    pruning: PruningMode = Field(PruningMode.MANUAL, description="off, manual or auto.")
    contracts: dict[str, str] = Field(
        default_factory=lambda: {"assets": "ledger.chaincode.contracts.assets:AssetContract"},
        description="Contracts that every peer can run: NAME: module:Class.",
    )


@dataclass(frozen=True, slots=True)
class MadeNode:
    """A node of the network as it was made."""

    name: str
    kind: str
    msp_id: str
    grpc: str
    rest: str | None


def load_spec(path: Path) -> NetworkSpec:
    """Read a network.yaml.

    Raises:
        NotFound: It is not there.
        InvalidSetting: It is not understood; the setting is named.
        StorageFailed: It can't be read.
    """
    return make_spec(load_mapping(path), str(path))


def make_spec(members: dict[str, Any], source: str) -> NetworkSpec:
    """Check the members of a spec.

    Raises:
        InvalidSetting: One is unknown or out of range; it is named.
    """
    try:
        spec = NetworkSpec.model_validate(members)
    except ValidationError as error:
        raise explain(NetworkSpec, error, source) from error
    if spec.batch_preferred_bytes > spec.batch_absolute_bytes:
        raise InvalidSetting(
            f"{source}: batch_preferred_bytes", rule="setting out of range",
            expected=f"at most batch_absolute_bytes, {spec.batch_absolute_bytes}", found=spec.batch_preferred_bytes,
        )  # fmt: skip
    return spec


def create_network(directory: Path, spec: NetworkSpec, now: datetime.datetime) -> tuple[MadeNode, ...]:
    """Make a network directory.

    Args:
        directory: Where; must not exist, or be empty.
        spec: What.
        now: The time from which certificates are valid.

    Returns:
        The nodes.

    Raises:
        Conflict: The directory holds something.
        StorageFailed: It can't be made.

    Durability: built beside its place and renamed, so it is there whole or not at all.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise Conflict(f"{directory} exists and is not empty; nothing was changed")
    building = directory.parent / f".{directory.name}.{os.getpid()}.new"
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        nodes = _Builder(building, spec, now).build()
        if directory.exists():
            directory.rmdir()
        building.rename(directory)
    except OSError as error:
        raise StorageFailed(f"making {directory} failed: {error}") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return nodes


def free_ports(count: int) -> list[int]:
    """Find loopback ports that are free now; all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class _Builder:
    """Builds one network directory."""

    def __init__(self, root: Path, spec: NetworkSpec, now: datetime.datetime) -> None:
        self.root = root
        self.spec = spec
        self.now = now
        self.ports = iter(free_ports(1 + 3 * spec.orgs * spec.peers))
        self.peers: list[dict[str, Any]] = []

    def build(self) -> tuple[MadeNode, ...]:
        """Make everything."""
        spec = self.spec
        orderer_port = next(self.ports)
        orderer_name = f"orderer.{DOMAIN}"
        orderer_org = self.root / "organizations" / "ordererOrganizations" / DOMAIN
        tls = self.organisation(orderer_org, DOMAIN, "orderers", [(orderer_name, "orderer")], [f"Admin@{DOMAIN}"])
        organisations = []
        for number in range(1, spec.orgs + 1):
            domain = f"org{number}.{DOMAIN}"
            folder = self.root / "organizations" / "peerOrganizations" / domain
            names = [(f"peer{index}.{domain}", "peer") for index in range(spec.peers)]
            users = [f"Admin@{domain}", *(f"User{index}@{domain}" for index in range(1, spec.users + 1))]
            self.organisation(folder, domain, "peers", names, users)
            msp_id = f"Org{number}MSP"
            made = [self.peer(name, msp_id, folder) for name, _ in names]
            anchors = (("127.0.0.1", int(made[0]["grpc"].rpartition(":")[2])),)
            organisations.append(
                PeerOrganisation(f"Org{number}", msp_config_from_folder(folder / "msp", msp_id), anchors)
            )
        self.write_genesis(organisations, orderer_org, orderer_port, tls[orderer_name])
        orderer = MadeNode(orderer_name, "orderer", "OrdererMSP", f"127.0.0.1:{orderer_port}", None)
        self.write_orderer(orderer, orderer_org)
        nodes = [orderer]
        for one in self.peers:
            self.write_peer(one, orderer)
            nodes.append(MadeNode(one["name"], "peer", one["msp_id"], one["grpc"], one["rest"]))
        (self.root / "network.yaml").write_text(yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False))
        return tuple(nodes)

    def organisation(
        self, folder: Path, domain: str, kind: str, nodes: list[tuple[str, str]], users: list[str]
    ) -> dict[str, Credential]:
        """Make an organisation's folder; give the TLS credential of each node."""
        ca = make_authority(f"ca.{domain}", domain, self.now)
        tlsca = make_authority(f"tlsca.{domain}", domain, self.now)
        for name, authority in (("ca", ca), ("tlsca", tlsca)):
            _write(folder / name / f"{name}.{domain}-cert.pem", authority.credential.certificate)
            _write(folder / name / "priv_sk", authority.credential.key, private=True)
        self.msp(folder / "msp", ca, tlsca)
        tls: dict[str, Credential] = {}
        for name, role in nodes:
            tls[name] = tlsca.issue(name, None, (name, "localhost", "127.0.0.1"))
            self.member(folder / kind / name, ca, tlsca, ca.issue(name, role), tls[name], "server")
        for user in users:
            role = "admin" if user.startswith("Admin@") else "client"
            self.member(
                folder / "users" / user,
                ca,
                tlsca,
                ca.issue(user, role),
                tlsca.issue(user, None, ("localhost",)),
                "client",
            )
        return tls

    def msp(self, folder: Path, ca: Authority, tlsca: Authority) -> None:
        """Write what an MSP folder says of the organisation."""
        _write(folder / "cacerts" / "ca.pem", ca.credential.certificate)
        _write(folder / "tlscacerts" / "tlsca.pem", tlsca.credential.certificate)
        _write(folder / "config.yaml", yaml.safe_dump(NODE_OUS, sort_keys=False).encode())

    def member(
        self, folder: Path, ca: Authority, tlsca: Authority, own: Credential, tls: Credential, tls_name: str
    ) -> None:
        """Write a node's or user's local MSP and TLS folders."""
        self.msp(folder / "msp", ca, tlsca)
        _write(folder / "msp" / "signcerts" / "cert.pem", own.certificate)
        _write(folder / "msp" / "keystore" / "priv_sk", own.key, private=True)
        _write(folder / "tls" / "ca.crt", tlsca.credential.certificate)
        _write(folder / "tls" / f"{tls_name}.crt", tls.certificate)
        _write(folder / "tls" / f"{tls_name}.key", tls.key, private=True)

    def peer(self, name: str, msp_id: str, organisation: Path) -> dict[str, Any]:
        """Choose a peer's addresses."""
        grpc, rest, checkpoint = next(self.ports), next(self.ports), next(self.ports)
        made = {
            "name": name, "msp_id": msp_id, "organisation": organisation,
            "grpc": f"127.0.0.1:{grpc}", "rest": f"127.0.0.1:{rest}", "checkpoint": f"127.0.0.1:{checkpoint}",
        }  # fmt: skip
        self.peers.append(made)
        return made

    def write_genesis(
        self, organisations: list[PeerOrganisation], orderer_org: Path, port: int, tls: Credential
    ) -> None:
        """Write the channel's genesis block."""
        spec = self.spec
        block = genesis_block(
            GenesisSpec(
                channel_id=spec.channel,
                peers=tuple(organisations),
                orderers=(
                    OrdererOrganisation(
                        "OrdererOrg", msp_config_from_folder(orderer_org / "msp", "OrdererMSP"), (f"127.0.0.1:{port}",)
                    ),
                ),
                consenters=(ConsenterSpec("127.0.0.1", port, tls.certificate),),
                nonce=os.urandom(24),
                timestamp_s=int(self.now.timestamp()),
                max_message_count=spec.batch_messages_max,
                absolute_max_bytes=spec.batch_absolute_bytes,
                preferred_max_bytes=spec.batch_preferred_bytes,
                batch_timeout_ms=spec.batch_timeout_ms,
            )
        )
        _write(self.root / "channels" / f"{spec.channel}.block", block)

    def write_orderer(self, node: MadeNode, organisation: Path) -> None:
        """Write an orderer's settings."""
        folder = self.root / "nodes" / node.name
        home = organisation / "orderers" / node.name
        settings = {
            "name": node.name,
            "msp_id": node.msp_id,
            "msp_dir": self.relative(home / "msp"),
            "tls": self.tls(home),
            "grpc_listen": node.grpc,
            "data_dir": "data",
            "channels": [{"genesis": f"../../channels/{self.spec.channel}.block"}],
        }
        _write(folder / "orderer.yaml", yaml.safe_dump(settings, sort_keys=False).encode())

    def write_peer(self, one: dict[str, Any], orderer: MadeNode) -> None:
        """Write a peer's settings."""
        spec = self.spec
        home = one["organisation"] / "peers" / one["name"]
        orderer_tls = self.root / "organizations" / "ordererOrganizations" / DOMAIN / "msp" / "tlscacerts" / "tlsca.pem"
        others = [
            {
                "name": other["name"], "msp_id": other["msp_id"], "address": other["grpc"],
                "checkpoint_address": other["checkpoint"],
                "tls_roots": self.relative(other["organisation"] / "msp" / "tlscacerts" / "tlsca.pem"),
            }
            for other in self.peers
            if other is not one
        ]  # fmt: skip
        settings = {
            "name": one["name"],
            "msp_id": one["msp_id"],
            "msp_dir": self.relative(home / "msp"),
            "tls": self.tls(home),
            "grpc_listen": one["grpc"],
            "checkpoint_listen": one["checkpoint"],
            "rest_listen": one["rest"],
            "data_dir": "data",
            "backup_dir": "backups",
            "channels": [
                {
                    "genesis": f"../../channels/{spec.channel}.block",
                    "orderers": [{"address": orderer.grpc, "tls_roots": self.relative(orderer_tls)}],
                }
            ],
            "peers": others,
            "contracts": dict(spec.contracts),
            "checkpoint": {"interval_blocks": spec.checkpoint_interval_blocks},
            "pruning": {"mode": spec.pruning.value},
        }
        _write(self.root / "nodes" / one["name"] / "peer.yaml", yaml.safe_dump(settings, sort_keys=False).encode())

    def tls(self, home: Path) -> dict[str, Any]:
        """Give a node's TLS settings: all organisations' TLS roots may connect."""
        organisations = self.root / "organizations"
        roots = sorted(organisations.glob("*/*/msp/tlscacerts/tlsca.pem")) or [home / "tls" / "ca.crt"]
        return {
            "certificate": self.relative(home / "tls" / "server.crt"),
            "key": self.relative(home / "tls" / "server.key"),
            "roots": [self.relative(root) for root in roots],
        }

    def relative(self, path: Path) -> str:
        """Write a path as seen from a node's folder."""
        return str(Path("..") / ".." / path.relative_to(self.root))


def _write(path: Path, data: bytes, *, private: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if private:
        path.chmod(0o600)
