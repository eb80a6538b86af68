"""What can be set?  One YAML file a node, each setting overridable by environment, a misspelt one stops the start.

The environment names a setting by its path, with two underscores between the levels: PEERLEDGER_PEER_DATA_DIR,
PEERLEDGER_PEER_PRUNING__MODE, PEERLEDGER_ORDERER_GRPC_LISTEN; its value is read as YAML. Paths are relative to the
file. Units stand in the names.
"""

import difflib
import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger.core.errors import InvalidSetting
from ledger.node.files import read
from ledger.node.yaml_text import read_yaml

PEER_PREFIX = "PEERLEDGER_PEER_"
ORDERER_PREFIX = "PEERLEDGER_ORDERER_"
OTHER_VARIABLES = frozenset({"PEERLEDGER_REQUIRE_ALL", "PEERLEDGER_NETWORK", "PEERLEDGER_PEER", "PEERLEDGER_USER"})
"""Variables that belong to the command line or to tests."""


class Section(BaseModel):
    """A group of settings; an unknown one is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Tls(Section):
    """A node's TLS certificate, for both ends of its connections."""

    certificate: Path = Field(description="Certificate, PEM.")
    key: Path = Field(description="Private key, PEM.")
    roots: tuple[Path, ...] = Field(description="Root certificates of those that may connect, PEM.")


class Endpoint(Section):
    """Where another node is."""

    address: str = Field(description="host:port.")
    tls_roots: Path = Field(description="Root certificate of its TLS certificate, PEM.")


class OtherPeer(Endpoint):
    """Another peer of the channels."""

    name: str = Field(description="Its name, for people.")
    msp_id: str = Field(description="MSP ID of its organisation.")
    checkpoint_address: str = Field(description="host:port of its checkpointing service.")


class OrdererChannel(Section):
    """A channel of an orderer."""

    genesis: Path = Field(description="Its genesis block.")


class PeerChannel(Section):
    """A channel of a peer."""

    genesis: Path = Field(description="Its genesis block: the trust root.")
    orderers: tuple[Endpoint, ...] = Field(description="Orderers to pull blocks from and to submit to.")


class Combine(StrEnum):
    """How the local policy joins the global one."""

    AND = "and"
    OR = "or"


class Checkpoints(Section):
    """Checkpointing; shared by the peers of a channel."""

    interval_blocks: int = Field(100, ge=1, description="Blocks between checkpoints (CHK).")
    lcvp: str | None = Field(None, description="Local checkpoint validity policy; none by default.")
    combine: Combine = Field(Combine.AND, description="`and`, or `or` for this peer's pruning alone.")


class PruningMode(StrEnum):
    """Who starts pruning."""

    OFF = "off"
    MANUAL = "manual"
    AUTO = "auto"


class Pruning(Section):
    """Pruning of invalid transactions."""

    mode: PruningMode = Field(PruningMode.MANUAL, description="`off`, `manual`, or `auto` after each valid checkpoint.")
    keep_blocks_min: int = Field(0, ge=0, description="Least number of blocks that stay whole.")
    archive_dir: Path | None = Field(None, description="Where what is pruned is copied to first; none by default.")


class ContractPool(Section):
    """The processes that run contracts."""

    workers: int = Field(1, ge=1, le=64, description="Processes.")
    execute_timeout_ms: int = Field(30_000, ge=1, description="Longest run of one contract call.")
    memory_bytes_max: int = Field(1 << 30, ge=1 << 26, description="Address space of one process.")
    search_path: tuple[Path, ...] = Field((), description="Folders with contract modules, before installed ones.")


class OrdererSettings(Section):
    """Settings of an orderer."""

    name: str = Field(description="Name of this node.")
    msp_id: str = Field(description="MSP ID of its organisation.")
    msp_dir: Path = Field(description="Its local MSP folder.")
    tls: Tls
    grpc_listen: str = Field(description="host:port of its gRPC services.")
    data_dir: Path = Field(description="Where its logs of blocks lie.")
    channels: tuple[OrdererChannel, ...]
    disk_reserve_bytes: int = Field(256 << 20, ge=0, description="With less free, the node takes on no work.")
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="Least level that is logged.")


class PeerSettings(Section):
    """Settings of a peer."""

    name: str = Field(description="Name of this node.")
    msp_id: str = Field(description="MSP ID of its organisation.")
    msp_dir: Path = Field(description="Its local MSP folder.")
    tls: Tls
    grpc_listen: str = Field(description="host:port of its gRPC services.")
    checkpoint_listen: str = Field(description="host:port of its checkpointing service, for other peers only.")
    rest_listen: str = Field(description="host:port of its REST interface.")
    data_dir: Path = Field(description="Where its ledgers lie.")
    backup_dir: Path | None = Field(None, description="Below which it may make backups while it runs; none by default.")
    channels: tuple[PeerChannel, ...]
    peers: tuple[OtherPeer, ...] = Field((), description="The other peers: for endorsements and checkpoints.")
    contracts: dict[str, str] = Field(default_factory=dict, description="Contracts of the pool: NAME: module:Class.")
    checkpoint: Checkpoints = Checkpoints.model_validate({})
    pruning: Pruning = Pruning.model_validate({})
    contract_pool: ContractPool = ContractPool.model_validate({})
    disk_reserve_bytes: int = Field(256 << 20, ge=0, description="With less free, the node takes on no work.")
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="Least level that is logged.")


