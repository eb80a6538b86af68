"""What does a peer do with checkpoints and CHECKPOINT messages?  One machine per channel: `step(tally, event)`.

The machine knows no disk, network or clock. What it wants done comes out as effects, which its driver carries out from
left to right; the order is part of the rules:

1. `Persist` before `Send`: a statement is durable before anybody hears of it, so that a peer that crashed between the
   two says the same again, and never something else for the same height.
2. `Send` before `Valid`: others get our signature even if ours is the one that completes our own proof.
3. `Diverged` is the last word: the machine counts nothing afterwards.

What is dropped is named by a rule (design, rule 7): "foreign channel", "early" (more than the bounded memory for
heights not reached yet takes), "late" (below the latest valid checkpoint), "no checkpoint here", "repeated", "unknown
identity", "invalid identity", "not a peer", "forged signature", "key counted already", "too many signers",
"equivocation" (kept as evidence), "abandoned" (given up by an admin), "diverged". Nothing that one peer sends can stop
another: only a checkpoint that satisfies the *whole* rule of this peer and differs from what it computed does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import CheckpointMessage, CheckpointProof, PeerSignature, Statement, signed_bytes
from ledger.core.checkpoint_proof import CheckpointRules, CountedSigner, Scope, check_proof, collect, count_signature
from ledger.core.errors import InvalidCheckpoint, PolicyNotSatisfied
from ledger.core.identity import Identity
from ledger.core.names import BlockNumber, ChannelId

HEIGHTS_MAX = 64
"""Computed heights that are tallied at once; older ones give way."""

EARLY_BYTES_PER_SOURCE_MAX = 256 * 1024
"""Memory for one source's messages about heights that this peer has not reached: some hundred messages."""

EARLY_SOURCES_MAX = 64
"""Sources whose early messages are kept."""

SIGNERS_PER_ORGANISATION_MAX = 256
"""Keys of one organisation that are counted at one height; who issues more only displaces its own."""

OWN = "own"
"""The source of what this peer says itself."""


@dataclass(frozen=True, slots=True)
class TallySettings:
    """What the machine is told once."""

    channel: ChannelId
    rules: CheckpointRules
    own_identity: bytes = b""
    """This peer's SerializedIdentity, to know its own signatures when it meets them."""

    own: Identity | None = None
    """The same, to verify them."""


@dataclass(frozen=True, slots=True)
class Height:
    """What is known about one height that this peer has computed."""

    statement: Statement
    """What this peer computed."""

    bundle: Bundle
    """The configuration in force after the block: what everything here is judged by."""

    signed_here: bool = False
    """Whether this peer has signed it."""

    signers: tuple[CountedSigner, ...] = ()
    """Who agrees, in the order of arrival."""

    others: tuple[tuple[Statement, tuple[CountedSigner, ...]], ...] = ()
    """Other statements, and who made them."""

    equivocators: frozenset[bytes] = frozenset()
    """Public keys that made two statements here."""

    valid: CheckpointProof | None = None
    local: CheckpointProof | None = None
    """A proof that is good for this peer's own pruning alone."""

    def said(self, public_key: bytes) -> tuple[Statement, CountedSigner] | None:
        """Return the first statement of a key, if it made one."""
        for statement, signers in ((self.statement, self.signers), *self.others):
            for signer in signers:
                if signer.public_key == public_key:
                    return statement, signer
        return None

    def signer_count(self, msp_id: str) -> int:
        """Number of keys of an organisation that were counted, on whatever statement."""
        everyone = (*self.signers, *(signer for _, signers in self.others for signer in signers))
        return sum(signer.identity.msp_id == msp_id for signer in everyone)


