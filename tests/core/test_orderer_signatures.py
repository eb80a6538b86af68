"""Did the channel's orderers sign this block: in the form of Raft, in that of BFT, and with something wrong."""

from dataclasses import replace

import pytest
from fabric_protos.common import common_pb2, configuration_pb2, policies_pb2
from fabric_protos.msp import msp_principal_pb2

from ledger.core.block import Block, Header, block_hash, check_data_hash, check_link, check_slots
from ledger.core.channel_config import Bundle, ConfigGroup
from ledger.core.errors import InvalidBlock
from ledger.core.hashing import data_hash, header_der
from ledger.core.names import BlockNumber, Digest
from ledger.core.orderer_signatures import check_last_config, check_orderer_signatures
from ledger.wire.codec import CODEC
from ledger.wire.config import bundle_from_block
from ledger.wire.orderer_metadata import orderer_metadata
from tests.kit.certificates import with_s
from tests.kit.channel import Channel, channel_tree, config_value, genesis_of
from tests.kit.organisations import Signer, shared_organisation

ORG1, ORDERER = shared_organisation("Org1MSP"), shared_organisation("OrdererMSP")
VALUE = common_pb2.OrdererBlockMetadata(last_config=common_pb2.LastConfig(index=0)).SerializeToString()


@pytest.fixture(scope="module")
def channel() -> Channel:
    return Channel()


def rule_against(block: Block, bundle: Bundle) -> str | None:
    """The rule that refuses a block's signatures; None if they will do."""
    try:
        check_orderer_signatures(block, orderer_metadata(block, bundle), bundle)
    except InvalidBlock as refusal:
        return refusal.rule
    return None


def with_slot_0(block: Block, *signatures: common_pb2.MetadataSignature, value: bytes = VALUE) -> Block:
    slot = common_pb2.Metadata(value=value, signatures=signatures).SerializeToString()
    return replace(block, metadata=(slot, *block.metadata[1:]))


def signature(
    signer: Signer, block: Block, *, value: bytes = VALUE, creator: bytes | None = None
) -> common_pb2.MetadataSignature:
    """A signature as Raft orderers make it."""
    header = common_pb2.SignatureHeader(
        creator=signer.serialized if creator is None else creator, nonce=b"n"
    ).SerializeToString()
    signed = value + header + header_der(block.number, block.header.previous_hash, block.header.data_hash)
    return common_pb2.MetadataSignature(signature_header=header, signature=signer.sign(signed))


def test_a_block_of_the_orderer_is_signed_and_says_which_config_it_stands_on(channel: Channel) -> None:
    block = channel.block(b"any envelope")
    assert rule_against(block, channel.bundle) is None
    metadata = orderer_metadata(block, channel.bundle)
    check_last_config(block, metadata, BlockNumber(0))
    with pytest.raises(InvalidBlock) as refusal:
        check_last_config(block, metadata, BlockNumber(1))
    assert (refusal.value.rule, refusal.value.expected, refusal.value.found) == ("last config index", 1, 0)


def test_everything_in_the_header_and_the_value_is_signed(channel: Channel) -> None:
    block = channel.block(b"any envelope")
    header = block.header
    for changed in (
        replace(header, number=BlockNumber(2)),
        replace(header, previous_hash=bytes(32)),
        replace(header, data_hash=bytes(32)),
    ):
        assert rule_against(replace(block, header=changed), channel.bundle) == "orderer signatures"
    other = common_pb2.OrdererBlockMetadata(last_config=common_pb2.LastConfig(index=7)).SerializeToString()
    swapped = with_slot_0(block, signature(channel.orderer, block), value=other)
    assert rule_against(swapped, channel.bundle) == "orderer signatures"


