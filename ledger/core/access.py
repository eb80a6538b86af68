"""Who may use what?  Fabric's access control lists: a policy for every resource, the default or the channel's own.

Source: fabric core/aclmgmt/defaultaclprovider.go, resourceprovider.go. A channel's `ACLs` value may name another policy
for a resource of the channel; those of the peer itself are fixed.
"""

from ledger.core.channel_config import Bundle
from ledger.core.errors import Forbidden, InvalidIdentity, PolicyNotSatisfied
from ledger.core.identity import Identity, MspManager
from ledger.core.policy.ast import Role, RolePrincipal
from ledger.core.policy.evaluate import SignedData

READERS = "/Channel/Application/Readers"
WRITERS = "/Channel/Application/Writers"

PROPOSE = "peer/Propose"
COMMIT_STATUS = "gateway/CommitStatus"
CHAINCODE_EVENTS = "gateway/ChaincodeEvents"
BLOCK_EVENTS = "event/Block"
FILTERED_BLOCK_EVENTS = "event/FilteredBlock"

CHANNEL_POLICIES = {
    PROPOSE: WRITERS,
    "peer/ChaincodeToChaincode": WRITERS,
    "_lifecycle/CommitChaincodeDefinition": WRITERS,
    "_lifecycle/QueryChaincodeDefinition": WRITERS,
    "_lifecycle/QueryChaincodeDefinitions": WRITERS,
    "_lifecycle/CheckCommitReadiness": WRITERS,
    COMMIT_STATUS: READERS,
    CHAINCODE_EVENTS: READERS,
    BLOCK_EVENTS: READERS,
    FILTERED_BLOCK_EVENTS: READERS,
    "qscc/GetChainInfo": READERS,
    "qscc/GetBlockByNumber": READERS,
    "qscc/GetBlockByHash": READERS,
    "qscc/GetTransactionByID": READERS,
    "qscc/GetBlockByTxID": READERS,
    "cscc/GetConfigBlock": READERS,
    "cscc/GetChannelConfig": READERS,
}
"""Default policy of each resource of a channel."""

PEER_ROLES = {
    "_lifecycle/ApproveChaincodeDefinitionForMyOrg": Role.ADMIN,
    "_lifecycle/QueryApprovedChaincodeDefinition": Role.ADMIN,
    "_lifecycle/QueryApprovedChaincodeDefinitions": Role.ADMIN,
    "_lifecycle/InstallChaincode": Role.ADMIN,
    "_lifecycle/QueryInstalledChaincode": Role.ADMIN,
    "_lifecycle/QueryInstalledChaincodes": Role.ADMIN,
    "_lifecycle/GetInstalledChaincodePackage": Role.ADMIN,
    "cscc/GetChannels": Role.MEMBER,
}
"""Role in the peer's own organisation for each resource of the peer."""


def channel_policy(bundle: Bundle, resource: str) -> str:
    """Give the path of the policy that guards a resource of a channel.

    Raises:
        Forbidden: There is no such resource.
    """
    default = CHANNEL_POLICIES.get(resource)
    if default is None:
        raise Forbidden(f"Unmapped policy for {resource}", rule="access", expected="a known resource", found=resource)
    return bundle.acl_path(resource, default)


def check_channel_access(bundle: Bundle, resource: str, signed: SignedData) -> None:
    """Check that a signature may use a resource of a channel.

    Raises:
        Forbidden: It may not, or there is no such resource.
    """
    path = channel_policy(bundle, resource)
    try:
        bundle.check(path, (signed,))
    except PolicyNotSatisfied as error:
        raise denied(resource, path, error.found) from error


def check_identity_access(bundle: Bundle, resource: str, identity: Identity) -> None:
    """Check that an identity, whose signature was checked, may use a resource of a channel.

    Raises:
        Forbidden: It may not.
    """
    path = channel_policy(bundle, resource)
    if not bundle.evaluate(path, (identity,)):
        raise denied(resource, path, f"{identity.msp_id}:{identity.certificate.common_name}")


def denied(resource: str, path: str, found: object) -> Forbidden:
    """Say who may not use what."""
    return Forbidden(f"access to {resource} denied", rule=path, expected="a signature that satisfies it", found=found)


def check_peer_access(msps: MspManager, msp_id: str, resource: str, signed: SignedData) -> None:
    """Check that a signature may use a resource of the peer itself.

    Args:
        msps: Knows the peer's own organisation.
        msp_id: That organisation.
        resource: What is asked for.
        signed: The signature.

    Raises:
        Forbidden: It may not, or there is no such resource.
    """
    role = PEER_ROLES.get(resource)
    if role is None:
        raise Forbidden(f"Unmapped policy for {resource}", rule="access", expected="a known resource", found=resource)
    expected = f"{'an admin' if role == Role.ADMIN else 'a member'} of {msp_id}"
    try:
        identity = msps.deserialize(signed.identity)
    except InvalidIdentity as error:
        raise Forbidden(f"access to {resource} denied", rule="access", expected=expected, found=error) from error
    good = identity.verify(signed.message, signed.signature)
    if not good or not msps.satisfies(identity, RolePrincipal(msp_id, role)):
        raise Forbidden(f"access to {resource} denied", rule="access", expected=expected, found=identity.key[0])


__all__ = ["channel_policy", "check_channel_access", "check_identity_access", "check_peer_access"]
