"""Paths of transactions: what became of an id, now or within some time, and its envelope.

A transaction is committed or it is not yet: there is no third answer, and a wait that ends before says "unknown
outcome", never "failed". An invalid transaction whose body was pruned is answered at once, with its code.
"""

import asyncio
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from ledger.core.errors import BeforeJoining, Busy, ChannelStopped, NotFound, Pruned, shown
from ledger.core.names import TxId
from ledger.core.state import TxPlace
from ledger.interfaces.rest import models, views
from ledger.interfaces.rest.asking import (
    OCTETS,
    Accept,
    Asked,
    AskedChannel,
    Format,
    bytes_or_json,
    problems,
    wants_bytes,
)
from ledger.interfaces.rest.ports import ChannelView
from ledger.interfaces.rest.problems import OutcomeUnknown
from ledger.wire.render import render_envelope

router = APIRouter()

WAIT_MS_MAX = 60_000
"""Longest wait for a transaction."""

Id = Annotated[str, Path(description="Transaction id as claimed in the envelope's header.", examples=["7bfd5e34…"])]


@router.get(
    "/v1/channels/{channel}/transactions/{tx_id:path}/envelope",
    tags=["transactions"],
    summary="Show a transaction's envelope",
    response_model=models.EnvelopeAnswer,
    responses=bytes_or_json() | problems(NotFound, Pruned, BeforeJoining, ChannelStopped, Busy),
)
async def show_envelope(
    asked: AskedChannel,
    tx_id: Id,
    place: Annotated[int, Query(description="Which of the id's places, counted from 0.", ge=0, lt=2**31)] = 0,
    format: Format = None,
    accept: Accept = "",
) -> Response:
    """The signed envelope; of an invalid transaction at or below the prune point the answer is "pruned".

    A peer that joined from a checkpoint has none below it, and says so.
    As protobuf it is the serialized `common.Envelope`, byte for byte.
    """

    def read() -> bytes:
        ledger = asked.channel.ledger
        places = known_places(asked.channel, tx_id)
        if place >= len(places):
            raise NotFound(f"transaction {shown(tx_id)} has {len(places)} places, none numbered {place}")
        return ledger.envelope(places[place])

    if wants_bytes(format, accept):
        return Response(await asked.read(read), media_type=OCTETS)
    return await asked.written(lambda: models.EnvelopeAnswer.model_validate(render_envelope(read())))


@router.get(
    "/v1/channels/{channel}/transactions/{tx_id:path}",
    tags=["transactions"],
    summary="Say what became of a transaction",
    response_model=models.TransactionAnswer,
    responses=problems(NotFound, OutcomeUnknown, ChannelStopped, Busy),
)
async def show_transaction(
    asked: AskedChannel,
    tx_id: Id,
    wait_ms: Annotated[
        int, Query(description="How long to wait for its commit, in milliseconds; 0 asks once.", ge=0, le=WAIT_MS_MAX)
    ] = 0,
) -> models.TransactionAnswer:
    """Verdict, block and index of a transaction; of an invalid one the rule that refused it.

    Without `wait_ms` an unknown id is "not found". With it, the answer comes as soon as the transaction is committed;
    when the time is over the outcome is unknown, and asking again with the same id is the way to learn it.
    """
    if wait_ms == 0:
        return await asked.read(lambda: transaction_now(asked.channel, tx_id))
    found = None
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_ms / 1000):
            found = await transaction_when_committed(asked, tx_id)
    if found is None:
        raise OutcomeUnknown(tx_id, height=asked.channel.ledger.height, waited_ms=wait_ms)
    return found


async def transaction_when_committed(asked: Asked, tx_id: str) -> models.TransactionAnswer:
    """Wait for a transaction without limit: look, wait for the next block, look again.

    The height is taken before the look, so a block that is committed between look and wait ends the wait at once.
    """
    while True:
        height = asked.channel.ledger.height
        with suppress(NotFound):
            return await asked.read(lambda: transaction_now(asked.channel, tx_id))
        await asked.channel.wait_above(height)


def transaction_now(channel: ChannelView, tx_id: str) -> models.TransactionAnswer:
    """Look a transaction up.

    Raises:
        NotFound: No block holds its id.
    """
    first_block, joined_at = channel.ledger.first_block, channel.ledger.joined_at
    places = [
        views.place_answer(place, channel.faults(place.block), first_block, joined_at)
        for place in known_places(channel, tx_id)
    ]
    return views.transaction_answer(tx_id, places)


def known_places(channel: ChannelView, tx_id: str) -> tuple[TxPlace, ...]:
    """Return the places of an id.

    Raises:
        NotFound: No block holds it.
    """
    places = channel.ledger.places(TxId(tx_id))
    if not places:
        raise NotFound(f"no block of this channel holds transaction {shown(tx_id)}")
    return places