def test_only_members_of_the_orderers_organisation_count(channel: Channel) -> None:
    block = channel.block(b"any envelope")
    stranger = shared_organisation("StrangerMSP").issue("orderer0", "orderer")
    for signer in (ORG1.peer, ORG1.admin, stranger):
        assert rule_against(with_slot_0(block, signature(signer, block)), channel.bundle) == "orderer signatures"
    good = signature(channel.orderer, block)
    assert rule_against(with_slot_0(block, signature(stranger, block), good), channel.bundle) is None
    borrowed = signature(ORG1.peer, block, creator=channel.orderer.serialized)
    assert rule_against(with_slot_0(block, borrowed), channel.bundle) == "orderer signatures"
    assert rule_against(with_slot_0(block, borrowed, good), channel.bundle) is None
    assert rule_against(with_slot_0(block), channel.bundle) == "orderer signatures"


def test_a_high_s_is_no_signature_and_bytes_behind_one_are_nothing(channel: Channel) -> None:
    block = channel.block(b"any envelope")
    good = signature(channel.orderer, block)
    high, longer = common_pb2.MetadataSignature(), common_pb2.MetadataSignature()
    high.CopyFrom(good)
    high.signature = with_s(good.signature, "secp256r1", high=True)
    longer.CopyFrom(good)
    longer.signature += b"\x00"
    assert rule_against(with_slot_0(block, high), channel.bundle) == "orderer signatures"
    assert rule_against(with_slot_0(block, longer), channel.bundle) is None


@pytest.mark.parametrize(
    ("metadata", "rule"),
    [
        ((), "metadata slots"),
        ((b"", b"", b"", b""), "metadata slots"),
        ((b"\xff", b"", b"", b"", b""), "orderer metadata"),
        ((common_pb2.Metadata(value=b"\xff").SerializeToString(), b"", b"", b"", b""), "orderer metadata"),
        ((b"", b"", b"", b"", b""), "orderer signatures"),
        (
            (
                common_pb2.Metadata(
                    signatures=[common_pb2.MetadataSignature(signature_header=b"\xff")]
                ).SerializeToString(),
                b"", b"", b"", b"",
            ),
            "orderer metadata",
        ),
    ],
)  # fmt: skip
def test_slots_that_are_missing_or_do_not_decode_are_named(
    channel: Channel, metadata: tuple[bytes, ...], rule: str
) -> None:
    block = replace(channel.block(b"any envelope"), metadata=metadata)
    assert rule_against(block, channel.bundle) == rule


def test_more_slots_than_five_do_no_harm(channel: Channel) -> None:
    block = channel.block(b"any envelope")
    assert rule_against(replace(block, metadata=(*block.metadata, b"more")), channel.bundle) is None


# -- BFT

ORDERERS = [ORDERER.issue(f"orderer{at}", "orderer") for at in range(4)]


def bft_tree(capability: str = "V3_0") -> ConfigGroup:
    """Four consenters, of which three have to sign."""
    tree = channel_tree((ORG1,), ORDERER, channel=capability, application="V2_5")
    orderers = configuration_pb2.Orderers(
        consenter_mapping=[
            configuration_pb2.Consenter(id=at + 1, msp_id="OrdererMSP", identity=each.certificate)
            for at, each in enumerate(ORDERERS)
        ]
    )
    leaves = [policies_pb2.SignaturePolicy(signed_by=at) for at in range(4)]
    message = policies_pb2.SignaturePolicyEnvelope(
        rule=policies_pb2.SignaturePolicy(n_out_of=policies_pb2.SignaturePolicy.NOutOf(n=3, rules=leaves)),
        identities=[
            msp_principal_pb2.MSPPrincipal(principal_classification=2, principal=each.serialized) for each in ORDERERS
        ],
    )
    group = tree.groups["Orderer"]
    validation = replace(group.policies["BlockValidation"], kind=1, value=message.SerializeToString())
    group = replace(
        group,
        values={**group.values, "Orderers": config_value(orderers)},
        policies={**group.policies, "BlockValidation": validation},
    )
    return replace(tree, groups={**tree.groups, "Orderer": group})


BFT = bundle_from_block(genesis_of(bft_tree()), CODEC)
BLOCK = Block(
    Header(BlockNumber(1), bytes(32), data_hash([b"any envelope"])), (b"any envelope",), (b"", b"", b"", b"", b"")
)


