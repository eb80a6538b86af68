"""Does the demo show what it says, and leave the network running when asked to?"""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.cluster.harness import LocalNetwork, peerledger, wait_until


@pytest.mark.cluster
def test_the_demo_judges_agrees_prunes_and_verifies_and_keeps_running_if_asked(tmp_path: Path) -> None:
    """Goal: the first thing that a newcomer runs does what its text claims.  Method: its output and the peers."""
    network = LocalNetwork(tmp_path / "demo")
    shown = peerledger("demo", "--directory", str(network.directory), "--keep").stdout
    process = int((network.directory / "up.pid").read_text())
    try:
        counts = {name: int(count) for name, count in re.findall(r"^  ([A-Z_]+) +(\d+)$", shown, re.MULTILINE)}
        assert counts["VALID"] > 100
        assert counts["MVCC_READ_CONFLICT"] > 20
        assert counts["ENDORSEMENT_POLICY_FAILURE"] > 0
        assert sum(counts.values()) == 360
        freed = re.findall(r"([\d,]+) bytes before, ([\d,]+) after", shown)
        assert len(freed) == 2
        assert all(int(before.replace(",", "")) > int(after.replace(",", "")) for before, after in freed)
        assert "envelope pruned" in shown
        assert shown.count("All in order, as far as it can be checked") == 2
        assert "took" in shown
        assert all(network.ask(peer, "/readyz").get("ready") for peer in network.peers), "the network was to run on"
        assert network.channel_info(network.peers[0])["pruning"]["prune_point"] is not None
    finally:
        os.kill(process, signal.SIGTERM)
        wait_until(lambda: not any(network.pid(node) for node in network.nodes), what="the nodes to end")
