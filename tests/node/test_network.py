"""A network directory: all or nothing, readable by Fabric's own messages, keys for their owner's eyes alone."""

import datetime
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from fabric_protos.common import common_pb2, configtx_pb2, configuration_pb2, policies_pb2
from fabric_protos.msp import msp_config_pb2
from fabric_protos.orderer import configuration_pb2 as orderer_pb2
from fabric_protos.orderer.etcdraft import configuration_pb2 as raft_pb2
from fabric_protos.peer import configuration_pb2 as peer_pb2

from ledger.core.channel_config import Bundle
from ledger.core.errors import Conflict, InvalidSetting, NotFound, PolicyNotSatisfied, StorageFailed
from ledger.core.policy.ast import Role, RolePrincipal
from ledger.core.policy.evaluate import SignedData
from ledger.node import network
from ledger.node.config import PruningMode, load_orderer_settings, load_peer_settings
from ledger.node.network import MadeNode, create_network, load_spec, make_spec
from ledger.node.rules import genesis_bundle
from ledger.node.supervise import node_folders
from ledger.storage.msp_folder import load_signing_identity
from tests.cluster.harness import peerledger

NOW = datetime.datetime(2026, 11, 30, 12, 0, 1, 500, tzinfo=datetime.UTC)
SPEC = make_spec(
    {
        "orgs": 2, "peers": 2, "users": 2, "checkpoint_interval_blocks": 7,
        "batch_messages_max": 9, "batch_timeout_ms": 150,
    },
    "test",
)  # fmt: skip
SMALL = make_spec({"orgs": 1}, "test")


