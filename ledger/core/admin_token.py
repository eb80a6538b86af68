"""May the bearer of this token administer this peer?  A short statement, signed by an admin of the peer's organisation.

A token is base64url (no padding) of

    lp("peerledger/admin-token/v1") | lp(peer) | lp(channel) | lp(action) | u64(issued at, ms) | u64(expires at, ms)
      | lp(serialized identity) | lp(signature over everything before it)

It is bound to one peer, one channel and one action, and lives at most five minutes: whoever sees it later, elsewhere or
for something else can't use it. `now` is an argument: the caller knows the hour.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Protocol

from ledger.core.encoding import Reader, lp, u64
from ledger.core.errors import Forbidden, InvalidIdentity, MalformedMessage
from ledger.core.identity import MspManager
from ledger.core.policy.ast import Role, RolePrincipal

TAG = "peerledger/admin-token/v1"

LIFETIME_MS_MAX = 5 * 60 * 1000
"""Longest time between issue and expiry."""

CLOCK_SKEW_MS_MAX = 60 * 1000
"""How far the issuer's clock may run ahead of the peer's."""

TOKEN_BYTES_MAX = 64 * 1024
"""A longer token is not looked at."""


class Signer(Protocol):
    """Whoever can sign in the name of a serialized identity."""

    @property
    def serialized(self) -> bytes:
        """SerializedIdentity."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Sign a message with the identity's key."""
        ...


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says, before anybody believes it."""

    peer: str
    """Name of the peer that it is for."""

    channel: str
    action: str
    issued_at_ms: int
    """Milliseconds since 1970, UTC."""

    expires_at_ms: int
    identity: bytes
    """SerializedIdentity of the admin."""

    signature: bytes = b""

    @property
    def signed_bytes(self) -> bytes:
        """Everything before the signature."""
        texts = lp(TAG) + lp(self.peer) + lp(self.channel) + lp(self.action)
        return texts + u64(self.issued_at_ms) + u64(self.expires_at_ms) + lp(self.identity)


def make_token(
    signer: Signer, *, peer: str, channel: str, action: str, now_ms: int, lifetime_ms: int = LIFETIME_MS_MAX
) -> str:
    """Make the token that lets its bearer do one action on one channel of one peer.

    Args:
        signer: An admin identity of the peer's organisation.
        peer: Name of the peer, as in its configuration.
        channel: Name of the channel.
        action: What it allows, `prune` for example.
        now_ms: The present time in milliseconds since 1970.
        lifetime_ms: How long it is good for.

    Returns:
        The text that goes behind `Authorization: Bearer`.
    """
    assert 0 < lifetime_ms <= LIFETIME_MS_MAX, f"a token lives at most {LIFETIME_MS_MAX} ms"
    token = Token(peer, channel, action, now_ms, now_ms + lifetime_ms, signer.serialized)
    raw = token.signed_bytes + lp(signer.sign(token.signed_bytes))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def check_token(
    text: str, *, peer: str, channel: str, action: str, now_ms: int, msps: MspManager, msp_id: str
) -> Token:
    """Check that a token lets its bearer do `action` on `channel` of this peer, now.

    1. It decodes, and to nothing more (rule "malformed").
    2. It is for this peer ("peer"), this channel ("channel") and this action ("action").
    3. It lives at most five minutes ("lifetime"), was not issued in the future ("issued later") and has not expired
       ("expired").
    4. Its identity is a valid member of an organisation of the channel ("identity").
    5. The signature is that identity's ("signature").
    6. The identity is an admin of the peer's own organisation ("admin").

    Args:
        text: The token.
        peer: This peer's name.
        channel: The channel asked about.
        action: What the bearer wants to do.
        now_ms: The present time in milliseconds since 1970.
        msps: The organisations of the channel by its present configuration.
        msp_id: The peer's organisation.

    Returns:
        What it says.

    Raises:
        MalformedMessage: Step 1.
        InvalidIdentity: Steps 4 and 5.
        Forbidden: Steps 2, 3 and 6.
    """
    # 1.
    token = decode_token(text)

    # 2.
    for rule, expected, found in (
        ("peer", peer, token.peer),
        ("channel", channel, token.channel),
        ("action", action, token.action),
    ):
        if expected != found:
            raise Forbidden("admin token", rule=rule, expected=expected, found=found)

    # 3.
    lifetime_ms = token.expires_at_ms - token.issued_at_ms
    if not 0 <= lifetime_ms <= LIFETIME_MS_MAX:
        raise Forbidden("admin token", rule="lifetime", expected=f"at most {LIFETIME_MS_MAX} ms", found=lifetime_ms)
    if token.issued_at_ms > now_ms + CLOCK_SKEW_MS_MAX:
        raise Forbidden("admin token", rule="issued later", expected=f"at most {now_ms}", found=token.issued_at_ms)
    if now_ms >= token.expires_at_ms:
        raise Forbidden("admin token", rule="expired", expected=f"before {token.expires_at_ms}", found=now_ms)

    # 4.
    try:
        identity = msps.deserialize(token.identity)
        msps.validate(identity)
    except InvalidIdentity as error:
        raise InvalidIdentity("admin token", rule="identity", found=str(error)) from error

    # 5.
    if not identity.verify(token.signed_bytes, token.signature):
        raise InvalidIdentity("admin token", rule="signature", expected="the signer's over the token")

    # 6.
    if not msps.satisfies(identity, RolePrincipal(msp_id, Role.ADMIN)):
        raise Forbidden("admin token", rule="admin", expected=f"an admin of {msp_id}", found=identity.msp_id)
    return token


def decode_token(text: str) -> Token:
    """Read a token without believing it.

    Raises:
        MalformedMessage: It is not one token exactly.
    """
    if len(text) > TOKEN_BYTES_MAX:
        raise MalformedMessage(
            "admin token", rule="malformed", expected=f"at most {TOKEN_BYTES_MAX} characters", found=len(text)
        )
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        reader = Reader(raw, "admin token")
        tag = reader.text()
        texts = [reader.text() for _ in range(3)]
        token = Token(texts[0], texts[1], texts[2], reader.u64(), reader.u64(), reader.lp(), reader.lp())
        reader.done()
    except (binascii.Error, ValueError) as error:
        raise MalformedMessage("admin token", rule="malformed", expected="base64url") from error
    except MalformedMessage as error:
        raise MalformedMessage("admin token", rule="malformed", found=str(error)) from error
    if tag != TAG:
        raise MalformedMessage("admin token", rule="malformed", expected=TAG, found=tag)
    return token


__all__ = ["CLOCK_SKEW_MS_MAX", "LIFETIME_MS_MAX", "Signer", "Token", "check_token", "decode_token", "make_token"]
