"""The auditor's file, loaded as its user runs it: from its place, not from the package."""

import importlib.util
from functools import cache
from types import ModuleType

from tests.kit.paths import ROOT

FILE = ROOT / "auditor" / "verify_proof.py"


@cache
def auditor() -> ModuleType:
    """Load it."""
    spec = importlib.util.spec_from_file_location("verify_proof", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