class Made:
    """A network that all tests of this module look at."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes: tuple[MadeNode, ...] = create_network(directory, SPEC, NOW)
        self.genesis = (directory / "channels" / "demo.block").read_bytes()
        self.bundle: Bundle = genesis_bundle(self.genesis)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    yield Made(tmp_path_factory.mktemp("networks") / "network")


def organisations(made: Made) -> dict[str, Path]:
    """Organisation folders by MSP ID."""
    found = {f"Org{n}MSP": made.directory / f"organizations/peerOrganizations/org{n}.example.com" for n in (1, 2)}
    return found | {"OrdererMSP": made.directory / "organizations/ordererOrganizations/example.com"}


def members(made: Made) -> list[tuple[str, Path, Role]]:
    """Every local MSP folder: MSP ID, folder, role."""
    found = []
    for msp_id, folder in organisations(made).items():
        found += [(msp_id, path, Role.PEER) for path in sorted((folder / "peers").glob("*"))]
        found += [(msp_id, path, Role.ORDERER) for path in sorted((folder / "orderers").glob("*"))]
        found += [
            (msp_id, path, Role.ADMIN if path.name.startswith("Admin@") else Role.CLIENT)
            for path in sorted((folder / "users").glob("*"))
        ]
    return found


# The directory.


def test_nodes_are_those_of_the_spec_each_with_its_own_addresses(made: Made) -> None:
    names = [(node.name, node.kind, node.msp_id) for node in made.nodes]
    assert names == [
        ("orderer.example.com", "orderer", "OrdererMSP"),
        *((f"peer{index}.org{n}.example.com", "peer", f"Org{n}MSP") for n in (1, 2) for index in (0, 1)),
    ]
    addresses = [address for node in made.nodes for address in (node.grpc, node.rest) if address]
    assert len(set(addresses)) == len(addresses) == 1 + 2 * 4
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert sorted(node.name for node in node_folders(made.directory)) == sorted(name for name, _, _ in names)


def test_settings_of_every_node_load_and_name_files_that_are_there(made: Made) -> None:
    for folder in node_folders(made.directory):
        settings: Any = (load_orderer_settings if folder.kind == "orderer" else load_peer_settings)(folder.config)
        for path in (
            settings.msp_dir, settings.tls.certificate, settings.tls.key, *settings.tls.roots,
            settings.channels[0].genesis,
        ):  # fmt: skip
            assert path.exists(), path
        assert len(settings.tls.roots) == 3, "all organisations' nodes may connect"
        identity = load_signing_identity(settings.msp_dir, settings.msp_id)
        assert made.bundle.msps.deserialize(identity.serialized).msp_id == settings.msp_id
        if folder.kind == "peer":
            assert settings.checkpoint.interval_blocks == 7
            assert len(settings.peers) == 3, "every other peer"
            others = {other.name: other for other in settings.peers}
            assert settings.name not in others
            assert all(other.tls_roots.exists() for other in settings.peers)
            assert all(other.address != other.checkpoint_address for other in settings.peers)
            assert settings.channels[0].orderers[0].tls_roots.exists()


def test_private_keys_are_for_their_owner_alone_and_fit_their_certificates(made: Made) -> None:
    keys = [path for path in made.directory.rglob("*") if path.name == "priv_sk" or path.suffix == ".key"]
    assert len(keys) == 3 * 2 + 2 * len(members(made))
    for path in keys:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        if path.parent.name == "keystore":
            certificate = path.parent.parent / "signcerts" / "cert.pem"
        elif path.suffix == ".key":
            certificate = path.with_suffix(".crt")
        else:
            (certificate,) = path.parent.glob("*-cert.pem")
        key = load_pem_private_key(path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.public_key() == x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    for path in made.directory.rglob("*"):
        if path.is_file() and path not in keys:
            assert b"PRIVATE KEY" not in path.read_bytes(), path


# Certificates.


def test_every_identity_chains_to_its_ca_and_has_one_role(made: Made) -> None:
    assert len(members(made)) == 4 + 1 + 2 * 3 + 1
    for msp_id, folder, role in members(made):
        signer = load_signing_identity(folder / "msp", msp_id)
        identity = made.bundle.msps.deserialize(signer.serialized)
        roles = (Role.PEER, Role.ORDERER, Role.ADMIN, Role.CLIENT)
        assert [each for each in roles if made.bundle.msps.satisfies(identity, RolePrincipal(msp_id, each))] == [role]
        certificate = x509.load_pem_x509_certificate(signer.certificate)
        ca = x509.load_pem_x509_certificate((folder / "msp/cacerts/ca.pem").read_bytes())
        certificate.verify_directly_issued_by(ca)
        assert ca.not_valid_before_utc <= certificate.not_valid_before_utc < NOW
        assert certificate.not_valid_after_utc <= ca.not_valid_after_utc
        assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == folder.name


def test_tls_certificates_chain_to_the_tls_ca_name_their_host_and_serve_both_ends(made: Made) -> None:
    for _, folder, role in members(made):
        name = "client" if role in (Role.ADMIN, Role.CLIENT) else "server"
        certificate = x509.load_pem_x509_certificate((folder / "tls" / f"{name}.crt").read_bytes())
        ca = x509.load_pem_x509_certificate((folder / "tls" / "ca.crt").read_bytes())
        certificate.verify_directly_issued_by(ca)
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH} == set(usages)
        hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert "localhost" in hosts.get_values_for_type(x509.DNSName)
        if name == "server":
            assert folder.name in hosts.get_values_for_type(x509.DNSName)
        enrolment = x509.load_pem_x509_certificate((folder / "msp/cacerts/ca.pem").read_bytes())
        assert enrolment.public_key() != ca.public_key(), "another CA than that of the identities"


def test_policies_of_the_channel_are_met_by_those_they_name(made: Made) -> None:
    """An admin of each organisation for a change, a client to write, peers to endorse and not to administer."""
    signers = {(msp_id, role): load_signing_identity(folder / "msp", msp_id) for msp_id, folder, role in members(made)}

    def holds(path: str, *who: tuple[str, Role]) -> bool:
        signed = [SignedData(b"m", signers[each].serialized, signers[each].sign(b"m")) for each in who]
        try:
            made.bundle.check(path, signed)
        except PolicyNotSatisfied as error:
            assert error.rule == path
            return False
        return True

    assert holds("/Channel/Application/Admins", ("Org1MSP", Role.ADMIN), ("Org2MSP", Role.ADMIN))
    assert not holds("/Channel/Application/Admins", ("Org1MSP", Role.ADMIN))
    assert not holds("/Channel/Application/Admins", ("Org1MSP", Role.PEER), ("Org2MSP", Role.PEER))
    assert holds("/Channel/Writers", ("Org1MSP", Role.CLIENT))
    assert holds("/Channel/Readers", ("Org2MSP", Role.PEER))
    assert holds("/Channel/Application/Endorsement", ("Org1MSP", Role.PEER), ("Org2MSP", Role.PEER))
    assert not holds("/Channel/Application/Endorsement", ("Org1MSP", Role.PEER))
    assert not holds("/Channel/Application/Endorsement", ("Org1MSP", Role.CLIENT), ("Org2MSP", Role.CLIENT))
    assert holds("/Channel/Orderer/BlockValidation", ("OrdererMSP", Role.ORDERER))
    assert not holds("/Channel/Orderer/BlockValidation", ("Org1MSP", Role.PEER))


# The genesis block, by Fabric's own messages.

VALUES = {
    "HashingAlgorithm": configuration_pb2.HashingAlgorithm,
    "BlockDataHashingStructure": configuration_pb2.BlockDataHashingStructure,
    "Capabilities": configuration_pb2.Capabilities,
    "ConsensusType": orderer_pb2.ConsensusType,
    "BatchSize": orderer_pb2.BatchSize,
    "BatchTimeout": orderer_pb2.BatchTimeout,
    "ChannelRestrictions": orderer_pb2.ChannelRestrictions,
    "Endpoints": configuration_pb2.OrdererAddresses,
    "MSP": msp_config_pb2.MSPConfig,
    "ACLs": peer_pb2.ACLs,
    "AnchorPeers": peer_pb2.AnchorPeers,
}
"""The names that Fabric's tools know, and what they decode them as."""