def identified(identifier: int, signer: Signer, *, signature_header: bytes = b"") -> common_pb2.MetadataSignature:
    """A signature as BFT orderers make it."""
    header = common_pb2.IdentifierHeader(identifier=identifier, nonce=b"n").SerializeToString()
    number, previous, digest = BLOCK.header.number, BLOCK.header.previous_hash, BLOCK.header.data_hash
    signed = VALUE + header + header_der(number, previous, digest)
    return common_pb2.MetadataSignature(
        signature_header=signature_header, identifier_header=header, signature=signer.sign(signed)
    )


def test_a_quorum_of_consenters_signs_by_their_numbers() -> None:
    signatures = [identified(at + 1, each) for at, each in enumerate(ORDERERS)]
    assert rule_against(with_slot_0(BLOCK, *signatures), BFT) is None
    assert rule_against(with_slot_0(BLOCK, *signatures[:3]), BFT) is None
    assert rule_against(with_slot_0(BLOCK, *signatures[:2]), BFT) == "orderer signatures"
    assert rule_against(with_slot_0(BLOCK, signatures[0], signatures[0], signatures[1]), BFT) == "orderer signatures"


def test_an_unknown_number_is_passed_over_and_anothers_number_is_no_signature() -> None:
    good = [identified(at + 1, each) for at, each in enumerate(ORDERERS[:3])]
    unknown = identified(9, ORDERERS[3])
    assert rule_against(with_slot_0(BLOCK, unknown, *good), BFT) is None
    assert rule_against(with_slot_0(BLOCK, unknown, *good[:2]), BFT) == "orderer signatures"
    assert rule_against(with_slot_0(BLOCK, *good[:2], identified(4, ORDERERS[0])), BFT) == "orderer signatures"


def test_a_number_counts_only_under_v3_and_without_a_signature_header() -> None:
    good = [identified(at + 1, each) for at, each in enumerate(ORDERERS)]
    raft = bundle_from_block(genesis_of(bft_tree("V2_0")), CODEC)
    assert rule_against(with_slot_0(BLOCK, *good), raft) == "orderer signatures"
    headers = [identified(at + 1, each, signature_header=b"\x12\x01n") for at, each in enumerate(ORDERERS)]
    assert rule_against(with_slot_0(BLOCK, *headers), BFT) == "orderer signatures"
    named = [signature(each, BLOCK) for each in ORDERERS]
    assert rule_against(with_slot_0(BLOCK, *named), BFT) is None  # The form of Raft is good there too.


# -- headers


def test_a_block_follows_the_one_whose_hash_it_names(channel: Channel) -> None:
    block = channel.block(b"any envelope")
    previous = Digest(channel.ledger.block_hash)
    check_link(block, BlockNumber(1), previous)
    check_link(block, BlockNumber(1), None)
    for number, before, rule in (
        (2, previous, "block number"),
        (0, previous, "block number"),
        (1, Digest(bytes(32)), "previous hash"),
    ):
        with pytest.raises(InvalidBlock) as refusal:
            check_link(block, BlockNumber(number), before)
        assert refusal.value.rule == rule


def test_a_block_is_named_by_its_header_alone(channel: Channel) -> None:
    block = channel.block(b"any envelope")
    assert block_hash(replace(block, envelopes=(), metadata=())) == block_hash(block)
    assert block_hash(replace(block, header=replace(block.header, number=BlockNumber(2)))) != block_hash(block)


def test_slots_and_data_hash_are_checked_by_name(channel: Channel) -> None:
    block = channel.block(b"any envelope")
    check_slots(block)
    check_data_hash(block)
    for check, changed, rule in (
        (check_slots, replace(block, metadata=block.metadata[:4]), "metadata slots"),
        (check_data_hash, replace(block, envelopes=(b"another",)), "data hash"),
    ):
        with pytest.raises(InvalidBlock) as refusal:
            check(changed)
        assert refusal.value.rule == rule
