"""Which peer does a command talk to?  One of a local network's, or one at an address.

`--network DIR` (or PEERLEDGER_NETWORK) names a network directory, `--peer NAME` (or PEERLEDGER_PEER) one of its peers,
the first without it; `--rest URL` names any peer by its address instead.
"""

import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from cyclopts import Parameter

from ledger.core.errors import Forbidden, InvalidSetting, LedgerError, NotFound, PeerUnreachable, Pruned, Refused
from ledger.node.supervise import node_folders

TIMEOUT_S = 30.0
"""How long a request may take."""


@Parameter(name="*")
@dataclass(frozen=True)
class Target:
    """The peer that a command asks."""

    network: Annotated[Path | None, Parameter(env_var="PEERLEDGER_NETWORK")] = None
    """Network directory."""

    peer: Annotated[str | None, Parameter(env_var="PEERLEDGER_PEER")] = None
    """Name of a peer of the network; the first by default."""

    rest: str | None = None
    """URL of a peer's REST interface, instead of a network."""

    channel: str | None = None
    """Name of the channel; the peer's only one by default."""

    def rest_url(self) -> str:
        """Give the URL of the peer's REST interface."""
        if self.rest is not None:
            return self.rest.rstrip("/")
        return f"http://{self.settings()['rest_listen']}"

    def settings(self) -> dict[str, Any]:
        """Read the settings of the chosen peer of the network.

        Raises:
            InvalidSetting: No peer was named.
            NotFound: There is no such network or peer.
        """
        if self.network is None:
            raise InvalidSetting("peer", rule="which peer", expected="--network DIR or --rest URL", found="neither")
        peers = [node for node in node_folders(self.network) if node.kind == "peer"]
        chosen = [node for node in peers if self.peer in (None, node.name)]
        if not chosen:
            names = ", ".join(node.name for node in peers) or "none"
            raise NotFound(f"no peer {self.peer or ''} in {self.network}; its peers: {names}")
        content: dict[str, Any] = yaml.safe_load(chosen[0].config.read_text())
        return content

    def channel_id(self) -> str:
        """Give the channel's name, asking the peer for it where it was not named."""
        if self.channel is not None:
            return self.channel
        channels = self.get("/v1/channels")["channels"]
        if len(channels) != 1:
            names = ", ".join(one["channel"] for one in channels)
            raise InvalidSetting("channel", rule="which channel", expected=f"--channel, one of {names}", found="none")
        return str(channels[0]["channel"])

    def get(self, path: str) -> Any:
        """Ask the peer for a JSON document."""
        return request(self.rest_url() + path)

    def channel_get(self, path: str) -> Any:
        """Ask for a document of the channel."""
        return self.get(f"/v1/channels/{urllib.parse.quote(self.channel_id())}{path}")


def request(url: str, *, method: str = "GET", token: str | None = None, body: object = None) -> Any:
    """Make a request and give the JSON document that comes back.

    Raises:
        NotFound, Forbidden, Refused: The peer answered with a problem document; its text is the error's.
        PeerUnreachable: There is no answer.
    """
    headers = {"Accept": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    data = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body).encode()
    asked = urllib.request.Request(url, data=data, headers=headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise problem(error) from error
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        raise PeerUnreachable(f"{url}: {error}") from error


def problem(error: urllib.error.HTTPError) -> LedgerError:
    """Make an error of a problem document."""
    try:
        document = json.load(error)
    except ValueError:
        document = {}
    text = document.get("detail") or document.get("title") or f"status {error.code}"
    if error.code == 404:
        return NotFound(text)
    if error.code == 410 and "first_block" in document:
        return Pruned(
            block=document["block"], first_block=document["first_block"], index=document.get("index"),
            verdict=document.get("verdict_code"),
        )  # fmt: skip
    if error.code in (401, 403):
        return Forbidden(text, rule=document.get("title", "access"))
    if error.code >= 500:
        return PeerUnreachable(text)
    return Refused(text, rule=document.get("rule") or document.get("title") or f"status {error.code}")