def decoded(group: Any, path: str = "/Channel") -> Iterator[tuple[str, Any]]:
    """Walk a configuration as the tools do: each value by its name, no name unknown, each policy of a known type."""
    assert group.mod_policy == "Admins", path
    for name, value in group.values.items():
        assert value.mod_policy in ("Admins", "/Channel/Orderer/Admins")
        yield f"{path}/{name}", VALUES[name].FromString(value.value)
    for name, policy in group.policies.items():
        assert policy.mod_policy == "Admins"
        kind = {1: policies_pb2.SignaturePolicyEnvelope, 3: policies_pb2.ImplicitMetaPolicy}[policy.policy.type]
        yield f"{path}/{name}", kind.FromString(policy.policy.value)
    for name, child in group.groups.items():
        yield from decoded(child, f"{path}/{name}")


def test_genesis_block_decodes_by_fabrics_messages_with_all_that_its_tools_ask_for(made: Made) -> None:
    block = common_pb2.Block.FromString(made.genesis)
    assert block.SerializeToString() == made.genesis
    assert (block.header.number, block.header.previous_hash, len(block.metadata.metadata)) == (0, b"", 5)
    (envelope,) = block.data.data
    payload = common_pb2.Payload.FromString(common_pb2.Envelope.FromString(envelope).payload)
    header = common_pb2.ChannelHeader.FromString(payload.header.channel_header)
    assert (header.type, header.channel_id, header.timestamp.seconds) == (
        common_pb2.CONFIG, "demo", int(NOW.timestamp()),
    )  # fmt: skip
    config = configtx_pb2.ConfigEnvelope.FromString(payload.data)
    assert config.config.sequence == 0
    assert not config.HasField("last_update")
    found = dict(decoded(config.config.channel_group))
    assert found["/Channel/HashingAlgorithm"].name == "SHA256"
    assert found["/Channel/BlockDataHashingStructure"].width == 2**32 - 1
    assert list(found["/Channel/Capabilities"].capabilities) == ["V2_0"]
    assert list(found["/Channel/Application/Capabilities"].capabilities) == ["V2_5"]
    size = found["/Channel/Orderer/BatchSize"]
    assert (size.max_message_count, size.preferred_max_bytes <= size.absolute_max_bytes) == (9, True)
    assert found["/Channel/Orderer/BatchTimeout"].timeout == "150ms"
    consensus = found["/Channel/Orderer/ConsensusType"]
    raft = raft_pb2.ConfigMetadata.FromString(consensus.metadata)
    orderer = made.nodes[0]
    (consenter,) = raft.consenters
    assert (consensus.type, consensus.state) == ("etcdraft", 0)
    assert f"{consenter.host}:{consenter.port}" == orderer.grpc
    tls = organisations(made)["OrdererMSP"] / "orderers" / orderer.name / "tls" / "server.crt"
    assert consenter.server_tls_cert == consenter.client_tls_cert == tls.read_bytes()
    assert raft.options.tick_interval == "500ms"
    assert list(found["/Channel/Orderer/OrdererOrg/Endpoints"].addresses) == [orderer.grpc]
    for number in (1, 2):
        (anchor,) = found[f"/Channel/Application/Org{number}/AnchorPeers"].anchor_peers
        assert f"{anchor.host}:{anchor.port}" == made.nodes[2 * number - 1].grpc
        for policy in ("Readers", "Writers", "Admins", "Endorsement"):
            assert f"/Channel/Application/Org{number}/{policy}" in found
    for path in ("/Channel", "/Channel/Application", "/Channel/Orderer"):
        for policy in ("Readers", "Writers", "Admins"):
            assert isinstance(found[f"{path}/{policy}"], policies_pb2.ImplicitMetaPolicy)
    assert {"/Channel/Application/Endorsement", "/Channel/Application/LifecycleEndorsement"} <= found.keys()
    assert "/Channel/Orderer/BlockValidation" in found


