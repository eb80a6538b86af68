"""Settings: each can be overridden by the environment, and a misspelt one stops the start and is named."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.core.errors import InvalidSetting, NotFound, StorageFailed
from ledger.node.config import (
    ORDERER_PREFIX,
    PEER_PREFIX,
    Combine,
    OrdererSettings,
    PeerSettings,
    PruningMode,
    load,
    load_peer_settings,
)
from tests.cluster.harness import peerledger

ORDERER: dict[str, Any] = {
    "name": "orderer0",
    "msp_id": "OrdererMSP",
    "msp_dir": "msp",
    "tls": {"certificate": "tls/server.crt", "key": "tls/server.key", "roots": ["tls/ca.crt"]},
    "grpc_listen": "127.0.0.1:7050",
    "data_dir": "data",
    "channels": [{"genesis": "demo.block"}],
}
PEER: dict[str, Any] = {
    **ORDERER,
    "name": "peer0",
    "msp_id": "Org1MSP",
    "checkpoint_listen": "127.0.0.1:7052",
    "rest_listen": "127.0.0.1:7053",
    "channels": [{"genesis": "demo.block", "orderers": [{"address": "127.0.0.1:7050", "tls_roots": "roots.pem"}]}],
    "pruning": {"mode": "auto", "keep_blocks_min": 5},
    "checkpoint": {"lcvp": "OR('Org1MSP.peer')"},
}


def peer_file(folder: Path, **changes: Any) -> Path:
    path = folder / "peer.yaml"
    path.write_text(yaml.safe_dump(PEER | changes))
    return path


def peer(path: Path, **environment: str) -> PeerSettings:
    return load(PeerSettings, PEER_PREFIX, path, environment)


def test_file_gives_the_settings_and_paths_are_relative_to_it(tmp_path: Path) -> None:
    settings = peer(peer_file(tmp_path, data_dir="/absolute"))
    assert (settings.name, settings.msp_id, settings.rest_listen) == ("peer0", "Org1MSP", "127.0.0.1:7053")
    assert settings.msp_dir == tmp_path / "msp"
    assert settings.tls.roots == (tmp_path / "tls/ca.crt",)
    assert settings.channels[0].genesis == tmp_path / "demo.block"
    assert settings.channels[0].orderers[0].tls_roots == tmp_path / "roots.pem"
    assert settings.data_dir == Path("/absolute")
    assert (settings.pruning.mode, settings.pruning.keep_blocks_min) == (PruningMode.AUTO, 5)
    assert settings.pruning.archive_dir is None
    assert (settings.checkpoint.interval_blocks, settings.checkpoint.combine) == (100, Combine.AND)


def test_orderer_settings_are_read_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "orderer.yaml"
    path.write_text(yaml.safe_dump(ORDERER))
    environment = {"PEERLEDGER_ORDERER_GRPC_LISTEN": "127.0.0.1:9", "PEERLEDGER_PEER_NAME": "another node's"}
    settings = load(OrdererSettings, ORDERER_PREFIX, path, environment)
    assert (settings.name, settings.grpc_listen) == ("orderer0", "127.0.0.1:9")
    assert settings.channels[0].genesis == tmp_path / "demo.block"


# The environment.


def test_environment_overrides_the_file_at_every_level(tmp_path: Path) -> None:
    settings = peer(
        peer_file(tmp_path),
        PEERLEDGER_PEER_REST_LISTEN="127.0.0.1:1",
        PEERLEDGER_PEER_PRUNING__MODE="off",
        PEERLEDGER_PEER_CHECKPOINT__INTERVAL_BLOCKS="7",
        PEERLEDGER_PEER_CONTRACT_POOL__WORKERS="3",
        PEERLEDGER_PEER_TLS__ROOTS="[a.pem, b.pem]",
        PEERLEDGER_PEER_CHECKPOINT__LCVP="null",
        PEERLEDGER_PEER_DATA_DIR="other",
    )
    assert settings.rest_listen == "127.0.0.1:1"
    assert settings.pruning.mode == PruningMode.OFF
    assert settings.pruning.keep_blocks_min == 5, "what is not overridden stays"
    assert settings.checkpoint.interval_blocks == 7
    assert settings.contract_pool.workers == 3
    assert settings.tls.roots == (tmp_path / "a.pem", tmp_path / "b.pem")
    assert settings.checkpoint.lcvp is None
    assert settings.data_dir == tmp_path / "other"


def test_real_environment_is_read_and_strangers_in_it_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLEDGER_PEER_NAME", "from the environment")
    monkeypatch.setenv("PEERLEDGERS", "somebody else's")
    assert load_peer_settings(peer_file(tmp_path)).name == "from the environment"


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("PEERLEDGER_PEER_REST_LISTN", "x", "rest_listn"),
        ("PEERLEDGER_PEER_PRUNING__MOD", "off", "pruning.mod"),
        ("PEERLEDGER_PEER_PRUNNING__MODE", "off", "prunning"),
        ("PEERLEDGER_PEER_PRUNING_MODE", "off", "pruning_mode"),
        ("PEERLEDGER_PEER_NAME__FIRST", "x", "PEERLEDGER_PEER_NAME__FIRST"),
        ("PEERLEDGER_PEER_CHANNELS__0__GENESIS", "x", "PEERLEDGER_PEER_CHANNELS__0__GENESIS"),
        ("PEERLEDGER_PEER_", "x", "PEERLEDGER_PEER_"),
        ("PEERLEDGER_PER_NAME", "x", "PEERLEDGER_PER_NAME"),
    ],
)
def test_misspelt_variable_stops_the_start_and_is_named(variable: str, value: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as caught:
        peer(peer_file(tmp_path), **{variable: value})
    assert caught.value.rule == "unknown setting"
    assert caught.value.subject.startswith(f"environment variable {variable}"), "it is not in the file"
    assert named in str(caught.value)


def test_variable_whose_value_is_wrong_is_named_with_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as caught:
        peer(peer_file(tmp_path), PEERLEDGER_PEER_CHECKPOINT__INTERVAL_BLOCKS="often")
    assert (caught.value.rule, caught.value.found) == ("setting out of range", "often")
    assert "environment variable PEERLEDGER_PEER_CHECKPOINT__INTERVAL_BLOCKS" in str(caught.value)
    with pytest.raises(InvalidSetting) as caught:
        peer(peer_file(tmp_path), PEERLEDGER_PEER_NAME="[unclosed")
    assert "PEERLEDGER_PEER_NAME" in str(caught.value)


# The file.


@pytest.mark.parametrize(
    ("changes", "place", "hint"),
    [
        ({"rest_lisen": "x"}, "rest_lisen", "did you mean rest_listen?"),
        ({"tls": {**PEER["tls"], "certifikate": "x"}}, "tls.certifikate", "did you mean certificate?"),
        ({"pruning": {"modus": "off"}}, "pruning.modus", "did you mean mode?"),
        ({"checkpoint": {"xyz": 1}}, "checkpoint.xyz", "one of combine, interval_blocks, lcvp"),
        (
            {"channels": [{**PEER["channels"][0], "orderer": []}]}, "channels.0.orderer", "did you mean orderers?",
        ),
        (
            {"channels": [{"genesis": "x", "orderers": [{"adress": "x", "tls_roots": "x", "address": "x"}]}]},
            "channels.0.orderers.0.adress", "did you mean address?",
        ),
    ],
)  # fmt: skip
def test_misspelt_setting_is_named_with_its_place_and_what_was_meant(
    changes: dict[str, Any], place: str, hint: str, tmp_path: Path
) -> None:
    path = peer_file(tmp_path, **changes)
    with pytest.raises(InvalidSetting) as caught:
        peer(path)
    assert caught.value.rule == "unknown setting"
    assert (caught.value.subject, caught.value.expected) == (f"{path}: {place}", hint)
    assert caught.value.found == place.rpartition(".")[2]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"checkpoint": {"interval_blocks": 0}}, "checkpoint.interval_blocks"),
        ({"checkpoint": {"combine": "xor"}}, "checkpoint.combine"),
        ({"pruning": {"mode": "sometimes"}}, "pruning.mode"),
        ({"pruning": {"keep_blocks_min": -1}}, "pruning.keep_blocks_min"),
        ({"contract_pool": {"workers": 65}}, "contract_pool.workers"),
        ({"log_level": "loud"}, "log_level"),
        ({"name": 7}, "name"),
        ({"tls": "server.crt"}, "tls"),
        ({"channels": {"genesis": "x"}}, "channels"),
        ({"contracts": {"assets": 5}}, "contracts.assets"),
    ],
)
def test_setting_of_the_wrong_kind_or_out_of_range_is_named(
    changes: dict[str, Any], place: str, tmp_path: Path
) -> None:
    path = peer_file(tmp_path, **changes)
    with pytest.raises(InvalidSetting) as caught:
        peer(path)
    assert caught.value.rule == "setting out of range"
    assert caught.value.subject == f"{path}: {place}"


@pytest.mark.parametrize("name", [name for name in PEER if name not in ("pruning", "checkpoint")])
def test_missing_setting_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / "peer.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in PEER.items() if key != name}))
    with pytest.raises(InvalidSetting) as caught:
        peer(path)
    assert (caught.value.rule, caught.value.subject) == ("missing setting", f"{path}: {name}")


@pytest.mark.parametrize("content", ["", "- a\n- b\n", "just text", "a: [", "\t- x", "a: &a\n  b: *c"])
def test_file_that_is_no_mapping_is_refused_by_its_name(content: str, tmp_path: Path) -> None:
    path = tmp_path / "peer.yaml"
    path.write_text(content)
    with pytest.raises(InvalidSetting) as caught:
        peer(path)
    assert (caught.value.subject, caught.value.rule) == (str(path), "YAML")


def test_file_that_is_not_text_or_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "peer.yaml"
    with pytest.raises(NotFound, match=r"peer\.yaml does not exist"):
        peer(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidSetting, match=r"peer\.yaml: YAML"):
        peer(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageFailed, match=r"peer\.yaml"):
        peer(path)


@pytest.mark.parametrize("mode", ["off", "manual", "auto"])
def test_each_mode_may_be_written_as_people_write_it(mode: str, tmp_path: Path) -> None:
    """The word `off` is a boolean to YAML 1.1, which the library follows."""
    path = tmp_path / "peer.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in PEER.items() if key != "pruning"}))
    path.write_text(path.read_text() + f"pruning:\n  mode: {mode}\n")
    assert peer(path).pruning.mode.value == mode


def test_key_that_stands_twice_in_the_file_is_refused(tmp_path: Path) -> None:
    """YAML's parser would take the last of them in silence."""
    path = peer_file(tmp_path)
    path.write_text(path.read_text() + "name: another\n")
    with pytest.raises(InvalidSetting) as caught:
        peer(path)
    assert caught.value.rule == "YAML"
    assert "name stands twice" in str(caught.value)


def test_daemon_does_not_start_with_a_misspelt_setting_and_says_which(tmp_path: Path) -> None:
    path = peer_file(tmp_path, grpc_lisen="x")
    done = peerledger("peer", "start", "--config", str(path), check=False)
    assert done.returncode == 2
    assert "grpc_lisen: unknown setting; expected did you mean grpc_listen?" in done.stderr
    assert "Traceback" not in done.stderr