@dataclass(frozen=True, slots=True)
class Tally:
    """The machine's state."""

    settings: TallySettings
    newest_computed: BlockNumber | None = None
    latest_valid: CheckpointProof | None = None
    heights: Mapping[BlockNumber, Height] = field(default_factory=dict)
    """Computed heights by number, at most `HEIGHTS_MAX`."""

    early: Mapping[str, tuple[CheckpointMessage, ...]] = field(default_factory=dict)
    """Messages about heights not reached yet, by source, lower heights first; not judged yet."""

    abandoned: frozenset[BlockNumber] = frozenset()
    """Heights that were given up: nothing about them is taken in."""

    diverged: CheckpointProof | None = None
    """What others agreed on and this peer did not compute; ends the tally."""


@dataclass(frozen=True, slots=True)
class Computed:
    """This peer computed a checkpoint."""

    statement: Statement
    bundle: Bundle
    """The configuration in force after the block."""

    own: CheckpointMessage | None
    """Our signature on it; None if this peer may not sign it."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A CHECKPOINT message came in."""

    message: CheckpointMessage
    source: str
    """Through whom, for quotas; not necessarily the signer."""


@dataclass(frozen=True, slots=True)
class ProofArrived:
    """Somebody sent a proof."""

    proof: CheckpointProof
    source: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """An admin gives a pending height up."""

    number: BlockNumber


Event = Computed | Arrived | ProofArrived | Abandon


@dataclass(frozen=True, slots=True)
class Persist:
    """Make our own signed statement durable, or do none of what follows."""

    message: CheckpointMessage


@dataclass(frozen=True, slots=True)
class Send:
    """Tell everybody."""

    message: CheckpointMessage


@dataclass(frozen=True, slots=True)
class Counted:
    """A signature was new and counts."""

    statement: Statement
    signer: CountedSigner


@dataclass(frozen=True, slots=True)
class Valid:
    """A checkpoint became valid: make proof and latest valid checkpoint durable in one step, then tell pruning."""

    proof: CheckpointProof
    scope: Scope


@dataclass(frozen=True, slots=True)
class Diverged:
    """Others validly agreed on something else: stop the channel, keep both."""

    computed: Statement
    proof: CheckpointProof


@dataclass(frozen=True, slots=True)
class Evidence:
    """One key signed two statements at one height."""

    first: tuple[Statement, PeerSignature]
    second: tuple[Statement, PeerSignature]


@dataclass(frozen=True, slots=True)
class OwnSignatureSeen:
    """Our own good signature on something that we have no record of: we were restored from an older copy."""

    number: BlockNumber


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A height is given up: make that durable, then let go of its state."""

    number: BlockNumber
    statement: Statement | None
    """What this peer computed there, if it did."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Something was not counted, by which rule."""

    rule: str
    number: BlockNumber
    source: str
    detail: str = ""


Effect = Persist | Send | Counted | Valid | Diverged | Evidence | OwnSignatureSeen | Abandoned | Dropped


def step(tally: Tally, event: Event) -> tuple[Tally, tuple[Effect, ...]]:
    """Take one event in.

    Args:
        tally: The state; left as it was.
        event: What happened.

    Returns:
        The next state, and what to do, in order.
    """
    if tally.diverged is not None:
        return tally, (_dropped("diverged", event),)
    match event:
        case Computed():
            return _computed(tally, event)
        case Arrived():
            return _arrived(tally, event)
        case ProofArrived():
            return _proof_arrived(tally, event)
        case Abandon():
            return _abandon(tally, event)
        case _:
            assert_never(event)


