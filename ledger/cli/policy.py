"""What does a policy come to?  Said in words: who satisfies it, who can block it, who could forge it."""

from dataclasses import asdict
from pathlib import Path

from ledger.cli.output import out, print_json
from ledger.core.errors import InvalidPolicy, InvalidSetting, NotFound
from ledger.core.policy import extended
from ledger.core.policy.explain import Explanation, explain_extended, explain_path, explain_signature_policy
from ledger.core.policy.parse import parse_policy
from ledger.core.policy.text import policy_text
from ledger.node.files import read
from ledger.node.rules import genesis_bundle

SHOWN_MAX = 12
"""Sets of each kind that are shown; all of them are in the JSON document."""


def explain(
    policy: str | None = None, /, *, genesis: Path | None = None, path: str | None = None, json: bool = False
) -> None:
    """Explain a policy: the smallest sets that satisfy it, who can block it, who could forge it.

    Args:
        policy: Its text, in the syntax of endorsement policies (AND, OR, OutOf) or of checkpoint policies (any(k),
            weighted(t, principal=w, ...), 'Org.peer#NAME').
        genesis: A channel's genesis block, to explain a policy of its configuration.
        path: The path of that policy, such as /Channel/Application/Endorsement.
        json: Print all sets as JSON.
    """
    title, explanation = explained(policy, genesis, path)
    if json:
        return print_json({"policy": title} | asdict(explanation))
    out.print(title, markup=False)
    if not explanation.smallest:
        return out.print("Nobody can satisfy it.")
    if explanation.fewest == 0:
        return out.print("It is satisfied without any signature.")
    show("Enough together", explanation.smallest)
    show("Can block it", explanation.blocking)
    smallest = in_words(explanation.smallest[0])
    out.print(f"\nWhoever holds the keys of one of the first could forge what it protects; fewest: {smallest}.")
    if not explanation.complete:
        out.print("There are more sets than were looked at; these are the smallest.")
    return None


def explained(policy: str | None, genesis: Path | None, path: str | None) -> tuple[str, Explanation]:
    """Find the policy and explain it.

    Raises:
        InvalidSetting: It was not said which one.
        InvalidPolicy: The text is none.
        NotFound: The configuration has no such policy.
    """
    if policy is not None:
        try:
            return policy, explain_signature_policy(parse_policy(policy))
        except InvalidPolicy:
            return policy, explain_extended(extended.parse(policy))
    if genesis is None or path is None:
        raise InvalidSetting("policy", rule="which policy", expected="its text, or --genesis and --path", found="none")
    bundle = genesis_bundle(read(genesis))
    found = bundle.policy(path)
    if found is None:
        known = ", ".join(sorted(bundle.config.policies))
        raise NotFound(f"the configuration of {bundle.channel_id} has no policy {path}; it has: {known}")
    return f"{path}: {policy_text(found)}", explain_path(bundle.config, path)


def show(title: str, sets: tuple[tuple[str, ...], ...]) -> None:
    """Show sets, one a line."""
    out.print(f"\n{title}:", markup=False)
    for one in sets[:SHOWN_MAX]:
        out.print(f"  {in_words(one)}", markup=False)
    if len(sets) > SHOWN_MAX:
        out.print(f"  … and {len(sets) - SHOWN_MAX} more")


def in_words(names: tuple[str, ...]) -> str:
    """Write a set."""
    return " and ".join(names)
