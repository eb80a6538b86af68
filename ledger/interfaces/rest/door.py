"""What happens to every request, whatever it asks?  Bounds on its body, a count, and an answer to every exception.

A body has a largest size and a longest time to arrive, so that no request holds memory or a connection for ever. What
goes wrong behind the door leaves it as a problem document: errors of this package by `problems.problem_of`, wrong
parameters as "invalid request", and our own mistakes as "internal", with the details in the log only.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ledger.core.errors import LedgerError, MalformedMessage, shown
from ledger.interfaces.rest.problems import (
    INTERNAL,
    INVALID_REQUEST,
    METHOD_NOT_ALLOWED,
    NO_SUCH_PATH,
    PROBLEM_JSON,
    Problem,
    problem_of,
)
from ledger.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 64 * 1024
"""Largest body of a request; the largest that any path asks for is a few dozen bytes."""

BODY_TIMEOUT_MS = 10_000
"""Longest time from the head of a request to the end of its body."""


class Door:
    """The outermost layer of the application.

    Args:
        app: What answers.
        metrics: Where requests are counted.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        """Stand before an application."""
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; other kinds of connections pass as they are."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = HTTPStatus.INTERNAL_SERVER_ERROR.value

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, bounded(receive), watched)
        finally:
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.rest_requests.labels(path=path, status=str(status)).inc()


def bounded(receive: Receive) -> Callable[[], Awaitable[Message]]:
    """Bound a request's body in size and time; waiting for the client to go away after it stays unbounded."""
    size_bytes = 0
    is_whole = False
    deadline = asyncio.get_running_loop().time() + BODY_TIMEOUT_MS / 1000

    async def next_part() -> Message:
        nonlocal size_bytes, is_whole
        if is_whole:
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError as error:
            raise MalformedMessage("request body", rule="time", expected=f"within {BODY_TIMEOUT_MS} ms") from error
        size_bytes += len(message.get("body", b""))
        is_whole = message["type"] != "http.request" or not message.get("more_body", False)
        if size_bytes > BODY_BYTES_MAX:
            raise MalformedMessage("request body", rule="size", expected=f"at most {BODY_BYTES_MAX} bytes")
        return message

    return next_part


def add_handlers(app: FastAPI) -> None:
    """Make every exception leave as a problem document."""
    app.add_exception_handler(LedgerError, on_ledger_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(Exception, on_mistake)


def respond(request: Request, problem: Problem) -> JSONResponse:
    """Write a problem document."""
    return JSONResponse(
        problem.document(request.url.path),
        status_code=int(problem.kind.status),
        headers=dict(problem.headers),
        media_type=PROBLEM_JSON,
    )


async def on_ledger_error(request: Request, error: Exception) -> JSONResponse:
    """Answer an error of this package."""
    assert isinstance(error, LedgerError)
    problem = problem_of(error)
    if problem.kind is INTERNAL:
        log.error("rest_request_failed", extra={"path": request.url.path}, exc_info=error)
    return respond(request, problem)


async def on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    """Answer a request whose parameters are wrong, naming each."""
    assert isinstance(error, RequestValidationError)
    wrong = [
        {
            "where": ".".join(str(part) for part in one["loc"]),
            "rule": one["type"],
            "expected": one["msg"],
            "found": shown(one.get("input")),
        }
        for one in error.errors()
    ]
    if request.headers.get("content-type", "").split(";")[0] != "application/json" and error.errors()[0]["loc"] == (
        "body",
    ):
        expected = "a JSON object, sent with `Content-Type: application/json`"
        wrong = [wrong[0] | {"rule": "content type", "expected": expected}]
    first = wrong[0]
    detail = f"{first['where']}: {first['expected']}; found {first['found']}"
    members = {"rule": first["rule"], "expected": first["expected"], "found": first["found"], "errors": wrong}
    return respond(request, Problem(INVALID_REQUEST, detail, members))


async def on_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Answer what the framework refuses by itself: unknown paths, wrong methods, bodies that can't be read."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            problem = Problem(NO_SUCH_PATH, f"this node has no path {shown(request.url.path)}", headers=headers)
        case HTTPStatus.METHOD_NOT_ALLOWED:
            detail = f"{request.url.path} does not take {request.method}"
            problem = Problem(METHOD_NOT_ALLOWED, detail, headers=headers)
        case _:
            cause = error.__cause__
            if isinstance(cause, LedgerError):
                return respond(request, problem_of(cause))
            problem = Problem(INVALID_REQUEST, str(error.detail), headers=headers)
    return respond(request, problem)


async def on_mistake(request: Request, error: Exception) -> JSONResponse:
    """Answer our own mistake: the caller learns that it is one, the log the rest."""
    log.error("rest_request_failed", extra={"path": request.url.path}, exc_info=error)
    return respond(request, Problem(INTERNAL, INTERNAL.title))