def _computed(tally: Tally, event: Computed) -> tuple[Tally, tuple[Effect, ...]]:
    """Open a height: say our own word, then hear those who spoke early."""
    number = event.statement.number
    assert event.statement.channel == tally.settings.channel, "the ledger of another channel"
    if tally.newest_computed is not None and number <= tally.newest_computed:
        return tally, ()  # A start computes again what it finds: nothing new.
    tally = replace(tally, newest_computed=number)
    if number in tally.abandoned:
        return tally, (_dropped("abandoned", event),)

    latest = tally.latest_valid
    if latest is not None and number <= latest.statement.number:
        # We are behind what we once knew to be valid (restored, or rebuilt): check that we come to the same.
        if number == latest.statement.number and event.statement != latest.statement:
            return replace(tally, diverged=latest), (Diverged(event.statement, latest),)
        return tally, ()

    height = Height(event.statement, event.bundle, signed_here=event.own is not None)
    effects: list[Effect] = []
    if event.own is not None:
        effects += [Persist(event.own), Send(event.own)]
        height, said = _count(tally, height, event.own.statement, event.own.signed, OWN)
        effects += said
    tally, heard, gone = _take_early(tally, number)
    effects += gone
    for source, message in heard:
        height, said = _count(tally, height, message.statement, message.signed, source)
        effects += said
    heights = dict(tally.heights) | {number: height}
    while len(heights) > HEIGHTS_MAX:
        del heights[min(heights)]
    tally, decided = _decide(replace(tally, heights=heights), number)
    return tally, (*effects, *decided)


def _arrived(tally: Tally, event: Arrived) -> tuple[Tally, tuple[Effect, ...]]:
    """Count a message, keep it for later, or drop it."""
    statement, signed = event.message.statement, event.message.signed
    if statement.channel != tally.settings.channel:
        return tally, (_dropped("foreign channel", event, f"expected {tally.settings.channel}"),)
    if statement.number in tally.abandoned:
        return tally, (_dropped("abandoned", event),)
    height = tally.heights.get(statement.number)
    if height is not None:
        height, effects = _count(tally, height, statement, signed, event.source)
        tally, decided = _decide(_with_height(tally, height), statement.number)
        return tally, (*effects, *decided)
    if tally.newest_computed is None or statement.number > tally.newest_computed:
        tally, kept = _keep_early(tally, event)
        return tally, (*_own_seen(tally.settings, statement, signed), *kept)
    return tally, (_dropped(_why_closed(tally, statement.number), event),)


def _proof_arrived(tally: Tally, event: ProofArrived) -> tuple[Tally, tuple[Effect, ...]]:
    """Take a proof as it stands; where it is not enough by our own rule, its signatures still count one by one."""
    proof = event.proof
    number = proof.statement.number
    if proof.statement.channel != tally.settings.channel:
        return tally, (_dropped("foreign channel", event, f"expected {tally.settings.channel}"),)
    if number in tally.abandoned:
        return tally, (_dropped("abandoned", event),)
    height = tally.heights.get(number)
    if height is None:
        early = tally.newest_computed is None or number > tally.newest_computed
        return tally, (_dropped("early" if early else _why_closed(tally, number), event),)
    if height.valid is not None and height.statement == proof.statement:
        return tally, (_dropped("repeated", event),)
    enough = True
    try:
        check_proof(proof, height.bundle, tally.settings.rules)
    except InvalidCheckpoint as error:
        return tally, (_dropped(error.rule, event, str(error)),)
    except PolicyNotSatisfied:
        enough = False
    if enough and proof.statement != height.statement:
        return replace(tally, diverged=proof), (Diverged(height.statement, proof),)

    effects: list[Effect] = []
    for signed in proof.signatures:
        height, said = _count(tally, height, proof.statement, signed, event.source)
        effects += [effect for effect in said if not (isinstance(effect, Dropped) and effect.rule == "repeated")]
    if enough:
        height = replace(height, valid=proof)
        tally, decided = _became_valid(_with_height(tally, height), proof)
    else:
        tally, decided = _decide(_with_height(tally, height), number)
    return tally, (*effects, *decided)


def _abandon(tally: Tally, event: Abandon) -> tuple[Tally, tuple[Effect, ...]]:
    """Give a height up, unless something rests on it, or its time is over ("not pending")."""
    number, latest = event.number, tally.latest_valid
    height = tally.heights.get(number)
    over = latest is not None and number <= latest.statement.number
    if over or number in tally.abandoned or (height is not None and height.local is not None):
        return tally, (_dropped("not pending", event),)
    heights = {n: one for n, one in tally.heights.items() if n != number}
    early = {
        source: kept
        for source, messages in tally.early.items()
        if (kept := tuple(message for message in messages if message.statement.number != number))
    }
    statement = height.statement if height is not None else None
    tally = replace(tally, heights=heights, early=early, abandoned=tally.abandoned | {number})
    return tally, (Abandoned(number, statement),)


