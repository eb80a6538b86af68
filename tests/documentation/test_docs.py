"""Do the docs say what there is?  Settings, commands and REST paths, compared with the code."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from ledger.cli.main import COMMANDS, GROUPS
from ledger.interfaces.rest.app import create_app
from ledger.node.config import OrdererSettings, PeerSettings
from ledger.node.network import NetworkSpec
from tests.kit.paths import ROOT

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)#:]+)\)")


def paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every setting by its path, lists marked by []."""
    for name, field in model.model_fields.items():
        candidates = (field.annotation, *get_args(field.annotation))
        inner = next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)
        many = "[]" if inner is not None and inner is not field.annotation else ""
        yield f"{prefix}{name}{many}"
        if inner is not None:
            yield from paths(inner, f"{prefix}{name}{many}.")


@pytest.mark.parametrize("model", [PeerSettings, OrdererSettings, NetworkSpec])
def test_every_setting_is_in_the_docs_and_no_other(model: type[BaseModel]) -> None:
    """Goal: configuration.md is complete and true.  Method: its tables against the models."""
    sections = (DOCS / "configuration.md").read_text().split("\n## ")
    heading = {PeerSettings: "A peer", OrdererSettings: "An orderer", NetworkSpec: "A local network"}[model]
    (section,) = [one for one in sections if one.startswith(heading)]
    assert re.findall(r"^\| `([^`]+)`", section, re.MULTILINE) == list(paths(model))


def test_commands_named_in_the_docs_are_there() -> None:
    known = {name for name, _, _ in COMMANDS}
    known |= {f"{group} {name}" for group, _, commands in GROUPS for name, _, _ in commands}
    for page in [*DOCS.glob("*.md"), ROOT / "README.md"]:
        for words in re.findall(r"`(?:\.venv/bin/)?peerledger ([a-z]+(?: [a-z]+)?)", page.read_text()):
            assert words in known or words.split()[0] in known, f"{page.name}: peerledger {words}"


def test_rest_paths_are_in_the_docs() -> None:
    """Goal: rest.md lists every path.  Method: the OpenAPI document against the page, the channel's part left out."""
    text = (DOCS / "rest.md").read_text()
    app = create_app(node=object())  # type: ignore[arg-type]  # Nothing is asked of it here.
    for path in app.openapi()["paths"]:
        short = path.removeprefix("/v1/channels/{channel}")
        query_form = short.count("/{") == 1 and short.startswith(("/state", "/history"))  # The key goes as ?key=.
        assert query_form or short in text or short.replace("/checkpoints", "…/checkpoints") in text, path


@pytest.mark.parametrize("page", sorted([*DOCS.glob("*.md"), ROOT / "README.md"]), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
