"""What do proofs look like over REST?  The members of a proof's file, documented; docs/proofs.md says what they mean.

The file itself is written by `wire.proofs`; these models are its description in the OpenAPI document.
"""

from typing import Annotated, Literal

from pydantic import Field

from ledger.interfaces.rest.models import Answer, BlockNo, HashText

HexText = Annotated[str, Field(pattern="^([0-9a-f]{2})*$", examples=["0a20"])]
"""Bytes as lower-case hex."""

Path = Annotated[list[HashText], Field(description="Hashes beside the way through a tree.")]


class ProofSignature(Answer):
    """One peer's signature on the statement."""

    identity: HexText = Field(description="SerializedIdentity, as it was signed.")
    signature: HexText


class ProofBlock(Answer):
    """Header and orderers' signatures of the block at a checkpoint."""

    previous_hash: HexText
    data_hash: HexText
    orderer_metadata: HexText = Field(description="Metadata slot 0.")


class ProofVBlock(Answer):
    """What a vBlock's hash is over, besides channel and number."""

    previous_hash: HashText
    block_hash: HashText
    transactions: int
    valid: int
    tx_root: HashText
    commit_hash: HexText


class ProofCheckpoint(Answer):
    """A valid checkpoint."""

    number: BlockNo
    vblock_hash: HashText
    vledger_root: HashText
    state_hash: HashText
    state_root: HashText
    signatures: list[ProofSignature] = Field(description="In the order in which the policy is evaluated.")
    block: ProofBlock
    vblock: ProofVBlock
    genesis_path: Path


class ProofTransaction(Answer):
    """A transaction's place and verdict, and the way from there to the vLedger root."""

    block: BlockNo
    index: int
    verdict: int
    tx_id: str = Field(description="The claimed id: it proves nothing about who sent it.")
    path: Path
    vblock: ProofVBlock
    log_path: Path


class ValidTransaction(ProofTransaction):
    """A valid transaction, whole."""

    envelope: HexText


class RejectedTransaction(ProofTransaction):
    """An invalid transaction: its envelope's digest."""

    envelope_digest: HashText


class ProofKey(Answer):
    """A key, and the way from the state root to where it ends."""

    namespace: str
    collection: str = Field(description="Empty for public state; else the key is a SHA-256, and so is the value.")
    key: HexText
    siblings: Path


class PresentEntry(ProofKey):
    """A key's entry."""

    value: HexText
    block: BlockNo
    index: int
    metadata: HexText
    expiry: int | None = Field(description="Block in which it expires; null for never.")


class OtherLeaf(Answer):
    """The leaf of another key."""

    path: HashText
    value_hash: HashText


class AbsentEntry(ProofKey):
    """A key without entry."""

    other: OtherLeaf | None = Field(description="What stands where the way ends; null if nothing does.")


class ProofFile(Answer):
    """What all proofs share."""

    format: Literal["peerledger/proof"]
    version: Literal[1]
    channel: str = Field(examples=["mychannel"])
    checkpoint: ProofCheckpoint
    config_blocks: list[HexText] = Field(description="Each config block above the genesis block, a `common.Block`.")


class InclusionProof(ProofFile):
    """A valid transaction stands in the ledger."""

    kind: Literal["inclusion"]
    transaction: ValidTransaction


class RejectionProof(ProofFile):
    """An envelope was ordered and judged invalid."""

    kind: Literal["rejection"]
    transaction: RejectedTransaction


class PresenceProof(ProofFile):
    """A key has an entry at a checkpoint."""

    kind: Literal["presence"]
    entry: PresentEntry


class AbsenceProof(ProofFile):
    """A key has none."""

    kind: Literal["absence"]
    entry: AbsentEntry


class ConsistencyProof(ProofFile):
    """The ledger at one checkpoint is the beginning of that at another."""

    kind: Literal["consistency"]
    older: ProofCheckpoint
    consistency_path: Path


class CheckpointProofFile(ProofFile):
    """A checkpoint is valid."""

    kind: Literal["checkpoint"]
