"""Who may administer a peer: a token is good for one peer, channel and action, for five minutes, from an own admin."""

import base64
from collections.abc import Callable
from dataclasses import replace

import pytest

from ledger.core.admin_token import (
    CLOCK_SKEW_MS_MAX,
    LIFETIME_MS_MAX,
    TAG,
    Token,
    check_token,
    decode_token,
    make_token,
)
from ledger.core.encoding import lp
from ledger.core.errors import Refused
from tests.kit.checkpointing import default_bundle, make_bundle, organisations
from tests.kit.organisations import Signer, make_organisation

ORG1, ORG2 = organisations(2)
MSPS = default_bundle(2).msps
NOW = 1_790_000_000_000
PEER, CHANNEL, ACTION = "peer0.org1.example.com", "mychannel", "prune"


def made(signer: Signer = ORG1.admin, *, peer: str = PEER, channel: str = CHANNEL, action: str = ACTION) -> str:
    return make_token(signer, peer=peer, channel=channel, action=action, now_ms=NOW)


def check(text: str, now_ms: int = NOW) -> Token:
    return check_token(
        text, peer=PEER, channel=CHANNEL, action=ACTION, now_ms=now_ms, msps=MSPS, msp_id="Org1MSP"
    )  # fmt: skip


def refusal(text: str, now_ms: int = NOW) -> tuple[str, str]:
    """Give the kind of the refusal and its rule."""
    with pytest.raises(Refused) as refused:
        check(text, now_ms)
    return type(refused.value).__name__, refused.value.rule


def signed(token: Token, signer: Signer = ORG1.admin) -> str:
    """Spell a token out, whatever it says."""
    token = replace(token, identity=signer.serialized)
    raw = token.signed_bytes + lp(signer.sign(token.signed_bytes))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


HONEST = Token(PEER, CHANNEL, ACTION, NOW, NOW + LIFETIME_MS_MAX, b"")


def test_admin_of_the_peers_organisation_may_do_the_action_now() -> None:
    token = check(made())
    assert (token.peer, token.channel, token.action) == (PEER, CHANNEL, ACTION)
    assert token.identity == ORG1.admin.serialized
    assert decode_token(made(ORG2.admin)).identity == ORG2.admin.serialized


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"peer": "peer1.org1.example.com"}, "peer"),
        ({"channel": "otherchannel"}, "channel"),
        ({"action": "join"}, "action"),
    ],
)
def test_token_for_something_else_is_refused(change: dict[str, str], rule: str) -> None:
    about = {"peer": PEER, "channel": CHANNEL, "action": ACTION} | change
    assert refusal(made(peer=about["peer"], channel=about["channel"], action=about["action"])) == ("Forbidden", rule)


def test_token_is_good_until_its_last_millisecond() -> None:
    assert check(made(), NOW + LIFETIME_MS_MAX - 1)
    assert refusal(made(), NOW + LIFETIME_MS_MAX) == ("Forbidden", "expired")


def test_clock_of_the_issuer_may_run_ahead_a_little() -> None:
    assert check(made(), NOW - CLOCK_SKEW_MS_MAX)
    assert refusal(made(), NOW - CLOCK_SKEW_MS_MAX - 1) == ("Forbidden", "issued later")


@pytest.mark.parametrize(("lifetime_ms", "good"), [(1, True), (LIFETIME_MS_MAX, True), (LIFETIME_MS_MAX + 1, False)])
def test_lifetime_is_at_most_five_minutes(lifetime_ms: int, good: bool) -> None:
    text = signed(replace(HONEST, expires_at_ms=NOW + lifetime_ms))
    if good:
        assert check(text)
    else:
        assert refusal(text) == ("Forbidden", "lifetime")


def test_token_that_expires_before_it_was_issued_has_no_lifetime() -> None:
    assert refusal(signed(replace(HONEST, issued_at_ms=NOW + 1, expires_at_ms=NOW))) == ("Forbidden", "lifetime")


@pytest.mark.parametrize("signer", [ORG1.client, ORG1.peer, ORG2.admin], ids=["client", "peer", "admin of another"])
def test_who_is_no_admin_of_the_peers_organisation_is_refused(signer: Signer) -> None:
    assert refusal(made(signer)) == ("Forbidden", "admin")


def test_stranger_is_refused_by_identity() -> None:
    assert refusal(made(make_organisation("Org1MSP").admin)) == ("InvalidIdentity", "identity")
    assert refusal(made(make_organisation("Org9MSP").admin)) == ("InvalidIdentity", "identity")


def test_revoked_admin_is_refused_by_identity() -> None:
    organisation = make_organisation("Org1MSP")
    organisation.revoked.append(organisation.admin.certificate)
    with pytest.raises(Refused) as refused:
        check_token(
            made(organisation.admin), peer=PEER, channel=CHANNEL, action=ACTION, now_ms=NOW,
            msps=make_bundle((organisation, ORG2)).msps, msp_id="Org1MSP",
        )  # fmt: skip
    assert refused.value.rule == "identity"


@pytest.mark.parametrize(
    "other",
    [
        replace(HONEST, peer="other"),
        replace(HONEST, channel="other"),
        replace(HONEST, action="other"),
        replace(HONEST, issued_at_ms=NOW - 1),
        replace(HONEST, expires_at_ms=NOW + 1),
    ],
    ids=["peer", "channel", "action", "issued at", "expires at"],
)
def test_no_part_of_a_token_can_be_changed(other: Token) -> None:
    """Whatever is changed to what the peer wants to read, the signature is over what was there before."""
    old = replace(other, identity=ORG1.admin.serialized)
    changed = replace(HONEST, identity=old.identity)
    raw = changed.signed_bytes + lp(ORG1.admin.sign(old.signed_bytes))
    text = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    assert refusal(text) == ("InvalidIdentity", "signature")


def test_identity_can_not_be_exchanged_for_an_admins() -> None:
    token = replace(HONEST, identity=ORG1.admin.serialized)
    raw = token.signed_bytes + lp(ORG1.client.sign(token.signed_bytes))
    assert refusal(base64.urlsafe_b64encode(raw).decode().rstrip("=")) == ("InvalidIdentity", "signature")


def raw_of(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def text_of(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: "not a token!",
        lambda text: text[:-4],
        lambda text: text_of(raw_of(text) + b"\0"),
        lambda text: text_of(raw_of(text)[1:]),
        lambda text: text_of(raw_of(text).replace(TAG.encode(), TAG.replace("v1", "v2").encode())),
        lambda text: "A" * (64 * 1024 + 1),
        lambda text: text + "é",
    ],
    ids=["empty", "no base64", "cut", "longer", "shifted", "another version", "too long", "no ascii"],
)
def test_text_that_is_no_token_is_malformed(spoil: Callable[[str], str]) -> None:
    assert refusal(spoil(made())) == ("MalformedMessage", "malformed")