def _count(
    tally: Tally, height: Height, statement: Statement, signed: PeerSignature, source: str
) -> tuple[Height, list[Effect]]:
    """Judge one signature at a height that we have computed.

    The first statement of a key is its word. A second, different one is kept as evidence and counts for nothing.
    """
    number = statement.number

    def dropped(rule: str, detail: str = "") -> tuple[Height, list[Effect]]:
        return height, [Dropped(rule, number, source, detail)]

    if any(known.signed == signed for known in _signers_of(height, statement)):
        return dropped("repeated")  # Before any costly check: repetition is the common case.
    try:
        signer = count_signature(statement, signed, height.bundle)
    except InvalidCheckpoint as error:
        return dropped(error.rule, str(error))
    effects: list[Effect] = []
    unknown = not height.signed_here or statement != height.statement
    if source != OWN and unknown and signed.identity == tally.settings.own_identity:
        effects.append(OwnSignatureSeen(number))

    before = height.said(signer.public_key)
    if before is None:
        if height.signer_count(signer.identity.msp_id) >= SIGNERS_PER_ORGANISATION_MAX:
            return dropped("too many signers", f"at most {SIGNERS_PER_ORGANISATION_MAX} of {signer.identity.msp_id}")
        return _with_signer(height, statement, signer), [*effects, Counted(statement, signer)]
    first, known = before
    if first == statement:
        same = known.identity.digest == signer.identity.digest
        return height, [*effects, Dropped("repeated" if same else "key counted already", number, source)]
    if signer.public_key not in height.equivocators:
        effects.append(Evidence((first, known.signed), (statement, signed)))
        height = replace(height, equivocators=height.equivocators | {signer.public_key})
    return height, [*effects, Dropped("equivocation", number, source, f"{signer.identity.msp_id} {signer.name}")]


def _signers_of(height: Height, statement: Statement) -> tuple[CountedSigner, ...]:
    """Return who made a statement at a height."""
    if statement == height.statement:
        return height.signers
    return next((signers for other, signers in height.others if other == statement), ())


def _with_signer(height: Height, statement: Statement, signer: CountedSigner) -> Height:
    """Add a key's first word."""
    signers = (*_signers_of(height, statement), signer)
    if statement == height.statement:
        return replace(height, signers=signers)
    rest = tuple(pair for pair in height.others if pair[0] != statement)
    return replace(height, others=(*rest, (statement, signers)))


def _decide(tally: Tally, number: BlockNumber) -> tuple[Tally, list[Effect]]:
    """See whether a height has become valid, or others have validly agreed on something else."""
    height, rules = tally.heights[number], tally.settings.rules
    effects: list[Effect] = []
    if height.valid is None:
        found = collect(height.statement, height.signers, height.bundle, rules)
        if found is not None and found[1] is Scope.FULL:
            tally, decided = _became_valid(_with_height(tally, replace(height, valid=found[0])), found[0])
            effects += decided
        elif found is not None and height.local is None:
            tally = _with_height(tally, replace(height, local=found[0]))
            effects.append(Valid(found[0], Scope.LOCAL))
    for statement, signers in height.others:
        differing = collect(statement, signers, height.bundle, replace(rules, either_prunes=False))
        if differing is not None:
            return replace(tally, diverged=differing[0]), [*effects, Diverged(height.statement, differing[0])]
    return tally, effects


def _became_valid(tally: Tally, proof: CheckpointProof) -> tuple[Tally, list[Effect]]:
    """Move on to a valid checkpoint: what is pending below it has become pointless."""
    latest = tally.latest_valid
    if latest is not None and proof.statement.number <= latest.statement.number:
        return tally, []
    number = proof.statement.number
    heights = {n: height for n, height in tally.heights.items() if n >= number or height.valid is not None}
    return replace(tally, heights=heights, latest_valid=proof), [Valid(proof, Scope.FULL)]


