"""An application's transactions, from its first call to both peers' ledgers over real TLS, and what it is told."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from ledger.chaincode.pool import ContractPool
from ledger.client.errors import CallRefused, NodeAnswer, TransactionInvalid
from ledger.client.gateway import Network as ClientNetwork
from ledger.client.gateway import commit_definition, connect
from ledger.client.tls import ClientTls
from ledger.core.errors import InvalidPolicy
from ledger.core.names import TxId, Verdict
from ledger.core.ports import Signer
from ledger.wire.proposal import encode_envelope
from tests.kit.channel import CHANNEL
from tests.kit.checkpointing import until
from tests.kit.peers import PeerNetwork, ServingPeer, client_tls, commits_held, running_network, running_pool, wallet
from tests.kit.proposals import ORG1, ORG2, STRANGER

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def pool() -> Iterator[ContractPool]:
    with running_pool() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def network(pool: ContractPool, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PeerNetwork]:
    async with running_network(tmp_path_factory.mktemp("network"), pool) as made:
        async with connect(made.first.address, wallet(ORG1.client), client_tls()) as gateway:
            channel = gateway.network(CHANNEL)
            await asyncio.gather(*(commit_definition(channel, name) for name in ("assets", "trial")))
        await made.level()
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def here(network: PeerNetwork) -> AsyncIterator[ClientNetwork]:
    """The channel at the first organisation's peer, as its client sees it."""
    async with connect(network.first.address, wallet(ORG1.client), client_tls()) as gateway:
        yield gateway.network(CHANNEL)


@pytest_asyncio.fixture(loop_scope="module")
async def there(network: PeerNetwork) -> AsyncIterator[ClientNetwork]:
    """The same at the second organisation's."""
    async with connect(network.second.address, wallet(ORG2.client), client_tls()) as gateway:
        yield gateway.network(CHANNEL)


async def same_ledgers(network: PeerNetwork) -> tuple[ServingPeer, ServingPeer]:
    """Wait for both peers and check that they hold the same."""
    await network.level()
    one, other = network.first.store, network.second.store
    assert (one.height, one.block_hash, one.commit_hash) == (other.height, other.block_hash, other.commit_hash)
    assert one.vblock_hash == other.vblock_hash
    assert one.roots_now().state_hash == other.roots_now().state_hash
    return network.first, network.second


def verdict_at(peer: ServingPeer, tx_id: str) -> tuple[int, int]:
    """Verdict of a transaction and its block's number, as a peer has them."""
    (place,) = peer.store.places(TxId(tx_id))
    return place.verdict, place.block


async def test_submitted_transaction_is_valid_on_both_peers_with_equal_hashes(
    network: PeerNetwork, here: ClientNetwork, there: ClientNetwork
) -> None:
    submitted = await here.contract("assets").submit_async("create", "car-1", "Anna", "300")
    assert json.loads(submitted.result) == {"id": "car-1", "owner": "Anna", "value": 300}
    status = await submitted.status()
    assert status.is_valid and status.code == Verdict.VALID
    for peer in await same_ledgers(network):
        assert verdict_at(peer, submitted.transaction_id) == (Verdict.VALID, status.block_number)
    assert json.loads(await there.contract("assets").evaluate("read", "car-1"))["owner"] == "Anna"


async def test_submit_comes_back_when_its_own_peer_has_the_state(network: PeerNetwork, here: ClientNetwork) -> None:
    assets = here.contract("assets")
    await assets.submit("create", "car-2", "Anna", "1")
    await network.level()
    for value in range(2, 5):
        await assets.submit("update", "car-2", str(value))
        assert json.loads(await assets.evaluate("read", "car-2"))["value"] == value
        await network.level()
    assert len(json.loads(await assets.evaluate("history", "car-2"))) == 4


async def test_transaction_that_read_what_another_one_changed_is_invalid_and_says_so(
    network: PeerNetwork, here: ClientNetwork, there: ClientNetwork
) -> None:
    """Both clients read the counter before either one's transaction is ordered."""
    await here.contract("trial").submit("put", "counter", "7")
    await network.level()
    prepared = [(channel, await channel.contract("trial").endorse("bump", "counter")) for channel in (here, there)]
    for channel, (tx_id, payload) in prepared:
        await network.gateway.submit(CHANNEL, envelope(channel.gateway.signer, payload))
        await channel.commit_status(tx_id)
    statuses = [await channel.commit_status(tx_id) for channel, (tx_id, _) in prepared]
    assert [status.code for status in statuses] == [Verdict.VALID, Verdict.MVCC_READ_CONFLICT]
    for peer in await same_ledgers(network):
        assert [verdict_at(peer, tx_id)[0] for _, (tx_id, _) in prepared] == [0, Verdict.MVCC_READ_CONFLICT]
    assert await here.contract("trial").evaluate("get", "counter") == b"8"


def envelope(signer: Signer, payload: bytes) -> bytes:
    return encode_envelope(payload, signer.sign(payload))


