"""Does a config update apply, and what comes of it?  Fabric's rules (common/configtx), from values to values.

Steps, each with its rule in the error:

1. *channel*: the update names this channel;
2. *read set*: every element of the read set is there, at the version that it names;
3. *empty delta*: the write set differs from the read set in some version;
4. for every element of the delta: *mod_policy* is set and a path; a new element has *version* 0; an existing one has
   its version + 1, and the element's *current* mod_policy is satisfied by the signatures (*mod_policy satisfied*);
5. the result is the tree of the current elements overlaid with the delta: what a group does not name is gone. Where the
   orderers have capabilities, an element without mod_policy gets `Admins`: old tools left it out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ledger.core.channel_config import Bundle, ConfigGroup, ConfigPolicy, ConfigValue
from ledger.core.errors import InvalidConfig, PolicyNotSatisfied
from ledger.core.policy.evaluate import SignedData

KEY = re.compile(r"[a-zA-Z0-9.-]+")
KEY_LENGTH_MAX = 249

ROOT = "Channel"
"""Key of the outermost group."""

ORDERER_CAPABILITIES = ("value", (ROOT, "Orderer", "Capabilities"))
MOD_POLICY_DEFAULT = "Admins"

Element = ConfigGroup | ConfigValue | ConfigPolicy
Place = tuple[str, tuple[str, ...]]
"""Kind of an element (`group`, `value`, `policy`) and its path, its own key last."""


@dataclass(frozen=True, slots=True)
class ConfigUpdate:
    """A ConfigUpdateEnvelope with its signatures."""

    channel_id: str
    read_set: ConfigGroup | None
    """What it builds on; None, which is nothing, without the message."""

    write_set: ConfigGroup | None
    signed: tuple[SignedData, ...]
    """Each signature, over its signature header and the update."""


def elements(root: ConfigGroup | None) -> dict[Place, Element]:
    """List every element of a tree by its place; none without a tree.

    Raises:
        InvalidConfig: A key is not well formed.
    """
    found: dict[Place, Element] = {}
    waiting: list[tuple[tuple[str, ...], ConfigGroup]] = [] if root is None else [((ROOT,), root)]
    while waiting:
        path, group = waiting.pop()
        found["group", path] = group
        for kind, members in (("value", group.values), ("policy", group.policies)):
            for key, element in members.items():
                check_key(key, path)
                found[kind, (*path, key)] = element
        for key, child in group.groups.items():
            check_key(key, path)
            waiting.append(((*path, key), child))
    return found


def check_key(key: str, path: tuple[str, ...]) -> None:
    """Check the form of an element's key."""
    if not is_key(key):
        raise InvalidConfig(f"config key in /{'/'.join(path)}", rule="config key", expected=KEY.pattern, found=key)


def is_key(key: str) -> bool:
    """Tell whether a text may be a key."""
    return len(key) <= KEY_LENGTH_MAX and KEY.fullmatch(key) is not None and key not in (".", "..")


def shown_place(place: Place) -> str:
    """Write a place for people."""
    return f"{place[0]} /{'/'.join(place[1])}"


def apply_update(bundle: Bundle, update: ConfigUpdate) -> ConfigGroup:
    """Compute the configuration that an update leads to.

    Args:
        bundle: The configuration in force.
        update: The update and its signatures.

    Returns:
        The new tree.

    Raises:
        InvalidConfig: It does not apply; the rule is one of those above.
    """
    if update.channel_id != bundle.channel_id:
        raise InvalidConfig("config update", rule="channel", expected=bundle.channel_id, found=update.channel_id)
    current = elements(bundle.config.tree)
    read = elements(update.read_set)
    for place, element in read.items():
        existing = current.get(place)
        if existing is None or existing.version != element.version:
            raise InvalidConfig(
                f"config update, {shown_place(place)}", rule="read set",
                expected="no such element" if existing is None else f"version {existing.version}",
                found=f"version {element.version}",
            )  # fmt: skip
    write = elements(update.write_set)
    delta = {
        place: element
        for place, element in write.items()
        if place not in read or read[place].version != element.version
    }
    if not delta:
        raise InvalidConfig("config update", rule="empty delta", expected="a change", found="none")
    for place, element in delta.items():
        check_change(bundle, current, place, element, update.signed)
    result = {**current, **delta}
    assert write.keys() <= result.keys(), "every element of the write set is current or in the delta"
    if ORDERER_CAPABILITIES in result:
        result = {place: with_mod_policy(element) for place, element in result.items()}
    return assemble(result, (ROOT,))


def with_mod_policy(element: Element) -> Element:
    """Give an element without mod_policy the default."""
    return element if element.mod_policy else replace(element, mod_policy=MOD_POLICY_DEFAULT)


def check_change(
    bundle: Bundle, current: Mapping[Place, Element], place: Place, element: Element, signed: tuple[SignedData, ...]
) -> None:
    """Check one changed element (step 4)."""
    subject = f"config update, {shown_place(place)}"
    check_mod_policy(subject, element.mod_policy)
    existing = current.get(place)
    if existing is None:
        if element.version != 0:
            raise InvalidConfig(subject, rule="version", expected=0, found=element.version)
        return
    if element.version != existing.version + 1:
        raise InvalidConfig(subject, rule="version", expected=existing.version + 1, found=element.version)
    path = policy_path(place, existing.mod_policy)
    if not bundle.has_policy(path):
        raise InvalidConfig(subject, rule="mod_policy satisfied", expected=f"a policy at {path}", found="none")
    try:
        bundle.check(path, signed)
    except PolicyNotSatisfied as error:
        raise InvalidConfig(
            subject, rule="mod_policy satisfied", expected=f"{path}: {error.expected}", found=error.found
        ) from error


def check_mod_policy(subject: str, mod_policy: str) -> None:
    """Check that a mod_policy is set and a path."""
    parts = mod_policy.removeprefix("/").split("/")
    if not mod_policy or not all(is_key(part) for part in parts):
        raise InvalidConfig(subject, rule="mod_policy", expected="a policy path", found=mod_policy)


def policy_path(place: Place, mod_policy: str) -> str:
    """Resolve a mod_policy: relative to the containing group, for a group to the group itself."""
    if mod_policy.startswith("/"):
        return mod_policy
    kind, path = place
    group = path if kind == "group" else path[:-1]
    return f"/{'/'.join(group)}/{mod_policy}"


def assemble(found: Mapping[Place, Element], path: tuple[str, ...]) -> ConfigGroup:
    """Build the tree below a path from elements; each group says which members it has."""
    group = found["group", path]
    assert isinstance(group, ConfigGroup), "elements are listed by their kind"
    values: dict[str, ConfigValue] = {}
    policies: dict[str, ConfigPolicy] = {}
    for key in group.values:
        value = found["value", (*path, key)]
        assert isinstance(value, ConfigValue), "elements are listed by their kind"
        values[key] = value
    for key in group.policies:
        policy = found["policy", (*path, key)]
        assert isinstance(policy, ConfigPolicy), "elements are listed by their kind"
        policies[key] = policy
    groups = {key: assemble(found, (*path, key)) for key in group.groups}
    return replace(group, groups=groups, values=values, policies=policies)
