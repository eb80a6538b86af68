"""What do the paths have in common?  Their parameters, the channel that is asked, and how they answer.

Each path function gets an `Asked`: the channel found by its name, and the threads to read it on. Answers that may be
large (blocks, vBlocks, envelopes) are written on those threads too; the others are small enough for the event loop.
"""

import binascii
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel

from ledger.core.errors import LedgerError, MalformedMessage
from ledger.interfaces.rest.ports import ChannelView, NodeView
from ledger.interfaces.rest.problems import INVALID_REQUEST, KINDS, PROBLEM_JSON, Kind
from ledger.interfaces.rest.reads import Answer, Reads

OCTETS = "application/octet-stream"
"""Media type of raw protobuf bytes."""

ChannelName = Annotated[str, Path(description="Name of the channel.", examples=["mychannel"])]
BlockPath = Annotated[int, Path(description="Number of the block.", ge=0, lt=2**64, examples=[7])]
Format = Annotated[
    Literal["json", "protobuf"] | None,
    Query(description="`protobuf` gives the raw bytes, as `Accept: application/octet-stream` does."),
]
Accept = Annotated[str, Header(include_in_schema=False)]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks, as far as every path needs it."""

    node: NodeView
    channel_id: str
    channel: ChannelView
    reads: Reads

    async def read(self, question: Callable[[], Answer], *, timeout_ms: int | None = None) -> Answer:
        """Read the ledger on a thread, in bounded time."""
        return await self.reads.run(question, timeout_ms=timeout_ms)

    async def written(self, question: Callable[[], BaseModel]) -> Response:
        """Read the ledger and write the answer as JSON, both on a thread."""
        body = await self.reads.run(lambda: question().model_dump_json(exclude_unset=True).encode())
        return Response(body, media_type="application/json")


async def asked(request: Request, channel: ChannelName) -> Asked:
    """Find the channel that a request names."""
    node: NodeView = request.app.state.node
    return Asked(node, channel, node.channel(channel), request.app.state.reads)


AskedChannel = Annotated[Asked, Depends(asked)]


def wants_bytes(format_: str | None, accept: str) -> bool:
    """Tell whether the raw bytes are asked for: the parameter decides, then the Accept header."""
    if format_ is not None:
        return format_ == "protobuf"
    kinds = [kind.split(";")[0].strip() for kind in accept.split(",")]
    return OCTETS in kinds or "application/x-protobuf" in kinds


def base64url(text: str, subject: str) -> bytes:
    """Decode base64url, with or without padding.

    Raises:
        MalformedMessage: It is none.
    """
    refusal = MalformedMessage(subject, rule="base64url", expected="letters, digits, - and _", found=text)
    if not re.fullmatch(r"[A-Za-z0-9_-]*={0,2}", text):
        raise refusal
    bare = text.rstrip("=")
    try:
        return urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
    except binascii.Error as error:
        raise refusal from error


def problems(*classes: type[LedgerError]) -> dict[int | str, dict[str, Any]]:
    """Document which problems a path answers with: those of the classes, wrong parameters, and any other."""
    kinds = [INVALID_REQUEST, *(next(kind for kind_of, kind in KINDS if kind_of is one) for one in classes)]
    by_status: dict[int | str, list[Kind]] = {}
    for kind in kinds:
        by_status.setdefault(int(kind.status), []).append(kind)
    documented = {
        status: _documented("; ".join(kind.title for kind in here), here[0]) for status, here in by_status.items()
    }
    return documented | {"default": _documented("Any other problem", None)}


def _documented(description: str, kind: Kind | None) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
    if kind is not None:
        content["example"] = {
            "type": kind.type,
            "title": kind.title,
            "status": int(kind.status),
            "detail": "…",
            "instance": "/v1/channels/mychannel",
            "hint": kind.hint,
        }
    return {"description": description, "content": {PROBLEM_JSON: content}}


def bytes_or_json() -> dict[int | str, dict[str, Any]]:
    """Document that a path answers with JSON or with raw bytes."""
    return {200: {"content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}}}}
