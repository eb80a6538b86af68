"""What do the answers of the REST interface look like?  Their documented models, from which OpenAPI is made.

Hashes and digests are lower-case hex; byte strings from outside are objects with `base64`, and `text` where they are
readable. A verdict is shown by name and by number. Whatever may be absent is null, never left out, except the parts of
a rendered envelope, which depend on its type.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

HashText = Annotated[str, Field(pattern="^([0-9a-f]{2})*$", examples=["6f1ed002ab5595859014ebf0951522d9" * 2])]
"""Hex of a hash."""

BlockNo = Annotated[int, Field(ge=0, examples=[7])]
"""Number of a block."""


class Answer(BaseModel):
    """What all answers share: fixed fields, nothing beside them."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Bytes(Answer):
    """A byte string."""

    base64: str = Field(description="The bytes, always.", examples=["eyJjb2xvciI6ICJibHVlIn0="])
    text: str | None = Field(
        None, description="The same as text, where it is readable.", examples=['{"color": "blue"}']
    )


class VersionAnswer(Answer):
    """Which transaction wrote an entry last."""

    block: BlockNo
    index: int = Field(ge=0, description="Index of the transaction in its block as ordered.", examples=[3])


class ChannelItem(Answer):
    """One channel of this peer."""

    channel: str = Field(examples=["mychannel"])
    state: Literal["opening", "following", "paused", "stopped", "diverged", "failed"]
    reason: str = Field(description="Why it stopped or failed; empty otherwise.")
    href: str = Field(description="Path of its information.", examples=["/v1/channels/mychannel"])


class ChannelList(Answer):
    """The channels of this peer, also those that did not open."""

    channels: list[ChannelItem]


class PruningInfo(Answer):
    """The pruning policy in effect."""

    mode: str = Field(description="`off`, `manual` or `auto`.", examples=["auto"])
    keep_blocks: int = Field(description="Least number of blocks that are kept whole.", examples=[100])
    prune_point: int | None = Field(
        description="Highest block whose PeerLedger block is gone; null: none.", examples=[199]
    )
    reason: str = Field(
        description="Why nothing is pruned at present; empty if nothing holds it back.",
        examples=["waiting for 1 more signature from Org2MSP"],
    )


class CheckpointInfo(Answer):
    """How checkpoints are made and how far they are."""

    interval_blocks: int = Field(description="CHK of this peer.", examples=[100])
    intervals_of_others: dict[str, int] = Field(description="CHK that other peers told; they should be equal.")
    latest_valid: int | None = Field(description="Height of the latest valid checkpoint.", examples=[200])
    global_policy: str = Field(description="What makes a checkpoint valid for everybody.")
    local_policy: str | None = Field(description="What this peer asks for besides.")


class ChannelInfo(Answer):
    """A channel as this peer holds it, all hashes as of its last block."""

    channel: str = Field(examples=["mychannel"])
    state: Literal["opening", "following", "paused", "stopped", "diverged", "failed"]
    reason: str = Field(description="Why it stopped; empty otherwise.")
    height: int = Field(description="Number of blocks committed.", examples=[208])
    first_block: BlockNo = Field(description="First block that is held whole: the prune point + 1.")
    joined_at: int | None = Field(
        description="Block of the checkpoint that this peer joined from; null: it has all blocks from the first on.",
        examples=[200],
    )
    block_hash: HashText = Field(description="Header hash of the last block.")
    vblock_hash: HashText = Field(description="Hash of its vBlock.")
    commit_hash: HashText = Field(description="Its commit hash; empty for block 0.")
    checkpoints: CheckpointInfo
    pruning: PruningInfo


