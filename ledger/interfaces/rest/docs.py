"""How does a person learn the interface?  Pages written from the OpenAPI document, with nothing from elsewhere.

The usual pages load scripts from a content network; a ledger's peer often has no way out, so these are plain HTML.
"""

from collections.abc import Sequence
from html import escape
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse

from ledger.core.errors import NotFound, shown
from ledger.interfaces.rest.problems import ALL_KINDS, PROBLEM_BASE

router = APIRouter(include_in_schema=False)

HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
"""The pages load nothing; browsers are told to see to it."""

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 13px; }
h2 { border-bottom: 1px solid #8886; margin-top: 2.5rem; text-transform: capitalize; }
details { border: 1px solid #8886; border-radius: 4px; margin: .6rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; }
summary b { display: inline-block; min-width: 3.2rem; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid #8884; padding: .25rem .6rem .25rem 0; text-align: left; vertical-align: top; }
"""


@router.get("/")
async def front() -> RedirectResponse:
    """Lead whoever opens the address in a browser to the docs."""
    return RedirectResponse("/docs")


@router.get("/openapi.json")
async def openapi_document(request: Request) -> JSONResponse:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())


@router.get("/docs")
async def docs_page(request: Request) -> HTMLResponse:
    """The docs page: every path with its parameters and answers."""
    return HTMLResponse(page_of(request.app.openapi()), headers=HEADERS)


@router.get(PROBLEM_BASE + "{slug}")
async def problem_page(slug: str) -> Response:
    """Explain a kind of problem: what its `type` leads to."""
    for kind in ALL_KINDS:
        if kind.slug == slug:
            body = f"<p>Status {int(kind.status)} {escape(kind.status.phrase)}.</p><p>{escape(kind.hint)}</p>"
            return HTMLResponse(html(kind.title, body), headers=HEADERS)
    raise NotFound(f"there is no kind of problem {shown(slug)}")


def page_of(document: dict[str, Any]) -> str:
    """Write the docs page from an OpenAPI document."""
    info = document["info"]
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = operation.get("tags", ["other"])[0]
            by_tag.setdefault(tag, []).append(operation_html(path, method, operation))
    body = [f"<p>{escape(info['description'])} <a href='/openapi.json'>OpenAPI document</a></p>"]
    body += [f"<h2>{escape(tag)}</h2>{''.join(operations)}" for tag, operations in by_tag.items()]
    body.append("<h2>models</h2>")
    body += [model_html(name, schema) for name, schema in document["components"]["schemas"].items()]
    return html(f"{info['title']} {info['version']}", "\n".join(body))


def html(title: str, body: str) -> str:
    """Put a body into a page."""
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )


def operation_html(path: str, method: str, operation: dict[str, Any]) -> str:
    """Show one operation."""
    lock = " (admin token)" if operation.get("security") else ""
    head = f"<b>{method.upper()}</b> <code>{escape(path)}</code> {escape(operation['summary'])}{lock}"
    parts = [f"<p>{escape(operation.get('description', ''))}</p>"]
    rows = [
        (one["name"], one["in"], kind_of(one["schema"]), one.get("description", ""))
        for one in operation.get("parameters", [])
    ]
    if rows:
        parts.append(table(("parameter", "in", "kind", ""), rows))
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body: {escape(media)}, {kind_of(content['schema'])}</p>")
    answers = [
        (status, answer["description"], ", ".join(f"{m}: {kind_of(c.get('schema', {}))}" for m, c in contents(answer)))
        for status, answer in operation["responses"].items()
    ]
    parts.append(table(("status", "when", "content"), answers))
    return f"<details id='{escape(operation['operationId'])}'><summary>{head}</summary>{''.join(parts)}</details>"


def contents(answer: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """List an answer's media types with their schemas."""
    return list(answer.get("content", {}).items())


def model_html(name: str, schema: dict[str, Any]) -> str:
    """Show one model."""
    rows = [
        (field, kind_of(one), one.get("description", ""), ", ".join(str(value) for value in one.get("examples", [])))
        for field, one in schema.get("properties", {}).items()
    ]
    inner = table(("field", "kind", "", "example"), rows)
    about = escape(schema.get("description", ""))
    return f"<details id='{escape(name)}'><summary><code>{escape(name)}</code> {about}</summary>{inner}</details>"


def kind_of(schema: dict[str, Any]) -> str:
    """Name the kind of a value in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " or ".join(kind_of(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Write a table, every cell escaped."""
    titles = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{body}</table>"
