"""A local network of real processes for tests: made by the command, run by the supervisor, killed by pid."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from ledger.client.tls import ClientTls
from ledger.node.supervise import node_folders
from ledger.storage.msp_folder import SigningIdentity, load_signing_identity

READY_TIMEOUT_S = 60.0


def peerledger(*arguments: str, check: bool = True, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would, in its own process."""
    done = subprocess.run(
        [sys.executable, "-m", "ledger.cli.main", *arguments], capture_output=True, text=True, timeout=timeout_s
    )
    if check and done.returncode != 0:
        raise AssertionError(
            f"peerledger {' '.join(arguments)}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done


def peerledger_json(*arguments: str, check: bool = True) -> Any:
    """Run the command with --json and give what it printed."""
    return json.loads(peerledger(*arguments, "--json", check=check).stdout)


class LocalNetwork:
    """A network directory and, while it runs, its supervisor."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def nodes(self) -> Sequence[str]:
        return [node.name for node in node_folders(self.directory)]

    @property
    def peers(self) -> Sequence[str]:
        return [node.name for node in node_folders(self.directory) if node.kind == "peer"]

    def settings(self, node: str) -> dict[str, Any]:
        """Read a node's configuration file."""
        (path,) = (self.directory / "nodes" / node).glob("*.yaml")
        content: dict[str, Any] = yaml.safe_load(path.read_text())
        return content

    def ask_any(self, peer: str, path: str) -> dict[str, Any]:
        """Ask a peer for a document, also one with a status that says no; an empty one if it does not answer."""
        try:
            return self._read(f"http://{self.settings(peer)['rest_listen']}{path}")
        except urllib.error.HTTPError as error:
            return dict(json.load(error))
        except (OSError, ValueError):
            return {}

    def ask(self, peer: str, path: str) -> dict[str, Any]:
        """Ask a peer for a document; an empty one if it does not answer or says no."""
        try:
            return self._read(f"http://{self.settings(peer)['rest_listen']}{path}")
        except (OSError, ValueError):
            return {}

    def _read(self, url: str) -> dict[str, Any]:
        with urllib.request.urlopen(url, timeout=5) as response:
            found: dict[str, Any] = json.load(response)
            return found

    def channel_info(self, peer: str) -> dict[str, Any]:
        return self.ask(peer, "/v1/channels/demo")

    def signer(self, organisation: int, user: str = "User1") -> SigningIdentity:
        """Load a user of the n-th organisation."""
        domain = f"org{organisation}.example.com"
        folder = self.directory / "organizations/peerOrganizations" / domain / "users" / f"{user}@{domain}" / "msp"
        return load_signing_identity(folder, f"Org{organisation}MSP")

    def peer_tls(self, organisation: int) -> ClientTls:
        """Trust the TLS certificates of the n-th organisation."""
        folder = self.directory / "organizations/peerOrganizations" / f"org{organisation}.example.com"
        return ClientTls((folder / "msp/tlscacerts/tlsca.pem").read_bytes())

    def verify(self, peer: str) -> Any:
        """Verify a stopped peer's data directory by the command."""
        genesis = str(self.directory / "channels/demo.block")
        return peerledger_json("verify", str(self.directory / "nodes" / peer / "data"), "--genesis", genesis)

    def start(self) -> None:
        log = self.directory / "up.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ledger.cli.main", "up", str(self.directory), "--json"],
                stdout=output,
                stderr=output,
            )

    def pid(self, node: str) -> int | None:
        try:
            return int((self.directory / "run" / f"{node}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def kill(self, node: str) -> bool:
        """Kill -9 a node; the supervisor starts it again. False if it was not running."""
        pid = self.pid(node)
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def logs(self) -> str:
        parts = [(self.directory / "up.log").read_text(errors="replace")]
        for path in sorted((self.directory / "logs").glob("*.log")):
            parts.append(f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-30:]))
        return "\n".join(parts)


def wait_until(condition: Any, *, timeout_s: float = READY_TIMEOUT_S, what: str) -> Any:
    """Poll until `condition()` gives something true, or fail saying what was waited for."""
    end = time.monotonic() + timeout_s
    last: object = None
    while time.monotonic() < end:
        try:
            last = condition()
        except AssertionError as error:
            last = error
        if last and not isinstance(last, AssertionError):
            return last
        time.sleep(0.2)
    raise AssertionError(f"waited {timeout_s} s for {what}; last: {last}")


@contextlib.contextmanager
def running(directory: Path, *create_options: str) -> Iterator[LocalNetwork]:
    """Create and run a network, and end it with the block."""
    peerledger("network", "create", str(directory), *create_options)
    network = LocalNetwork(directory)
    network.start()
    try:
        yield network
    except BaseException:
        print(network.logs())
        raise
    finally:
        network.stop()