async def test_of_conflicting_submissions_one_is_committed_and_the_others_raise_with_their_verdict(
    network: PeerNetwork, here: ClientNetwork
) -> None:
    """Nothing is committed until all six are ordered, so all read the same."""
    trial = here.contract("trial")
    await network.level()
    before = network.ordered()
    with commits_held(network.first, network.second) as release:
        submissions = [asyncio.create_task(trial.submit("bump", "fought over")) for _ in range(6)]
        await until(lambda: network.ordered() == before + 6)
        release.set()
        results = await asyncio.gather(*submissions, return_exceptions=True)
    lost = [one for one in results if isinstance(one, TransactionInvalid)]
    assert len(lost) == 5 and b"1" in results
    assert await trial.evaluate("get", "fought over") == b"1"
    for one in lost:
        assert one.verdict == Verdict.MVCC_READ_CONFLICT
        assert str(one) == f"transaction {one.transaction_id} in block {one.block} is invalid: MVCC_READ_CONFLICT"
    for peer in await same_ledgers(network):
        for one in lost:
            assert verdict_at(peer, one.transaction_id) == (Verdict.MVCC_READ_CONFLICT, one.block)


async def test_under_endorsed_transaction_raises_with_the_policy_verdict(here: ClientNetwork) -> None:
    with pytest.raises(TransactionInvalid) as found:
        await here.contract("trial").submit("put", "key", "value", organisations=["Org2MSP"])
    assert found.value.verdict == Verdict.ENDORSEMENT_POLICY_FAILURE


async def test_refused_call_names_the_call_the_status_and_what_each_peer_said(
    network: PeerNetwork, here: ClientNetwork
) -> None:
    with pytest.raises(CallRefused) as found:
        await here.contract("trial").submit("fail", "no luck")
    error = found.value
    assert (error.call, error.code) == ("Endorse", "ABORTED")
    assert error.message == "failed to endorse transaction, see attached details for more info"
    (answer,) = error.answers
    assert (answer.address, answer.msp_id) == (network.first.address, "Org1MSP")
    assert answer.message.startswith("chaincode response 500, ") and "no luck" in answer.message
    assert str(error) == f"Endorse: ABORTED: {error.message}\n  Org1MSP at {answer.address}: {answer.message}"
    assert len(error.transaction_id) == 64


async def test_failed_evaluation_has_the_contracts_words(here: ClientNetwork) -> None:
    with pytest.raises(CallRefused) as found:
        await here.contract("assets").evaluate("read", "no such car")
    assert (found.value.call, found.value.code) == ("Evaluate", "UNKNOWN")
    assert "asset no such car does not exist" in found.value.message


async def test_stranger_gets_nothing(network: PeerNetwork) -> None:
    text = f"error validating proposal: access denied: channel [{CHANNEL}] creator org unknown, creator is malformed"
    async with connect(network.first.address, wallet(STRANGER.client), client_tls()) as gateway:
        channel = gateway.network(CHANNEL)
        with pytest.raises(CallRefused) as evaluated:
            await channel.contract("trial").evaluate("get", "key")
        with pytest.raises(CallRefused) as endorsed:
            await channel.contract("trial").submit("put", "key", "value")
        with pytest.raises(CallRefused) as asked:
            await channel.commit_status(TxId("00"))
    assert (evaluated.value.code, endorsed.value.code) == ("FAILED_PRECONDITION", "ABORTED")
    assert asked.value.code == "PERMISSION_DENIED"
    assert evaluated.value.message.endswith(text)
    assert NodeAnswer(network.first.address, "Org1MSP", text) in endorsed.value.answers


async def test_status_may_be_asked_for_before_the_transaction_is_there(here: ClientNetwork) -> None:
    with pytest.raises(CallRefused) as found:
        await here.commit_status(TxId("no such transaction"), timeout_s=0.2)
    assert (found.value.call, found.value.code) == ("CommitStatus", "DEADLINE_EXCEEDED")


async def test_arguments_may_be_bytes_and_transient_data_comes_back(here: ClientNetwork) -> None:
    trial = here.contract("trial")
    assert await trial.submit("put", b"raw", "bytes \u00e9".encode()) == b"put raw"
    assert await trial.evaluate("get", "raw") == "bytes \u00e9".encode()
    assert await trial.evaluate("secret", transient={"secret": b"for your eyes"}) == b"for your eyes"


async def test_definition_is_committed_with_its_policy_and_upgraded_in_sequence(
    network: PeerNetwork, here: ClientNetwork
) -> None:
    await commit_definition(here, "either", policy="OR('Org1MSP.peer','Org2MSP.peer')")
    await network.level()
    await here.contract("either").submit("put", "key", "value", organisations=["Org1MSP"])
    with pytest.raises(CallRefused, match="next sequence"):
        await commit_definition(here, "either", "2.0", sequence=3)
    await network.level()
    await commit_definition(here, "either", "2.0", sequence=2, policy="AND('Org1MSP.peer','Org2MSP.peer')")
    with pytest.raises(TransactionInvalid):
        await here.contract("either").submit("put", "key", "value", organisations=["Org1MSP"])
    with pytest.raises(InvalidPolicy):
        await commit_definition(here, "either", sequence=3, policy="SOMEBODY('Org1MSP.peer')")


async def test_gateway_where_nobody_listens_is_unavailable() -> None:
    async with connect("localhost:1", wallet(ORG1.client), client_tls()) as gateway:
        with pytest.raises(CallRefused) as found:
            await gateway.network(CHANNEL).contract("trial").evaluate("get", "key")
    assert (found.value.code, found.value.answers) == ("UNAVAILABLE", ())


async def test_gateway_with_a_certificate_of_somebody_else_is_not_talked_to(network: PeerNetwork) -> None:
    roots = ClientTls(network.orderer.tls_roots)
    async with connect(network.first.address, wallet(ORG1.client), roots) as gateway:
        with pytest.raises(CallRefused) as found:
            await gateway.network(CHANNEL).contract("trial").evaluate("get", "key")
    assert found.value.code == "UNAVAILABLE"
