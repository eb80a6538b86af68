"""The OpenAPI document, the docs page made from it, and requests that nobody would make on purpose."""

import re
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route
from starlette.testclient import TestClient

from ledger.interfaces.rest import backups, blocks, checkpoints, health, proofs, state, transactions
from ledger.interfaces.rest.app import create_app
from tests.kit.rest_node import CHANNEL, GOOD_TOKEN, make_node

NODE = make_node()
CLIENT = TestClient(create_app(NODE), raise_server_exceptions=False)
"""One application for all; what is asked here may prune its channel, which changes none of the answers looked at."""

DOCUMENT: dict[str, Any] = CLIENT.get("/openapi.json").json()
OPERATIONS = [
    (method, path, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
]
NAMES = [f"{method} {path}" for method, path, _ in OPERATIONS]


def test_the_document_holds_every_path_that_is_served() -> None:
    served = {
        route.path.replace(":path}", "}")
        for module in (backups, blocks, transactions, state, checkpoints, proofs, health)
        for route in module.router.routes
        if isinstance(route, Route)
    }
    assert served == set(DOCUMENT["paths"])
    expected: tuple[str, ...] = (
        "",
        "/blocks/{number}",
        "/vblocks/{number}",
        "/transactions/{tx_id}",
        "/state/{namespace}/{key}",
    )
    expected += (
        "/history/{namespace}/{key}",
        "/checkpoints",
        "/checkpoints/{number}",
        "/prune",
        "/receipts",
        "/backup",
    )
    assert {f"/v1/channels/{{channel}}{path}" for path in expected} <= served


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=NAMES)
def test_every_operation_is_documented_with_its_answers(method: str, path: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]
    assert operation["tags"]
    assert all(one["description"] for one in operation.get("parameters", []))
    (answer,) = (one for status, one in operation["responses"].items() if status in ("200", "202"))
    assert answer["content"], f"{path} has no model"
    for media, content in answer["content"].items():
        assert content["schema"], f"{path} has no schema for {media}"
    if path.startswith("/v1"):
        problems = [status for status in operation["responses"] if status not in ("200", "202")]
        assert {"400", "503", "default"} <= set(problems)
        assert "422" not in problems, "the framework's own form of errors is never sent"
        for status in problems:
            content = operation["responses"][status]["content"]["application/problem+json"]
            assert content["schema"] == {"$ref": "#/components/schemas/ProblemDocument"}


def test_the_document_refers_to_nothing_that_is_not_in_it() -> None:
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert set(re.findall(r'"\$ref": ?"([^"]+)"', CLIENT.get("/openapi.json").text)) <= known


def test_operation_ids_are_plain_and_distinct() -> None:
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[a-z_]+", one) for one in ids)


def test_only_administration_asks_for_a_token() -> None:
    locked = {(method, path) for method, path, operation in OPERATIONS if operation.get("security")}
    prune = "/v1/channels/{channel}/prune"
    backup = "/v1/channels/{channel}/backup"
    abandon = "/v1/channels/{channel}/checkpoints/{number}/abandon"
    assert locked == {("get", prune), ("post", prune), ("get", backup), ("post", backup), ("post", abandon)}


def test_the_docs_page_shows_every_operation_and_loads_nothing() -> None:
    page = CLIENT.get("/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for method, path, operation in OPERATIONS:
        assert path in page.text
        assert f"<b>{method.upper()}</b>" in page.text
        assert f"id='{operation['operationId']}'" in page.text
    assert not re.search(r"<script|<link|<img|src=|@import|url\(|https?://", page.text)
    assert CLIENT.get("/", follow_redirects=False).headers["location"] == "/docs"


ODD = st.one_of(
    st.text(max_size=30),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["", ".", "..", "%00", "\x00", "ä/ö", "a b", "null", "NaN", "1e9", "0x7", CHANNEL, "cc1", "٣"]),
)
"""Parts of paths and values of parameters."""


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str]:
    """A method and address: a known path with odd parts, and odd parameters."""
    method, template, operation = draw(st.sampled_from(OPERATIONS))
    channel = draw(st.one_of(st.just(CHANNEL), ODD))
    path = template.replace("{channel}", quote(channel, safe=""))
    path = re.sub(r"{\w+}", lambda _: quote(draw(ODD), safe=draw(st.sampled_from(["", "/"]))), path)
    names = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"]
    given = draw(st.dictionaries(st.sampled_from([*names, "other"]), ODD, max_size=3))
    if "wait_ms" in given:
        given["wait_ms"] = draw(st.sampled_from(["0", "1", "-1", "x", "61000", "9" * 30]))
    return method, f"{path}?{urlencode(given)}"


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(request=requests())
def test_no_path_or_parameter_makes_the_node_fail(request: tuple[str, str]) -> None:
    """Goal: whatever is asked is answered or refused.  Method: known paths with parts that fit and parts that don't."""
    method, address = request
    headers = {"Authorization": f"Bearer {GOOD_TOKEN}"}
    answer = CLIENT.request(method, address, headers=headers, json={} if method == "post" else None)
    assert answer.status_code < 500 or answer.json()["type"] == "/problems/outcome-unknown", (address, answer.text)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status_code


@settings(max_examples=100, deadline=None)
@given(raw=st.binary(max_size=200))
def test_no_body_makes_the_node_fail(raw: bytes) -> None:
    headers = {"Authorization": f"Bearer {GOOD_TOKEN}", "Content-Type": "application/json"}
    answer = CLIENT.post(f"/v1/channels/{CHANNEL}/prune", content=raw, headers=headers)
    assert answer.status_code in {200, 400}