Variables = Mapping[tuple[str, ...], str]
"""Environment variables by the path of what they set."""

Settings = TypeVar("Settings", OrdererSettings, PeerSettings)


def load_peer_settings(path: Path) -> PeerSettings:
    """Load a peer's settings from its file and the environment; raises `InvalidSetting`, `NotFound`."""
    return load(PeerSettings, PEER_PREFIX, path, dict(os.environ))


def load_orderer_settings(path: Path) -> OrdererSettings:
    """Load an orderer's settings from its file and the environment; raises `InvalidSetting`, `NotFound`."""
    return load(OrdererSettings, ORDERER_PREFIX, path, dict(os.environ))


def load(kind: type[Settings], prefix: str, path: Path, environment: dict[str, str]) -> Settings:
    """Load settings.

    Args:
        kind: Which settings.
        prefix: What their environment variables begin with.
        path: The YAML file.
        environment: The environment.

    Raises:
        NotFound: The file is not there.
        InvalidSetting: A setting is unknown, missing or out of range; it is named.
        StorageFailed: The file can't be read.
    """
    content = load_mapping(path)
    variables = override(content, prefix, environment)
    try:
        settings = kind.model_validate(content)
    except ValidationError as error:
        raise explain(kind, error, str(path), variables) from error
    resolved: Settings = resolve(settings, path.resolve().parent)
    return resolved


def load_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping.

    Raises:
        NotFound: It is not there.
        InvalidSetting: It holds something else.
        StorageFailed: It can't be read.
    """
    try:
        content = read_yaml(read(path).decode(), str(path))
    except UnicodeDecodeError as error:
        raise InvalidSetting(str(path), rule="YAML", expected="text in UTF-8", found=error) from error
    if not isinstance(content, dict):
        raise InvalidSetting(str(path), rule="YAML", expected="a mapping of settings", found=type(content).__name__)
    return content


def override(content: dict[str, Any], prefix: str, environment: dict[str, str]) -> Variables:
    """Put the settings of the environment over those of the file.

    Returns:
        Which variable set what.

    Raises:
        InvalidSetting: A variable of ours names no setting.
    """
    variables: dict[tuple[str, ...], str] = {}
    for variable, value in sorted(environment.items()):
        if variable in OTHER_VARIABLES or not variable.startswith("PEERLEDGER_"):
            continue
        if not variable.startswith(prefix):
            if not variable.startswith((PEER_PREFIX, ORDERER_PREFIX)):
                raise InvalidSetting(
                    f"environment variable {variable}", rule="unknown setting",
                    expected=f"{PEER_PREFIX}… or {ORDERER_PREFIX}…", found=variable,
                )  # fmt: skip
            continue  # Another node's.
        *groups, name = path = variable.removeprefix(prefix).lower().split("__")
        place: Any = content
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                break
        if not isinstance(place, dict) or not all(path):
            raise InvalidSetting(
                f"environment variable {variable}", rule="unknown setting", expected="the path of a setting",
                found=".".join(path),
            )  # fmt: skip
        place[name] = read_yaml(value, f"environment variable {variable}")
        variables[tuple(path)] = variable
    return variables


def explain(
    kind: type[BaseModel], error: ValidationError, source: str, variables: Variables | None = None
) -> InvalidSetting:
    """Make one clear error of what is wrong: a misspelt setting before the one that is missing because of it."""
    found_errors = error.errors()
    first = next((one for one in found_errors if one["type"] == "extra_forbidden"), found_errors[0])
    place = ".".join(str(part) for part in first["loc"])
    for path, variable in (variables or {}).items():
        if all(part == set_part for part, set_part in zip(first["loc"], path, strict=False)):
            source = f"environment variable {variable}"
    if first["type"] == "extra_forbidden":
        known = known_names(kind, tuple(part for part in first["loc"][:-1] if isinstance(part, str)))
        close = difflib.get_close_matches(str(first["loc"][-1]), known, 1)
        expected = f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"
        return InvalidSetting(f"{source}: {place}", rule="unknown setting", expected=expected, found=first["loc"][-1])
    rule = "missing setting" if first["type"] == "missing" else "setting out of range"
    found = None if first["type"] == "missing" else first["input"]
    return InvalidSetting(f"{source}: {place}", rule=rule, expected=first["msg"], found=found)


def known_names(kind: type[BaseModel], path: tuple[str, ...]) -> list[str]:
    """List the settings of a group."""
    for name in path:
        field = kind.model_fields.get(name)
        if field is None:
            return []
        candidates = [field.annotation, *get_args(field.annotation)]
        inner = next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)
        if inner is None:
            return []
        kind = inner
    return sorted(kind.model_fields)


def resolve(value: Any, base: Path) -> Any:
    """Make every path of some settings absolute, relative ones from `base`."""
    if isinstance(value, Path):
        return value if value.is_absolute() else base / value
    if isinstance(value, BaseModel):
        changes = {name: resolve(getattr(value, name), base) for name in type(value).model_fields}
        return value.model_copy(update=changes)
    if isinstance(value, tuple):
        return tuple(resolve(one, base) for one in value)
    return value
