"""Which metrics does a node show, and under which names?

One object holds them all, so that a process with several nodes (tests) keeps them apart: each has its own registry.
Names begin with `peerledger_`, units stand at their end, and everything about a channel carries the label `channel`.
Values are set where they arise: by the committer after each block, by checkpointing, pruning and storage; the doors
only show them.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PREFIX = "peerledger"
"""First word of every name."""


class Metrics:
    """All metrics of one node."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register every metric in `registry`, or in a new one."""
        self.registry = registry if registry is not None else CollectorRegistry()
        r = self.registry
        c = ("channel",)

        def gauge(name: str, text: str, labels: tuple[str, ...] = c) -> Gauge:
            return Gauge(f"{PREFIX}_{name}", text, labels, registry=r)

        def counter(name: str, text: str, labels: tuple[str, ...] = c) -> Counter:
            return Counter(f"{PREFIX}_{name}", text, labels, registry=r)

        def histogram(name: str, text: str, buckets: tuple[float, ...], labels: tuple[str, ...] = c) -> Histogram:
            return Histogram(f"{PREFIX}_{name}", text, labels, registry=r, buckets=buckets)

        commit_seconds = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

        # The ledger.
        self.height = gauge("height_blocks", "Blocks committed.")
        self.first_block = gauge("first_block_number", "First block held whole: the prune point + 1.")
        self.transactions = counter(
            "transactions", "Transactions committed, by the name of their verdict.", ("channel", "verdict")
        )
        self.stopped = gauge("channel_stopped", "1 while the channel commits no more, for whatever reason.")
        self.diverged = gauge("channel_diverged", "1 if a valid checkpoint differs from what this peer computed.")
        self.divergence_vblock = gauge("divergence_vblock", "First vBlock that differs from the others'; -1 for none.")
        self.divergence_keys = gauge("divergence_keys", "Keys of the state that were found to differ, 100 at most.")
        self.store_bytes = gauge("store_bytes", "Bytes on disk, by store.", ("channel", "store"))
        self.free_disk_bytes = gauge("free_disk_bytes", "Bytes free where the ledgers lie.", ())

        # The commit path.
        self.commit_seconds = histogram(
            "commit_seconds", "From the block's turn in the commit thread until it is durable.", commit_seconds
        )
        self.validate_seconds = histogram(
            "validate_seconds", "Judging one block: policies and versions, signatures not included.", commit_seconds
        )
        self.verify_seconds = histogram(
            "verify_seconds", "Decoding one block and checking its signatures, on the pool.", commit_seconds
        )
        self.commit_pause_seconds = histogram(
            "commit_pause_seconds", "Pauses that checkpoint or pruning work put on commits.", commit_seconds
        )
        self.commit_retries = counter("commit_retries", "Commits tried again after a local fault.")
        self.blocks_refused = counter("blocks_refused", "Blocks refused whole, by rule.", ("channel", "rule"))

        # Checkpoints and pruning.
        self.checkpoint_interval = gauge("checkpoint_interval_blocks", "CHK of this peer.")
        self.checkpoint_latest = gauge("checkpoint_latest_valid_number", "Height of the latest valid checkpoint.")
        self.checkpoint_age = gauge("checkpoint_age_blocks", "Blocks committed since the latest valid checkpoint.")
        self.checkpoint_signatures = gauge(
            "checkpoint_signatures", "Signatures on the newest pending checkpoint.", ("channel", "state")
        )
        self.checkpoint_messages = counter(
            "checkpoint_messages", "CHECKPOINT messages received, by what became of them.", ("channel", "result")
        )
        self.pruned_bytes = counter("pruned_bytes", "Bytes that pruning freed.")
        self.pruned_transactions = counter("pruned_transactions", "Bodies of invalid transactions that were pruned.")

        # The doors and those who come through them.
        self.proposals = counter("proposals", "Proposals by result.", ("channel", "result"))
        self.proposal_seconds = histogram("proposal_seconds", "Simulating one proposal.", commit_seconds)
        self.submitted = counter("submitted", "Transactions handed to the orderers, by result.", ("channel", "result"))
        self.broadcasts = counter("broadcasts", "Envelopes offered to this orderer, by result.", ("channel", "result"))
        self.orderer_connected = gauge("orderer_connected", "1 while blocks can arrive from an orderer.")
        self.rest_requests = counter(
            "rest_requests", "Requests to the REST interface, by path template and status.", ("path", "status")
        )
        self.certificate_expiry = gauge(
            "certificate_expiry_timestamp_seconds", "When a loaded certificate expires.", ("use", "subject")
        )


__all__ = ["PREFIX", "Metrics"]
