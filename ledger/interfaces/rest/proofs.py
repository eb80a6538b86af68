"""Paths of proofs: each answer is a file that anybody can check with the channel's genesis block alone.

`peerledger proof verify` and `auditor/verify_proof.py` check them. Nothing in a proof is secret that its reader may not
read from this peer anyway.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from ledger.core.errors import Busy, ChannelStopped, NotFound, Pruned, Refused
from ledger.core.names import BlockNumber, TxId
from ledger.core.proofs import Proof
from ledger.core.state import HASHED, PUBLIC, StateKey
from ledger.interfaces.rest import proof_models as models
from ledger.interfaces.rest.asking import Asked, AskedChannel, BlockPath, base64url, problems
from ledger.wire.proofs import encode_proof

router = APIRouter(tags=["proofs"])

PROOF_TIMEOUT_MS = 30_000
"""Time for a proof: a long trail of config blocks is read from the disk."""

Id = Annotated[str, Path(description="Transaction id as claimed in the envelope's header.", examples=["7bfd5e34…"])]
Namespace = Annotated[str, Path(description="Chaincode whose state it is.", examples=["assets"])]
Collection = Annotated[str, Query(description="Collection of private data, whose hashes are proved; absent: public.")]
Checkpoint = Annotated[int | None, Query(description="Checkpoint that it rests on.", ge=0, lt=2**64, examples=[200])]
CheckpointQuery = Annotated[int, Query(description="Block of a valid checkpoint.", ge=0, lt=2**64, examples=[100])]


async def answered(asked: Asked, make: Callable[[], Proof]) -> Response:
    """Make a proof and write its file, both on a thread."""
    body = await asked.read(lambda: encode_proof(make()), timeout_ms=PROOF_TIMEOUT_MS)
    return Response(body, media_type="application/json")


@router.get(
    "/v1/channels/{channel}/proofs/transactions/{tx_id:path}",
    summary="Prove what became of a transaction",
    response_model=models.InclusionProof | models.RejectionProof,
    responses=problems(NotFound, Pruned, ChannelStopped, Busy),
)
async def prove_transaction(
    asked: AskedChannel,
    tx_id: Id,
    place: Annotated[int, Query(description="Which of the id's places, counted from 0.", ge=0, lt=2**31)] = 0,
    checkpoint: Checkpoint = None,
) -> Response:
    """Inclusion of a valid transaction, rejection of an invalid one, also after its body was pruned.

    It rests on the first valid checkpoint at or above the transaction's block, unless another is asked for. Before
    there is one the answer is "not found" and says from which height on it can be proved.
    """
    return await answered(asked, lambda: asked.channel.proofs.transaction(TxId(tx_id), place, _number(checkpoint)))


@router.get(
    "/v1/channels/{channel}/proofs/state/{namespace}",
    summary="Prove an entry, its key as base64url",
    response_model=models.PresenceProof | models.AbsenceProof,
    responses=problems(NotFound, ChannelStopped, Busy),
)
async def prove_state_by_query(
    asked: AskedChannel,
    namespace: Namespace,
    key: Annotated[str, Query(description="The key as base64url.", examples=["YXNzZXQx"])],
    collection: Collection = "",
    checkpoint: Checkpoint = None,
) -> Response:
    """Presence or absence of a key that a path can't carry."""
    raw = base64url(key, "parameter key")
    return await answered(
        asked, lambda: asked.channel.proofs.entry(_key(namespace, collection, raw), _number(checkpoint))
    )


@router.get(
    "/v1/channels/{channel}/proofs/state/{namespace}/{key:path}",
    summary="Prove an entry",
    response_model=models.PresenceProof | models.AbsenceProof,
    responses=problems(NotFound, ChannelStopped, Busy),
)
async def prove_state(
    asked: AskedChannel,
    namespace: Namespace,
    key: Annotated[str, Path(description="The key as text.", examples=["asset1"])],
    collection: Collection = "",
    checkpoint: Checkpoint = None,
) -> Response:
    """Presence of a key's entry at a checkpoint, or its absence; by default at the latest valid one."""
    raw = key.encode()
    return await answered(
        asked, lambda: asked.channel.proofs.entry(_key(namespace, collection, raw), _number(checkpoint))
    )


@router.get(
    "/v1/channels/{channel}/proofs/consistency",
    summary="Prove that one ledger is the beginning of another",
    response_model=models.ConsistencyProof,
    responses=problems(NotFound, Refused, ChannelStopped, Busy),
)
async def prove_consistency(
    asked: AskedChannel,
    older: Annotated[CheckpointQuery, Query(alias="from")],
    newer: Annotated[CheckpointQuery, Query(alias="to")],
) -> Response:
    """The ledger at checkpoint `from` is the beginning of that at checkpoint `to`."""
    return await answered(asked, lambda: asked.channel.proofs.consistency(BlockNumber(older), BlockNumber(newer)))


@router.get(
    "/v1/channels/{channel}/proofs/checkpoints/{number}",
    summary="Prove that a checkpoint is valid",
    response_model=models.CheckpointProofFile,
    responses=problems(NotFound, ChannelStopped, Busy),
)
async def prove_checkpoint(asked: AskedChannel, number: BlockPath) -> Response:
    """The signatures on it, with the trail of config blocks that says who was entitled to sign."""
    return await answered(asked, lambda: asked.channel.proofs.checkpoint(BlockNumber(number)))


def _number(checkpoint: int | None) -> BlockNumber | None:
    return None if checkpoint is None else BlockNumber(checkpoint)


def _key(namespace: str, collection: str, raw: bytes) -> StateKey:
    """Name an entry; of private data only the hash of the key is known."""
    if collection:
        return StateKey(HASHED, namespace, collection, sha256(raw).digest())
    return StateKey(PUBLIC, namespace, "", raw)
