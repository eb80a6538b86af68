"""Paths of the state: an entry by its key, and the history of a key.

A key stands in the path, or, for keys that a path can't carry (NUL, slashes at the ends, any unicode that a client's
URL library would change), as base64url in `?key=`.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Path, Query

from ledger.core.errors import BeforeJoining, Busy, ChannelStopped, NotFound, shown
from ledger.core.names import Verdict
from ledger.core.state import PUBLIC, HistoryEntry, StateKey, TxPlace
from ledger.interfaces.rest import models, views
from ledger.interfaces.rest.asking import Asked, AskedChannel, base64url, problems
from ledger.interfaces.rest.ports import ChannelView
from ledger.wire.render import render_change

router = APIRouter(tags=["state"])

Namespace = Annotated[str, Path(description="Chaincode whose state it is.", examples=["assets"])]
KeyPath = Annotated[str, Path(description="The key as text.", examples=["asset1"])]
KeyQuery = Annotated[str, Query(description="The key as base64url.", examples=["YXNzZXQx"])]
Limit = Annotated[int, Query(description="Changes in one answer.", ge=1, le=1000)]
Before = Annotated[
    str | None, Query(description="`next` of the page before.", pattern=r"^\d{1,20}\.\d{1,10}$", examples=["7.3"])
]


@router.get(
    "/v1/channels/{channel}/state/{namespace}",
    summary="Show an entry, its key as base64url",
    responses=problems(NotFound, ChannelStopped, Busy),
)
async def show_state_by_query(asked: AskedChannel, namespace: Namespace, key: KeyQuery) -> models.StateAnswer:
    """The live entry of a key that a path can't carry."""
    raw = base64url(key, "parameter key")
    return await asked.read(lambda: entry_of(asked.channel, namespace, raw))


@router.get(
    "/v1/channels/{channel}/state/{namespace}/{key:path}",
    summary="Show an entry",
    responses=problems(NotFound, ChannelStopped, Busy),
)
async def show_state(asked: AskedChannel, namespace: Namespace, key: KeyPath) -> models.StateAnswer:
    """The live entry of a key as of the last block: value, version, metadata."""
    return await asked.read(lambda: entry_of(asked.channel, namespace, key.encode()))


def entry_of(channel: ChannelView, namespace: str, key: bytes) -> models.StateAnswer:
    """Read an entry.

    Raises:
        NotFound: The key has none.
    """
    view = channel.ledger.view()
    try:
        entry = view.get(StateKey(PUBLIC, namespace, "", key))
    finally:
        close = getattr(view, "close", None)
        if close is not None:
            close()
    if entry is None:
        raise NotFound(f"namespace {shown(namespace)} has no live entry {shown(views.key_text(key))}")
    return views.state_answer(namespace, key, entry)


@router.get(
    "/v1/channels/{channel}/history/{namespace}",
    summary="Show the history of a key, given as base64url",
    responses=problems(BeforeJoining, ChannelStopped, Busy),
)
async def show_history_by_query(
    asked: AskedChannel, namespace: Namespace, key: KeyQuery, limit: Limit = 100, before: Before = None
) -> models.HistoryAnswer:
    """The changes of a key that a path can't carry."""
    return await read_history(asked, namespace, views.key_text(base64url(key, "parameter key")), limit, before)


@router.get(
    "/v1/channels/{channel}/history/{namespace}/{key:path}",
    summary="Show the history of a key",
    responses=problems(BeforeJoining, ChannelStopped, Busy),
)
async def show_history(
    asked: AskedChannel, namespace: Namespace, key: KeyPath, limit: Limit = 100, before: Before = None
) -> models.HistoryAnswer:
    """The changes of a key by valid transactions, newest first, deletes included; none if it was never written.

    Pruning removes nothing from it. A peer that joined from a checkpoint does not know all of it and answers "before
    joining", with the first block of which it knows the changes: never a part of it. A long history comes in pages:
    ask again with `before` set to `next`.
    """
    return await read_history(asked, namespace, key, limit, before)


async def read_history(asked: Asked, namespace: str, key: str, limit: int, before: str | None) -> models.HistoryAnswer:
    """Read one page of a history."""
    start = tuple(int(part) for part in before.split(".")) if before is not None else None

    def read() -> models.HistoryAnswer:
        entries = asked.channel.ledger.history(namespace, key)
        page = list(islice(entries_before(entries, start), limit + 1))
        more = len(page) > limit
        changes = [change_answer(asked.channel, entry, namespace, key) for entry in page[:limit]]
        last = f"{changes[-1].block}.{changes[-1].index}" if more else None
        return models.HistoryAnswer(namespace=namespace, key=key, changes=changes, next=last)

    return await asked.read(read)


def entries_before(entries: Iterator[HistoryEntry], start: tuple[int, ...] | None) -> Iterator[HistoryEntry]:
    """Skip what a page before has shown."""
    return (entry for entry in entries if start is None or (entry.block, entry.index) < start)


def change_answer(channel: ChannelView, entry: HistoryEntry, namespace: str, key: str) -> models.ChangeAnswer:
    """Show one change, with the value from the transaction that made it: valid ones are kept whole."""
    envelope = channel.ledger.envelope(TxPlace(entry.block, entry.index, Verdict.VALID))
    change = render_change(envelope, namespace, key)
    return models.ChangeAnswer(
        block=entry.block,
        index=entry.index,
        tx_id=change["tx_id"],
        timestamp=change["timestamp"],
        delete=change.get("delete", False),
        value=models.Bytes.model_validate(change["value"]) if change.get("value") is not None else None,
    )
