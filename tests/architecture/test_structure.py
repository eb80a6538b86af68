"""Does the code keep to its rooms?  Checks on the syntax trees that linters do not make."""

import ast
from pathlib import Path

import pytest

from tests.kit.paths import ROOT

PACKAGE = ROOT / "ledger"
GENERATED = PACKAGE / "wire" / "ledger_v1"
MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if GENERATED not in path.parents]


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_what_it_answers(path: Path) -> None:
    docstring = ast.get_docstring(tree_of(path))
    assert docstring, f"{name_of(path)} has no docstring"


@pytest.mark.parametrize("path", [p for p in MODULES if "core" in p.parts], ids=name_of)
def test_the_rules_ask_no_clock_and_no_environment(path: Path) -> None:
    calls = {ast.unparse(node.func) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)}
    asked = calls & {
        "datetime.now",
        "datetime.datetime.now",
        "datetime.utcnow",
        "time.time",
        "os.environ.get",
        "os.getenv",
        "open",
    }
    assert not asked, f"{name_of(path)} asks {asked}"


def passes_on(handler: ast.ExceptHandler) -> bool:
    """Tell whether a handler only cleans up: what it caught goes on as it was."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_doors_and_the_house_catch_every_exception(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    if room in {"interfaces", "node", "cli"} or path.name == "worker.py":
        return  # The doors translate whatever happens behind them; a contract worker runs foreign code.
    broad = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
        and not passes_on(node)
    ]
    assert not broad, f"{name_of(path)} catches everything at lines {broad}"


def test_the_environment_is_read_in_the_house_only() -> None:
    readers = [
        name_of(path)
        for path in MODULES
        if any(
            isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv"}
            for node in ast.walk(tree_of(path))
        )
    ]
    allowed = {"ledger/node/", "ledger/cli/", "ledger/chaincode/pool.py", "ledger/chaincode/worker.py"}
    strangers = [reader for reader in readers if not any(reader.startswith(room) for room in allowed)]
    assert not strangers, f"these read the environment: {strangers}"
