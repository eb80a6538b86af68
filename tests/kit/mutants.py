"""Proofs with one thing changed: a bit, a byte, a member, an item, an order."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

Place = tuple[str | int, ...]


def places(document: Any, path: Place = ()) -> Iterator[Place]:
    """Every place in a JSON document below its root."""
    inside = document.items() if isinstance(document, dict) else enumerate(document)
    for name, value in inside:
        yield (*path, name)
        if isinstance(value, dict | list):
            yield from places(value, (*path, name))


def mutant(file: bytes, random_: random.Random) -> tuple[bytes, str]:
    """Change one thing, so that the document is another one; give it and what was done."""
    while True:
        made, what = _in_bytes(file, random_) if random_.random() < 0.25 else _in_document(file, random_)
        try:
            if json.dumps(json.loads(made), sort_keys=True) != json.dumps(json.loads(file), sort_keys=True):
                return made, what
        except ValueError:
            return made, what


def _in_bytes(file: bytes, random_: random.Random) -> tuple[bytes, str]:
    raw, at = bytearray(file), random_.randrange(len(file))
    match random_.randrange(4):
        case 0:
            del raw[at]
        case 1:
            raw.insert(at, raw[at])
        case _:
            raw[at] ^= 1 << random_.randrange(8)
    return bytes(raw), f"byte {at}"


def _in_document(file: bytes, random_: random.Random) -> tuple[bytes, str]:
    document = json.loads(file)
    place = random_.choice(list(places(document)))
    around = document
    for step in place[:-1]:
        around = around[step]
    name: Any = place[-1]
    what = random_.choice(("change", "change", "cut", "delete", "repeat", "reorder"))
    match what:
        case "delete":
            del around[name]
        case "repeat" if isinstance(around, list):
            around.insert(name, copy.deepcopy(around[name]))
        case "repeat":
            around[f"{name}2"] = around[name]
        case "reorder" if isinstance(around, list):
            random_.shuffle(around)
        case "reorder":
            other = random_.choice(list(around))
            around[name], around[other] = around[other], around[name]
        case _:
            around[name] = _changed(around[name], what == "cut", random_)
    return json.dumps(document, ensure_ascii=False).encode(), f"{what} {'/'.join(map(str, place))}"


def _changed(value: Any, is_cut: bool, random_: random.Random) -> Any:
    match value:
        case str() if value:
            try:
                raw = bytearray.fromhex(value)
            except ValueError:
                return value[1:] if is_cut else value + "x"
            at = random_.randrange(len(raw))
            if is_cut:
                del raw[at]
            else:
                raw[at] ^= 1 << random_.randrange(8)
            return raw.hex()
        case int():
            return random_.choice((value + 1, value - 1, 0, 2**64 - 1, value ^ 1, float(value), bool(value)))
        case list():
            return value[:-1] if is_cut else value[::-1]
        case dict():
            return {}
        case _:
            return "00" if value == "" else 0