class TransactionItem(BaseModel):
    """A transaction of a block: its verdict, and its envelope shown by its type."""

    model_config = ConfigDict(frozen=True, extra="allow")

    index: int = Field(ge=0, description="Index in the block as ordered.", examples=[3])
    verdict: str | None = Field(None, description="Name of the validation code.", examples=["MVCC_READ_CONFLICT"])
    verdict_code: int | None = Field(None, ge=0, le=255, examples=[11])
    rule: str | None = Field(None, description="The rule that made it invalid.", examples=["read version"])
    detail: str | None = Field(None, description="What that rule expected and found.")
    envelope_digest: HashText = Field(description="SHA-256 of the envelope.")
    size_bytes: int = Field(ge=0, examples=[3481])
    type: str | None = Field(None, description="Type in the channel header.", examples=["ENDORSER_TRANSACTION"])
    tx_id: str | None = Field(None, description="The id that the header claims.")
    creator: dict[str, Any] | None = Field(None, description="Who made it: MSP ID, name and subject.")
    actions: list[dict[str, Any]] | None = Field(
        None, description="Of an endorser transaction: arguments, endorsers, response, event, read-write set."
    )
    config: dict[str, Any] | None = Field(None, description="Of a config transaction: the channel's configuration.")
    undecodable: str | None = Field(None, description="Which part of it does not decode.")


class BlockAnswer(Answer):
    """A block as the ordering service delivered it, with this peer's verdicts."""

    number: BlockNo
    block_hash: HashText
    previous_hash: HashText
    data_hash: HashText
    commit_hash: HashText | None = Field(description="This peer's commit hash; null for block 0.")
    orderer_signatures: list[dict[str, Any]] = Field(description="Who signed the block.")
    transactions: list[TransactionItem]


class LeafAnswer(Answer):
    """What the vBlock's tree says of one ordered transaction: of an invalid one this is its stub."""

    index: int = Field(ge=0, examples=[3])
    verdict: str = Field(examples=["MVCC_READ_CONFLICT"])
    verdict_code: int = Field(ge=0, le=255, examples=[11])
    envelope_digest: HashText
    tx_id: str = Field(description="Claimed id; empty if it could not be decoded.")
    rule: str | None = Field(description="The rule that made it invalid, if known.", examples=["read version"])
    detail: str | None = Field(description="What that rule expected and found.")


class VBlockHeaderAnswer(Answer):
    """What is hashed into the vBlock hash."""

    number: BlockNo
    previous_hash: HashText = Field(description="Hash of the vBlock before.")
    block_hash: HashText = Field(description="Header hash of the ordered block.")
    transaction_count: int = Field(ge=0, examples=[10])
    valid_count: int = Field(ge=0, examples=[8])
    tx_root: HashText = Field(description="RFC 6962 tree hash over the leaves.")
    commit_hash: HashText


class VBlockAnswer(Answer):
    """A vBlock: the valid transactions of a block, whole, and a stub of each invalid one."""

    header: VBlockHeaderAnswer
    vblock_hash: HashText
    leaves: list[LeafAnswer] = Field(description="One for each ordered transaction, in order.")
    envelopes: Literal["whole", "pruned"] = Field(
        description="Whether the valid transactions are here: not below the checkpoint that a peer joined from."
    )
    transactions: list[TransactionItem] = Field(
        description="The valid ones; empty if not asked for, or not here (`envelopes`)."
    )


class PlaceAnswer(Answer):
    """One place of a transaction id in the ledger."""

    block: BlockNo
    index: int = Field(ge=0, examples=[3])
    verdict: str = Field(examples=["VALID"])
    verdict_code: int = Field(ge=0, le=255, examples=[0])
    rule: str | None = Field(description="The rule that made it invalid, if known.")
    detail: str | None = Field(description="What that rule expected and found.")
    envelope: Literal["whole", "pruned"] = Field(description="Whether the envelope is still here.")


class TransactionAnswer(PlaceAnswer):
    """What became of a transaction: its first place, and all others."""

    tx_id: str
    valid: bool
    places: list[PlaceAnswer] = Field(description="All places of the id in order; more than one if it was used again.")


class EnvelopeAnswer(BaseModel):
    """An envelope, shown by its type."""

    model_config = ConfigDict(frozen=True, extra="allow")

    envelope_digest: HashText
    size_bytes: int = Field(ge=0)
    type: str | None = None
    tx_id: str | None = None
    undecodable: str | None = None


