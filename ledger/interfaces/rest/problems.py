"""How does an error leave by the REST door?  As a problem document (RFC 9457), by one function for all errors.

A problem names its kind (`type`, a page of this node), the subject and reason (`detail`), the rule with what was
expected and found, and the next step (`hint`). The kinds are a table; the first row that fits the error's class
decides, so rows go from special to general.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from ledger.core import errors
from ledger.core.errors import shown
from ledger.core.names import verdict_name

PROBLEM_JSON = "application/problem+json"
"""Media type of a problem document."""

PROBLEM_BASE = "/problems/"
"""Where this node explains its kinds of problems."""


class Unauthenticated(errors.Refused):
    """An administrative request without a token, or with one that proves nothing."""


class OutcomeUnknown(errors.LedgerError):
    """A wait for a transaction ended before it was committed: neither committed nor lost.

    Attributes:
        tx_id: The id that was waited for.
        height: Blocks committed when the wait ended.
        waited_ms: How long it was waited for.
    """

    def __init__(self, tx_id: str, *, height: int, waited_ms: int) -> None:
        """Say for what and how long it was waited."""
        self.tx_id = tx_id
        self.height = height
        self.waited_ms = waited_ms
        super().__init__(f"transaction {shown(tx_id)} was not committed within {waited_ms} ms; the outcome is unknown")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem."""

    slug: str
    """Last part of its type."""

    status: HTTPStatus
    title: str
    hint: str
    """What the caller can do."""

    @property
    def type(self) -> str:
        """The URI reference that names the kind."""
        return PROBLEM_BASE + self.slug


INVALID_REQUEST = Kind(
    "invalid-request",
    HTTPStatus.BAD_REQUEST,
    "The request is not valid",
    "Correct the parameter that `errors` names; the docs page lists what each path takes.",
)
INTERNAL = Kind(
    "internal",
    HTTPStatus.INTERNAL_SERVER_ERROR,
    "The node made a mistake",
    "Report it with the time of the request; the node's log has the details.",
)
NO_SUCH_PATH = Kind(
    "no-such-path", HTTPStatus.NOT_FOUND, "There is no such path", "The docs page under /docs lists all paths."
)
METHOD_NOT_ALLOWED = Kind(
    "method-not-allowed",
    HTTPStatus.METHOD_NOT_ALLOWED,
    "The path does not take this method",
    "Use a method named in the Allow header.",
)
BUSY = Kind("busy", HTTPStatus.SERVICE_UNAVAILABLE, "The node is busy", "Ask again after the time in Retry-After.")

