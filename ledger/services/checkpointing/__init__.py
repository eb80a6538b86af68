"""How do the peers of a channel come to agree on checkpoints?  The driver of the machine in `core.checkpoint_tally`.

`service` computes, signs, and carries out what the machine wants, in an order that survives a crash; `conversations`
talks to other peers; `values` and `ports` are what both are told and what they need of others. Where a peer came to
something else than the others, `finding` asks them where that begins, and `answering` is what they say.
"""

from ledger.services.checkpointing.answering import CompareSource
from ledger.services.checkpointing.finding import DivergenceFinder
from ledger.services.checkpointing.ports import (
    CheckpointSource,
    Line,
    Link,
    NewestOrdered,
    OnDiverged,
    OnValid,
    PeerSigner,
)
from ledger.services.checkpointing.service import CheckpointingService
from ledger.services.checkpointing.values import CheckpointingSettings, CheckpointingStatus

__all__ = [
    "CheckpointSource",
    "CheckpointingService",
    "CheckpointingSettings",
    "CheckpointingStatus",
    "CompareSource",
    "DivergenceFinder",
    "Line",
    "Link",
    "NewestOrdered",
    "OnDiverged",
    "OnValid",
    "PeerSigner",
]