def test_organisations_in_the_genesis_block_carry_roots_tls_roots_and_role_units(made: Made) -> None:
    for organisation in (*made.bundle.application.organisations, *made.bundle.orderer.organisations):
        folder = organisations(made)[organisation.msp_id]
        assert organisation.msp.root_certs == ((folder / "msp/cacerts/ca.pem").read_bytes(),)
        assert organisation.tls_roots == ((folder / "msp/tlscacerts/tlsca.pem").read_bytes(),)
        assert organisation.msp.role_units is not None
        units = {role: unit.unit for role, unit in organisation.msp.role_units.items()}
        assert units == {Role.CLIENT: "client", Role.PEER: "peer", Role.ADMIN: "admin", Role.ORDERER: "orderer"}


# All or nothing.


def test_directory_that_holds_something_is_refused_and_left_as_it_was(made: Made, tmp_path: Path) -> None:
    before = made.genesis
    with pytest.raises(Conflict, match="exists and is not empty; nothing was changed"):
        create_network(made.directory, SPEC, NOW)
    assert (made.directory / "channels" / "demo.block").read_bytes() == before
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(Conflict, match="nothing was changed"):
        create_network(file, SPEC, NOW)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_empty_directory_is_taken_and_parents_are_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    create_network(tmp_path / "empty", SMALL, NOW)
    create_network(tmp_path / "a/b/c", SMALL, NOW)
    assert (tmp_path / "empty/network.yaml").exists()
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["c"]


def test_failure_on_the_way_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(network, "genesis_block", fail)
    with pytest.raises(StorageFailed, match="No space left"):
        create_network(tmp_path / "network", SMALL, NOW)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailed, match=r"file/network failed"):
        create_network(tmp_path / "file" / "network", SMALL, NOW)


# The short file and the options.


def test_network_yaml_is_one_that_the_same_network_can_be_made_from(made: Made) -> None:
    assert load_spec(made.directory / "network.yaml") == SPEC


def test_short_file_gives_the_rest_by_default(tmp_path: Path) -> None:
    path = tmp_path / "network.yaml"
    path.write_text("orgs: 3\npruning: off\n")
    spec = load_spec(path)
    assert (spec.orgs, spec.peers, spec.channel, spec.pruning) == (3, 1, "demo", PruningMode.OFF)
    assert list(spec.contracts) == ["assets"]


@pytest.mark.parametrize(
    ("content", "rule", "place"),
    [
        ("orgz: 2", "unknown setting", "orgz"),
        ("orgs: 0", "setting out of range", "orgs"),
        ("orgs: two", "setting out of range", "orgs"),
        ("orgs: 21", "setting out of range", "orgs"),
        ("channel: Upper", "setting out of range", "channel"),
        ("channel: with space", "setting out of range", "channel"),
        ("batch_preferred_bytes: 20000000", "setting out of range", "batch_preferred_bytes"),
        ("batch_timeout_ms: 0", "setting out of range", "batch_timeout_ms"),
        ("pruning: sometimes", "setting out of range", "pruning"),
        ("- orgs", "YAML", ""),
        ("orgs: [", "YAML", ""),
        ("", "YAML", ""),
    ],
)
def test_wrong_short_file_is_refused_and_the_setting_named(content: str, rule: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "network.yaml"
    path.write_text(content)
    with pytest.raises(InvalidSetting) as caught:
        load_spec(path)
    assert caught.value.rule == rule
    assert caught.value.subject == (f"{path}: {place}" if place else str(path))


def test_short_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"network\.yaml does not exist"):
        load_spec(tmp_path / "network.yaml")


def test_command_makes_a_network_from_options_and_refuses_to_make_it_again(tmp_path: Path) -> None:
    directory = tmp_path / "network"
    done = peerledger("network", "create", str(directory), "--orgs", "1", "--peers", "2", "--channel", "c1", "--json")
    nodes = yaml.safe_load(done.stdout)
    assert [node["name"] for node in nodes] == [
        "orderer.example.com", "peer0.org1.example.com", "peer1.org1.example.com",
    ]  # fmt: skip
    assert (directory / "channels" / "c1.block").exists()
    again = peerledger("network", "create", str(directory), check=False)
    assert again.returncode == 3
    assert "not empty; nothing was changed" in again.stderr
