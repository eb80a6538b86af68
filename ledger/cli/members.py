"""Who signs for a command?  A user or admin of a local network, or an identity in an MSP folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ledger.cli.connection import Target
from ledger.core.errors import InvalidSetting, NotFound
from ledger.storage.msp_folder import SigningIdentity, load_signing_identity


@Parameter(name="*")
@dataclass(frozen=True)
class Signatory:
    """The identity that signs."""

    user: Annotated[str | None, Parameter(env_var="PEERLEDGER_USER")] = None
    """Name of a user of the peer's organisation in the network; `User1` or, for administration, `Admin` by default."""

    msp_dir: Path | None = None
    """MSP folder of the identity, instead of a network's user."""

    msp_id: str | None = None
    """MSP ID of its organisation, with --msp-dir."""

    def load(self, target: Target, default: str) -> SigningIdentity:
        """Load the identity.

        Args:
            target: The peer whose organisation's user signs.
            default: Name of the user where none was named.

        Raises:
            InvalidSetting: It was not said who signs.
            NotFound: The network has no such user.
        """
        if self.msp_dir is not None:
            if self.msp_id is None:
                raise InvalidSetting("identity", rule="which organisation", expected="--msp-id", found="none")
            return load_signing_identity(self.msp_dir, self.msp_id)
        settings = target.settings()
        assert target.network is not None, "the settings come from a network"
        domain = settings["name"].partition(".")[2]
        users = target.network / "organizations" / "peerOrganizations" / domain / "users"
        folder = users / f"{self.user or default}@{domain}"
        if not folder.is_dir():
            names = ", ".join(sorted(path.name.partition("@")[0] for path in users.glob("*@*")))
            raise NotFound(f"{domain} has no user {self.user or default}; its users: {names}")
        return load_signing_identity(folder / "msp", settings["msp_id"])
