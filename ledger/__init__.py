"""PeerLedger: a permissioned ledger node with a validated ledger, agreed checkpoints and safe pruning."""

__version__ = "0.1.0"