def _with_height(tally: Tally, height: Height) -> Tally:
    return replace(tally, heights=dict(tally.heights) | {height.statement.number: height})


def _keep_early(tally: Tally, event: Arrived) -> tuple[Tally, list[Effect]]:
    """Keep a message about a height not reached yet, within the source's share of memory.

    The nearest heights are kept: they are needed first, and what is farther away is asked for again when its time
    comes. So a source that floods only displaces its own.
    """
    kept = tally.early.get(event.source)
    if kept is None and len(tally.early) >= EARLY_SOURCES_MAX:
        return tally, [_dropped("early", event, "too many sources")]
    kept = kept or ()
    if event.message in kept:
        return tally, [_dropped("repeated", event)]
    ordered = sorted((*kept, event.message), key=lambda message: message.statement.number)
    effects: list[Effect] = []
    size_bytes = sum(map(_size_bytes, ordered))
    while size_bytes > EARLY_BYTES_PER_SOURCE_MAX:
        farthest = ordered.pop()
        size_bytes -= _size_bytes(farthest)
        effects.append(Dropped("early", farthest.statement.number, event.source, "memory for early messages"))
    return replace(tally, early=dict(tally.early) | {event.source: tuple(ordered)}), effects


def _take_early(tally: Tally, number: BlockNumber) -> tuple[Tally, list[tuple[str, CheckpointMessage]], list[Effect]]:
    """Take out the early messages about a height, and those about lower ones, which turned out to be no checkpoint."""
    heard: list[tuple[str, CheckpointMessage]] = []
    gone: list[Effect] = []
    early: dict[str, tuple[CheckpointMessage, ...]] = {}
    for source, messages in tally.early.items():
        heard += [(source, message) for message in messages if message.statement.number == number]
        gone += [
            Dropped("no checkpoint here", message.statement.number, source)
            for message in messages
            if message.statement.number < number
        ]
        if later := tuple(message for message in messages if message.statement.number > number):
            early[source] = later
    return replace(tally, early=early), heard, gone


def _size_bytes(message: CheckpointMessage) -> int:
    """Estimate the memory that a message takes."""
    return 512 + len(message.signed.identity) + len(message.signed.signature) + 128 * len(message.libraries)


def _own_seen(settings: TallySettings, statement: Statement, signed: PeerSignature) -> tuple[Effect, ...]:
    """Notice our own good signature above everything that we have computed."""
    if settings.own is None or signed.identity != settings.own_identity:
        return ()
    good = settings.own.verify(signed_bytes(statement, signed.identity), signed.signature)
    return (OwnSignatureSeen(statement.number),) if good else ()


def _why_closed(tally: Tally, number: BlockNumber) -> str:
    """Name the rule for a height at or below the newest computed one that is not being tallied."""
    latest = tally.latest_valid
    return "late" if latest is not None and number <= latest.statement.number else "no checkpoint here"


def _dropped(rule: str, event: Event, detail: str = "") -> Dropped:
    match event:
        case Computed(statement, _, _):
            return Dropped(rule, statement.number, OWN, detail)
        case Arrived(message, source):
            return Dropped(rule, message.statement.number, source, detail)
        case ProofArrived(proof, source):
            return Dropped(rule, proof.statement.number, source, detail)
        case Abandon(number):
            return Dropped(rule, number, OWN, detail)
        case _:
            assert_never(event)


__all__ = [
    "Abandon",
    "Abandoned",
    "Arrived",
    "Computed",
    "Counted",
    "Diverged",
    "Dropped",
    "Effect",
    "Event",
    "Evidence",
    "Height",
    "OwnSignatureSeen",
    "Persist",
    "ProofArrived",
    "Send",
    "Tally",
    "TallySettings",
    "Valid",
    "step",
]
