"""Which chains lead from a certificate to a root?  As Go's verifier builds them for Fabric's MSPs (crypto/x509).

Everything is judged one second after the leaf's NotBefore, never today. A chain is good where

1. the leaf is in time, none of its critical extensions is unknown, and its own path length is not exceeded;
2. every certificate is signed by the next, which may sign certificates, is in time, has no unknown critical extension,
   allows the number of authorities below it, and is not in the chain already (the same name, key and alternative
   names: so cross-certificates make no loop);
3. the last one is a root; a root itself is a chain of one;
4. every certificate that names extended usages allows server authentication (what Go asks for where nothing is named);
5. no authority constrains names where the leaf has none but a common name that looks like a host's (Fabric's own rule).

Whether alternative names keep to the constraints of an authority is not looked at.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from ledger.core.certificates import Certificate, is_signed_by
from ledger.core.errors import InvalidIdentity

Chain = tuple[Certificate, ...]
"""From the leaf to the root."""

SIGNATURE_CHECKS_MAX = 100
"""Signatures that are checked for one certificate; what is left then is not looked at."""

ACCEPTED_USAGES = frozenset({"2.5.29.37.0", "1.3.6.1.5.5.7.3.1"})
"""Any usage, and server authentication."""

_HOST = re.compile(r"(?:\*|[A-Za-z0-9_:][A-Za-z0-9_:-]*)(?:\.[A-Za-z0-9_:][A-Za-z0-9_:-]*)*\.?")


class Authorities:
    """The certificate authorities of one organisation, for one purpose.

    Args:
        owner: Whose they are, for errors.
        roots: Certificates that are trusted; one that comes twice counts once.
        intermediates: Certificates that may stand between.
    """

    def __init__(self, owner: str, roots: Iterable[Certificate], intermediates: Iterable[Certificate] = ()) -> None:
        """Take the certificates."""
        self.owner = owner
        self.roots = _distinct(roots)
        self.intermediates = _distinct(intermediates)

    def only_chain(self, leaf: Certificate) -> Chain:
        """Give the one chain from a certificate to a root.

        Raises:
            InvalidIdentity: There is none, or more than one: it would not be clear who answers for it.
        """
        found = self.chains(leaf)
        if len(found) != 1:
            raise InvalidIdentity(
                f"certificate {leaf.common_name!r} of {self.owner}",
                rule="certificate chain", expected="exactly one chain to the roots", found=len(found),
            )  # fmt: skip
        if _lacks_names(found[0]):
            raise InvalidIdentity(
                f"certificate {leaf.common_name!r} of {self.owner}",
                rule="name constraints", expected="alternative names", found="a host as common name",
            )  # fmt: skip
        return found[0]

    def chains(self, leaf: Certificate) -> list[Chain]:
        """List every good chain of a certificate (steps 1 to 4)."""
        at = leaf.not_before + timedelta(seconds=1)
        if not _is_good(leaf, at, below=-1):
            return []
        if any(root.der == leaf.der for root in self.roots):
            found: list[Chain] = [(leaf,)]
        else:
            found = self._extended((leaf,), at, _Budget(SIGNATURE_CHECKS_MAX))
        return [chain for chain in found if all(_allows_usage(member) for member in chain)]

    def _extended(self, chain: Chain, at: datetime, budget: "_Budget") -> list[Chain]:
        """List the chains that begin with `chain`; its length is bounded by the signatures that may be checked."""
        found = [(*chain, root) for root in self.roots if _may_follow(root, chain, at, budget)]
        for authority in self.intermediates:
            if _may_follow(authority, chain, at, budget):
                found += self._extended((*chain, authority), at, budget)
        return found


class _Budget:
    """How many signatures may still be checked."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self) -> bool:
        """Take one; tell whether there was one."""
        self.left -= 1
        return self.left >= 0


def _may_follow(authority: Certificate, chain: Chain, at: datetime, budget: _Budget) -> bool:
    """Tell whether an authority issued the last certificate of a chain and may stand there (step 2)."""
    if authority.subject != chain[-1].issuer or authority.public_key is None or _is_in(authority, chain):
        return False
    return budget.spend() and is_signed_by(chain[-1], authority) and _is_good(authority, at, below=len(chain) - 1)


def _is_good(certificate: Certificate, at: datetime, *, below: int) -> bool:
    """Tell whether a certificate is in time, understood, and allows so many authorities below it."""
    if certificate.unhandled or not certificate.not_before <= at <= certificate.not_after:
        return False
    return certificate.path_length_max is None or below <= certificate.path_length_max


def _is_in(authority: Certificate, chain: Chain) -> bool:
    for member in chain:
        if (authority.subject, authority.key_info) != (member.subject, member.key_info):
            continue
        if authority.alternative_names == member.alternative_names:
            return True
        if authority.alternative_names is None or member.alternative_names is None:
            return False
    return False


def _allows_usage(certificate: Certificate) -> bool:
    return not certificate.usages or bool(certificate.usages & ACCEPTED_USAGES)


def _lacks_names(chain: Sequence[Certificate]) -> bool:
    """Tell whether an authority constrains names that the leaf gives as its common name only (step 5)."""
    leaf = chain[0]
    if leaf.alternative_names is not None or not any(each.is_name_constrained for each in chain[1:]):
        return False
    return _HOST.fullmatch(leaf.common_name) is not None


def _distinct(certificates: Iterable[Certificate]) -> Chain:
    return tuple({each.der: each for each in certificates}.values())


__all__ = ["Authorities", "Chain"]