class StateAnswer(Answer):
    """A live entry of the state."""

    namespace: str = Field(examples=["assets"])
    key: str = Field(description="The key as text.", examples=["asset1"])
    key_base64url: str = Field(description="The same for `?key=`.", examples=["YXNzZXQx"])
    value: Bytes
    version: VersionAnswer
    metadata: Bytes | None = Field(description="Serialized KVMetadataWrite; null for none.")


class ChangeAnswer(Answer):
    """One change of a key by a valid transaction."""

    block: BlockNo
    index: int = Field(ge=0)
    tx_id: str | None
    timestamp: str | None = Field(description="Time that the client claimed.", examples=["2026-11-30T12:00:00+00:00"])
    delete: bool
    value: Bytes | None = Field(description="The value written; null for a delete.")


class HistoryAnswer(Answer):
    """The changes of a key, newest first."""

    namespace: str
    key: str
    changes: list[ChangeAnswer]
    next: str | None = Field(description="Value of `before` for the next page; null at the end.", examples=["7.3"])


class SignerAnswer(Answer):
    """One signature."""

    msp_id: str | None = Field(examples=["Org1MSP"])
    name: str | None = Field(description="Common name in the certificate.", examples=["peer0.org1.example.com"])
    identity_digest: HashText = Field(description="SHA-256 of the serialized identity.")
    identity: str | None = Field(description="Serialized identity, base64; null in lists.")
    signature: str | None = Field(description="Signature over statement and identity, base64; null in lists.")


class CheckpointItem(Answer):
    """A checkpoint and how far it has come."""

    number: BlockNo
    status: Literal["pending", "valid", "local", "superseded", "abandoned", "diverged"]
    signers: list[SignerAnswer]
    missing: list[str] = Field(description="What the policies still ask for.", examples=[["1 signature of Org2MSP"]])


class CheckpointList(Answer):
    """The checkpoints that this peer knows, newest first."""

    latest_valid: int | None
    checkpoints: list[CheckpointItem]


class StatementAnswer(Answer):
    """What peers agree on at one height."""

    channel: str = Field(examples=["mychannel"])
    number: BlockNo
    vblock_hash: HashText
    vledger_root: HashText = Field(description="RFC 6962 tree hash over all vBlock hashes up to this one.")
    state_hash: HashText
    encoded: str = Field(description="The bytes that are signed, followed by the signer's identity; base64.")


class CheckpointAnswer(CheckpointItem):
    """A checkpoint with its statement; of a valid one `signers` is the proof, in the order of evaluation."""

    statement: StatementAnswer


class DifferingVBlock(Answer):
    """The first vBlock that differs."""

    number: BlockNo
    differs: list[str] = Field(description="Which members of its header.", examples=[["valid_count", "tx_root"]])
    ours: dict[str, Any]
    theirs: dict[str, Any]
    transactions: list[dict[str, Any]] = Field(description="Its transactions that differ, the first 20 of them.")
    more_transactions: bool


class DifferingKey(Answer):
    """A key at which the states differ; of values and metadata only SHA-256."""

    kind: Literal["public", "hashed private data"]
    namespace: str
    collection: str
    key: str = Field(description="The key as hex; of private data its SHA-256.")
    differs: list[str] = Field(examples=[["value", "version"]])
    ours: dict[str, Any] | None
    theirs: dict[str, Any] | None


class DifferingState(Answer):
    """Where the states differ."""

    ours_at: BlockNo
    theirs_at: int = Field(description="Checkpoint of the other peer's state; a later one where it has moved on.")
    keys: list[DifferingKey]
    more: bool = Field(description="There are more keys than are told.")


class FoundDivergence(Answer):
    """Where the divergence begins."""

    checkpoint: BlockNo
    compared_with: str = Field(description="Name of the peer that answered.")
    vblock: DifferingVBlock | None = Field(description="Null: the validated ledgers are the same.")
    state: DifferingState | None = Field(description="Null: the states could not be compared (yet).")
    state_reason: str
    questions: int
    refused: dict[str, str] = Field(description="Peers that could not answer, or lied, with the reason.")
    summary: str


class DivergenceAnswer(Answer):
    """How this peer differs from what others agreed on."""

    checkpoint: BlockNo
    reason: str
    computed: StatementAnswer
    agreed: StatementAnswer
    found: FoundDivergence | None = Field(description="Null: it is still being looked for.")
    summary: str