KINDS: tuple[tuple[type[errors.LedgerError], Kind], ...] = (
    (
        Unauthenticated,
        Kind(
            "unauthenticated",
            HTTPStatus.UNAUTHORIZED,
            "An admin token is needed",
            "Make a token with `peerledger admin token` and send it as `Authorization: Bearer TOKEN`.",
        ),
    ),
    (
        errors.Forbidden,
        Kind(
            "forbidden",
            HTTPStatus.FORBIDDEN,
            "The caller is not entitled",
            "Use an admin identity of this peer's organisation and a fresh token for this peer, channel and action.",
        ),
    ),
    (
        errors.NotFound,
        Kind(
            "not-found",
            HTTPStatus.NOT_FOUND,
            "There is no such thing",
            "Check the name; what is not committed yet appears with a later block.",
        ),
    ),
    (
        errors.BeforeJoining,
        Kind(
            "before-joining",
            HTTPStatus.GONE,
            "This peer joined later",
            "Ask a peer that was there from the start; verdicts, ids, hashes and the state are here.",
        ),
    ),
    (
        errors.Pruned,
        Kind(
            "pruned",
            HTTPStatus.GONE,
            "It was pruned",
            "Verdicts, vBlocks, valid transactions and state are still here; whole blocks begin at `first_block`.",
        ),
    ),
    (
        errors.PruneRefused,
        Kind(
            "prune-refused",
            HTTPStatus.CONFLICT,
            "This can't be pruned yet",
            "Prune up to the height that is allowed, or wait for the next valid checkpoint.",
        ),
    ),
    (
        errors.AbandonRefused,
        Kind(
            "abandon-refused",
            HTTPStatus.CONFLICT,
            "This checkpoint is not pending",
            "Only a checkpoint that waits for signatures, or could not be computed, can be abandoned.",
        ),
    ),
    (
        errors.Conflict,
        Kind(
            "conflict",
            HTTPStatus.CONFLICT,
            "The request contradicts what is there",
            "Look at the present state before asking again.",
        ),
    ),
    (
        errors.Refused,
        Kind(
            "refused",
            HTTPStatus.BAD_REQUEST,
            "The request breaks a rule",
            "Correct what `rule`, `expected` and `found` name.",
        ),
    ),
    (
        OutcomeUnknown,
        Kind(
            "outcome-unknown",
            HTTPStatus.GATEWAY_TIMEOUT,
            "The outcome is not known yet",
            "Ask again with the same id; submitting the same envelope again is harmless.",
        ),
    ),
    (
        errors.SimulationFailed,
        Kind(
            "simulation-failed",
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "The chaincode gave no result",
            "Look at the chaincode's definition, its arguments and its log.",
        ),
    ),
    (
        errors.Diverged,
        Kind(
            "diverged",
            HTTPStatus.SERVICE_UNAVAILABLE,
            "This peer differs from a valid checkpoint",
            "Ask another peer; the operator finds the evidence in the log and with `peerledger verify`.",
        ),
    ),
    (
        errors.ChannelStopped,
        Kind(
            "channel-stopped",
            HTTPStatus.SERVICE_UNAVAILABLE,
            "The channel has stopped on this peer",
            "Ask another peer; the operator finds the reason under /readyz and in the log.",
        ),
    ),
    (errors.Busy, BUSY),
    (
        errors.StorageDamaged,
        Kind(
            "storage-damaged",
            HTTPStatus.SERVICE_UNAVAILABLE,
            "The stored data are damaged",
            "Ask another peer; the operator runs `peerledger verify` and then `peerledger rebuild`.",
        ),
    ),
    (
        errors.StorageFailed,
        Kind(
            "storage-failed",
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Reading the disk failed",
            "Ask again or ask another peer; the operator looks at the disk.",
        ),
    ),
    (
        errors.WorldFailed,
        Kind(
            "unavailable",
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Something that the node needs does not answer",
            "Ask again later or ask another peer.",
        ),
    ),
)
"""The kind of each class of errors, the most special first."""

ALL_KINDS: tuple[Kind, ...] = (
    *(kind for _, kind in KINDS),
    INVALID_REQUEST,
    NO_SUCH_PATH,
    METHOD_NOT_ALLOWED,
    INTERNAL,
)
"""Every kind that this door gives a type of its own."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem document and the response headers that go with it."""

    kind: Kind
    detail: str
    members: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self, instance: str) -> dict[str, Any]:
        """Write the document; `instance` is the path that was asked for."""
        return {
            "type": self.kind.type,
            "title": self.kind.title,
            "status": int(self.kind.status),
            "detail": self.detail,
            "instance": instance,
            "hint": self.kind.hint,
            **self.members,
        }


def problem_of(error: errors.LedgerError) -> Problem:
    """Translate an error of this package: the one place where this door decides on status and type."""
    kind = next((kind for kind_of, kind in KINDS if isinstance(error, kind_of)), INTERNAL)
    headers: dict[str, str] = {}
    if kind.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="peerledger"'
    if kind is BUSY:
        headers["Retry-After"] = "1"
    detail = kind.title if kind is INTERNAL else str(error)
    return Problem(kind, detail, _members(error), headers)


def _members(error: errors.LedgerError) -> dict[str, Any]:
    match error:
        case errors.Refused():
            members = {"rule": error.rule, "expected": error.expected, "found": error.found}
            return {name: shown(value) for name, value in members.items() if value is not None}
        case errors.Pruned():
            members = {"block": error.block, "first_block": error.first_block, "index": error.index}
            if error.verdict is not None:
                members |= {"verdict": verdict_name(error.verdict), "verdict_code": error.verdict}
            return {name: value for name, value in members.items() if value is not None}
        case OutcomeUnknown():
            return {"tx_id": error.tx_id, "height": error.height, "waited_ms": error.waited_ms}
        case _:
            return {}