class PrunePlanAnswer(Answer):
    """What pruning would remove and keep."""

    first_block: BlockNo
    to_block: int | None = Field(description="The prune point after it; null: nothing would go.")
    blocks: int = Field(description="Blocks that would no longer be held whole.")
    transactions: dict[str, int] = Field(description="Bodies that would go, by verdict.")
    files: list[str] = Field(description="Files that would go.")
    bytes_freed: int
    checkpoint: int | None = Field(description="The valid checkpoint that it rests on.")
    policies: list[str]
    held_back_by: list[str]
    still_provable: list[str]


class PruneRequest(BaseModel):
    """What to prune."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"to": 199}, {}]})

    to: int | None = Field(None, ge=0, lt=2**64, description="Prune point asked for; null: as far as allowed.")


class ReceiptAnswer(Answer):
    """What was pruned, signed by this peer and kept for ever; receipts are chained by their hashes."""

    sequence: int = Field(description="0 for the first receipt, then one more each.", examples=[0])
    previous: HashText = Field(description="Hash of the receipt before; 32 zero bytes for the first.")
    first_block: BlockNo
    to_block: BlockNo = Field(description="The prune point after it.")
    transactions: dict[str, int] = Field(description="Bodies that went, by verdict.")
    bytes_freed: int
    checkpoint: StatementAnswer = Field(description="The valid checkpoint that it rested on.")
    proof: list[SignerAnswer] = Field(description="The signatures that made it valid, in order.")
    archived_files: dict[str, str] = Field(description="SHA-256 of each archived file, by name.")
    issued_at: str = Field(description="By this peer's clock.", examples=["2026-11-30T12:00:00+00:00"])
    signer: SignerAnswer = Field(description="This peer and its signature.")
    encoded: str = Field(description="The receipt as it was signed and is kept, base64.")


class ReceiptList(Answer):
    """All receipts, oldest first."""

    receipts: list[ReceiptAnswer]


class PruneAnswer(Answer):
    """What a request to prune did."""

    pruned: bool = Field(description="False if there was nothing left to prune.")
    receipt: ReceiptAnswer | None


class BackupRequest(BaseModel):
    """Where a backup goes."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"to": "monday"}]})

    to: str = Field(
        min_length=1, max_length=4096, description="Folder: absolute or seen from the peer's `backup_dir`, below that."
    )


class BackupAnswer(Answer):
    """How far a backup has come; what it holds once it is done."""

    state: Literal["running", "done", "failed"]
    path: str = Field(description="The backup's folder on the peer's machine.")
    bytes_done: int
    bytes_total: int = Field(description="0 until it is known.")
    reason: str = Field(description="Why it failed.")
    height: int | None = Field(description="Blocks in it.")
    prune_point: int | None
    vblock_hash: HashText | None
    state_hash: HashText | None = Field(description="Of the state after the last block in it.")
    files: int | None


class ComponentAnswer(Answer):
    """Whether one part of the node does useful work."""

    name: str = Field(examples=["orderer/mychannel"])
    ready: bool
    reason: str


class HealthAnswer(Answer):
    """The process is alive."""

    status: Literal["alive"]


class ReadyAnswer(Answer):
    """Whether the node is useful, part by part."""

    ready: bool
    components: list[ComponentAnswer]


class ParameterError(Answer):
    """One parameter that is wrong."""

    where: str = Field(examples=["path.number"])
    rule: str = Field(examples=["int_parsing"])
    expected: str
    found: str


class ProblemDocument(BaseModel):
    """An error, as RFC 9457 has it; members beyond these depend on the type."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="The kind of problem; a page of this node.", examples=["/problems/pruned"])
    title: str
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="Subject and reason.")
    instance: str = Field(description="The path asked for.")
    hint: str = Field(description="The next step.")
    rule: str | None = Field(None, description="The rule that refused.")
    expected: str | None = None
    found: str | None = None
    errors: list[ParameterError] | None = Field(None, description="Of an invalid request: each wrong parameter.")
