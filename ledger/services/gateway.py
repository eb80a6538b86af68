"""How does a client's transaction come to its endorsements, to the orderers and to its verdict?  The peer does it all.

Source: fabric internal/pkg/gateway. Evaluate runs a chaincode on one peer. Endorse asks this peer first, learns from
its answer whose state is touched, and then asks a peer each of as few organisations as satisfy all endorsement
policies; all answers must be equal to the byte. Submit hands the signed transaction to an orderer. CommitStatus waits
until it is in the ledger.

Endorsers that stand at different heights may answer differently for a moment. Nothing has been ordered then, so all are
asked once more before the client is told.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ledger.core.access import CHAINCODE_EVENTS, COMMIT_STATUS, check_channel_access
from ledger.core.channel_config import Bundle
from ledger.core.errors import (
    Busy,
    ChannelStopped,
    Forbidden,
    InvalidProposal,
    PeerUnreachable,
    Pruned,
    Refused,
    StorageDamaged,
    StorageFailed,
)
from ledger.core.names import BlockNumber, TxId
from ledger.core.policy.ast import ApplicationPolicy
from ledger.core.policy.evaluate import SignedData
from ledger.core.policy.layouts import layout
from ledger.core.proposal import Proposal, ProposalAnswer
from ledger.core.transaction import Endorsement, Event
from ledger.services.events import Committed
from ledger.wire.proposal import assemble, chaincode_action, read_proposal

EVALUATE_TIMEOUT_S = 10.0
ENDORSE_TIMEOUT_S = 15.0
BROADCAST_TIMEOUT_S = 10.0

ROUNDS_MAX = 3
"""Times that all endorsers are asked, where their answers differ."""

ROUND_PAUSE_S = 0.1
"""Time for endorsers to come to the same height."""

SUCCESS = 200
"""Orderer's status of an accepted envelope."""

FAILED = 500
"""Status of a proposal that came to no answer of a chaincode."""

TRIED_ELSEWHERE = (PeerUnreachable, InvalidProposal, Busy, ChannelStopped, StorageFailed, Forbidden)
"""What an endorser may raise; another one of its organisation may still answer."""


class Code(StrEnum):
    """Status of a refused call, named as in gRPC."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    UNAVAILABLE = "UNAVAILABLE"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class NodeFault:
    """What one node answered instead of helping."""

    address: str
    msp_id: str
    message: str


class GatewayRefused(Exception):  # It is an answer, not an error of ours.
    """A call that is answered with a status and, per node, a reason."""

    def __init__(self, code: Code, message: str, faults: Sequence[NodeFault] = ()) -> None:
        """Say what the client gets."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.faults = tuple(faults)


class AsksEndorser(Protocol):
    """A peer that may be asked to endorse; `client.endorser.RemoteEndorser`, or this peer itself."""

    @property
    def name(self) -> str:
        """Name, for people."""
        ...

    @property
    def msp_id(self) -> str:
        """Its organisation."""
        ...

    @property
    def address(self) -> str:
        """host:port."""
        ...

    async def endorse(self, signed: bytes, signature: bytes, timeout_s: float) -> ProposalAnswer:
        """Ask; raises one of `TRIED_ELSEWHERE`."""
        ...


class Processes(Protocol):
    """This peer's endorser; `services.endorser.Endorser`."""

    def process(self, signed: bytes, signature: bytes) -> ProposalAnswer:
        """Answer a proposal; blocks."""
        ...


class GatewayChannel(Protocol):
    """A channel that transactions are submitted to."""

    @property
    def bundle(self) -> Bundle:
        """The configuration in force."""
        ...

    @property
    def stopped_because(self) -> str:
        """Why nothing is committed at present; empty while it is."""
        ...

    def endorsement_policy(self, chaincode: str) -> ApplicationPolicy | None:
        """Give the policy of a committed definition; None if there is none that can be used. Reads the state."""
        ...

    async def broadcast(self, envelope: bytes) -> tuple[int, str]:
        """Hand an envelope to an orderer; raises `PeerUnreachable`."""
        ...

    async def committed(self, tx_id: TxId) -> Committed:
        """Wait for a transaction; raises `ChannelStopped`."""
        ...

    @property
    def height(self) -> int:
        """Number of durable blocks."""
        ...

    def block_of(self, tx_id: TxId) -> BlockNumber | None:
        """Find the block of a transaction's first place. Reads the index."""
        ...

    def events(self, number: BlockNumber) -> tuple[tuple[str, Event | None], ...]:
        """Give each transaction of a block with its event, if it is valid and set one.

        Reads the disk; raises `Pruned`.
        """
        ...

    async def wait_above(self, height: int) -> int:
        """Wait for more blocks."""
        ...


@dataclass(frozen=True, slots=True)
class OwnEndorser:
    """This peer, asked as the others are."""

    name: str
    msp_id: str
    address: str
    endorser: Processes
    executor: Executor

    async def endorse(self, signed: bytes, signature: bytes, timeout_s: float) -> ProposalAnswer:
        """Simulate here; contracts have a time limit of their own."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.executor, self.endorser.process, signed, signature)


class Mismatch(Exception):  # It is caught where all are asked again.
    """Endorsers answered differently."""

    def __init__(self, fault: NodeFault) -> None:
        """Name one that differs from the first."""
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Collected:
    """Equal answers."""

    response_payload: bytes
    endorsements: tuple[Endorsement, ...]


class Gateway:
    """The gateway of one peer.

    Args:
        own: This peer.
        others: The other peers that may be asked.
        channels: This peer's channels by name; read at each call.
        executor: Where the state is read.
    """

    def __init__(
        self,
        own: OwnEndorser,
        others: Sequence[AsksEndorser],
        channels: Mapping[str, GatewayChannel],
        executor: Executor,
    ) -> None:
        """Take the parts."""
        self._own = own
        self._others = tuple(others)
        self._channels = channels
        self._executor = executor

    # -- the calls

    async def evaluate(self, signed: bytes, signature: bytes, organisations: Sequence[str] = ()) -> ProposalAnswer:
        """Run a chaincode on one peer, this one if its organisation may be asked.

        Raises:
            GatewayRefused: UNKNOWN with the chaincode's own failure, FAILED_PRECONDITION if this peer refuses the
                proposal, UNAVAILABLE if no peer of the organisations answers.
        """
        proposal = self._read(signed, signature)
        wanted = organisations or ((self._own.msp_id,) if proposal.transient else ())
        candidates = [one for one in (self._own, *self._others) if not wanted or one.msp_id in wanted]
        faults: list[NodeFault] = []
        code = Code.UNAVAILABLE  # Until a peer says more than that it can't.
        for one in candidates:
            try:
                answer = await one.endorse(signed, signature, EVALUATE_TIMEOUT_S)
            except InvalidProposal as error:
                fault = fault_of(one, error)
                raise GatewayRefused(
                    Code.FAILED_PRECONDITION, f"{EVALUATE_FAILED}{fault.message}", [*faults, fault]
                ) from error
            except TRIED_ELSEWHERE as error:
                faults.append(fault_of(one, error))
                continue
            if answer.is_success:
                return answer
            faults.append(NodeFault(one.address, one.msp_id, chaincode_text(answer)))
            code = Code.UNKNOWN
            if is_chaincodes_own(answer):
                break
        if not faults:
            raise GatewayRefused(Code.UNAVAILABLE, "no peers available to evaluate chaincode")
        raise GatewayRefused(code, f"{EVALUATE_FAILED}{faults[-1].message}", faults)

    async def endorse(self, signed: bytes, signature: bytes, organisations: Sequence[str] = ()) -> bytes:
        """Collect endorsements.

        Args:
            signed: Serialized Proposal.
            signature: The client's signature over it.
            organisations: Ask exactly one peer of each of these; where empty, as few as the policies need.

        Returns:
            Payload of the transaction, for the client to sign.

        Raises:
            GatewayRefused: ABORTED if an endorser fails or answers differ, FAILED_PRECONDITION if no set of known peers
                satisfies the policies, UNAVAILABLE if an organisation has no peer.
        """
        proposal = self._read(signed, signature)
        channel = self._channel(proposal.channel_id)
        for turn in range(ROUNDS_MAX):
            collect = _Collecting(proposal, self._own, self._others, channel, self._executor)
            try:
                collected = await (collect.of_each(organisations) if organisations else collect.by_policy())
            except Mismatch as mismatch:
                if turn == ROUNDS_MAX - 1:
                    raise GatewayRefused(Code.ABORTED, MORE_FAILED, [mismatch.fault]) from mismatch
                await asyncio.sleep(ROUND_PAUSE_S)
                continue
            return assemble(proposal, collected.response_payload, collected.endorsements)
        raise AssertionError("the last round returns or raises")

    async def submit(self, channel_id: str, envelope: bytes) -> None:
        """Hand a signed transaction to an orderer; done once the orderer's log is synced.

        Raises:
            GatewayRefused: ABORTED if an orderer refuses it, UNAVAILABLE if this peer takes on nothing or no orderer
                answers: whether it will be ordered is then unknown, and submitting it again is safe.
        """
        channel = self._channel(channel_id)
        if channel.stopped_because:
            raise GatewayRefused(Code.UNAVAILABLE, f"channel {channel_id} commits nothing: {channel.stopped_because}")
        try:
            async with asyncio.timeout(BROADCAST_TIMEOUT_S):
                status, info = await channel.broadcast(envelope)
        except PeerUnreachable as error:
            raise GatewayRefused(
                Code.UNAVAILABLE, f"no orderers could successfully process transaction: {error}"
            ) from error
        except TimeoutError as error:
            raise GatewayRefused(
                Code.DEADLINE_EXCEEDED, f"no orderer answered within {BROADCAST_TIMEOUT_S} s"
            ) from error
        if status != SUCCESS:
            code = Code.UNAVAILABLE if status >= 500 else Code.ABORTED
            raise GatewayRefused(code, f"received unsuccessful response from orderer: status={status}, info={info}")

    async def commit_status(self, channel_id: str, tx_id: str, signed: SignedData) -> Committed:
        """Wait until a transaction is in the ledger, valid or not.

        Args:
            channel_id: Its channel.
            tx_id: Its id.
            signed: The request and who signed it.

        Raises:
            GatewayRefused: PERMISSION_DENIED if the signer may not read the channel, ABORTED if it has stopped.
        """
        channel = self._channel(channel_id)
        try:
            check_channel_access(channel.bundle, COMMIT_STATUS, signed)
        except Forbidden as error:
            raise GatewayRefused(Code.PERMISSION_DENIED, str(error)) from error
        try:
            return await channel.committed(TxId(tx_id))
        except (ChannelStopped, StorageFailed) as error:
            raise GatewayRefused(Code.ABORTED, f"channel {channel_id}: {error}") from error

    async def chaincode_events(
        self, channel_id: str, chaincode: str, signed: SignedData, start: int | None, after: str
    ) -> AsyncIterator[tuple[BlockNumber, tuple[Event, ...]]]:
        """Give the events of a chaincode, block by block, also of pruned blocks, until the client goes away.

        Args:
            channel_id: The channel.
            chaincode: Whose events.
            signed: The request and who signed it.
            start: First block, where `after` is empty or not known; None for the next one to come.
            after: Begin behind the transaction of this id.

        Raises:
            GatewayRefused: NOT_FOUND for an unknown channel, PERMISSION_DENIED if the signer may not read it,
                ABORTED if what is asked for is not held any more or the disk fails.
        """
        channel = self._channel(channel_id)
        loop = asyncio.get_running_loop()
        try:
            check_channel_access(channel.bundle, CHAINCODE_EVENTS, signed)
            known = await loop.run_in_executor(self._executor, channel.block_of, TxId(after)) if after else None
            number = known if known is not None else BlockNumber(channel.height if start is None else start)
            while True:
                if number >= channel.height:
                    await channel.wait_above(number)
                transactions = await loop.run_in_executor(self._executor, channel.events, number)
                if known == number:
                    transactions = behind(transactions, after)
                found = tuple(event for _, event in transactions if event is not None and event.chaincode == chaincode)
                if found:
                    yield number, found
                number = BlockNumber(number + 1)
        except Forbidden as error:
            raise GatewayRefused(Code.PERMISSION_DENIED, str(error)) from error
        except (Pruned, StorageFailed, StorageDamaged) as error:
            raise GatewayRefused(Code.ABORTED, f"channel {channel_id}: {error}") from error

    # -- what they share

    def _read(self, signed: bytes, signature: bytes) -> Proposal:
        try:
            return read_proposal(signed, signature)
        except InvalidProposal as error:
            raise GatewayRefused(Code.INVALID_ARGUMENT, error.subject) from error

    def _channel(self, channel_id: str) -> GatewayChannel:
        channel = self._channels.get(channel_id)
        if channel is None:
            raise GatewayRefused(Code.NOT_FOUND, f"channel '{channel_id}' not found")
        return channel


Answered = tuple[AsksEndorser, ProposalAnswer]
"""Who answered, and what."""

EVALUATE_FAILED = "evaluate call to endorser returned error: "


def behind(transactions: Sequence[tuple[str, Event | None]], tx_id: str) -> tuple[tuple[str, Event | None], ...]:
    """Leave out the transactions up to and with the first of an id."""
    ids = [each for each, _ in transactions]
    return tuple(transactions[ids.index(tx_id) + 1 :])


FIRST_FAILED = "failed to endorse transaction, see attached details for more info"
MORE_FAILED = "failed to collect enough transaction endorsements, see attached details for more info"
NO_PLAN = "no combination of peers can be derived which satisfy the endorsement policy"


class _Collecting:
    """Asks endorsers for one proposal."""

    def __init__(
        self,
        proposal: Proposal,
        own: OwnEndorser,
        others: Sequence[AsksEndorser],
        channel: GatewayChannel,
        executor: Executor,
    ) -> None:
        self._proposal = proposal
        self._peers: dict[str, list[AsksEndorser]] = {own.msp_id: [own]}
        for one in others:
            self._peers.setdefault(one.msp_id, []).append(one)
        self._own = own
        self._channel = channel
        self._executor = executor
        self._faults: list[NodeFault] = []

    async def of_each(self, msp_ids: Sequence[str]) -> Collected:
        """Ask one peer of each organisation."""
        unknown = [msp_id for msp_id in msp_ids if msp_id not in self._peers]
        if unknown:
            raise GatewayRefused(
                Code.UNAVAILABLE, f"failed to find any endorsing peers for org(s): {', '.join(unknown)}"
            )
        answers = await self._ask_all(tuple(dict.fromkeys(msp_ids)))
        found = [answer for answer in answers if answer is not None]
        if len(found) < len(answers):
            raise GatewayRefused(Code.ABORTED, MORE_FAILED, self._faults)
        return matching(found)

    async def by_policy(self) -> Collected:
        """Ask this organisation first, then as few others as the policies need."""
        own = self._own.msp_id
        first = await self._ask(own, FIRST_FAILED)
        answers = {} if first is None else {own: first}
        candidates = [msp_id for msp_id in self._peers if msp_id != own or first is not None]
        touched = first[1].namespaces if first is not None else ()
        policies = await self._policies(touched or (self._proposal.chaincode,))
        while plan := layout(self._channel.bundle, policies, candidates, own):
            missing = [msp_id for msp_id in plan if msp_id not in answers]
            for msp_id, answer in zip(missing, await self._ask_all(missing), strict=True):
                if answer is None:
                    candidates.remove(msp_id)  # The next plan is made without it.
                else:
                    answers[msp_id] = answer
            if all(msp_id in answers for msp_id in plan):
                return matching([answers[msp_id] for msp_id in plan])
        if not self._faults:
            raise GatewayRefused(Code.FAILED_PRECONDITION, NO_PLAN)
        raise GatewayRefused(Code.ABORTED, FIRST_FAILED if first is None else MORE_FAILED, self._faults)

    async def _policies(self, touched: Sequence[str]) -> list[ApplicationPolicy]:
        """Read the endorsement policies of everything touched."""
        loop = asyncio.get_running_loop()
        policies: list[ApplicationPolicy] = []
        for chaincode in touched:
            policy = await loop.run_in_executor(self._executor, self._channel.endorsement_policy, chaincode)
            if policy is None:
                if self._faults:
                    raise GatewayRefused(Code.ABORTED, FIRST_FAILED, self._faults)
                raise GatewayRefused(Code.FAILED_PRECONDITION, f"{NO_PLAN}: chaincode {chaincode} is not defined")
            policies.append(policy)
        return policies

    async def _ask_all(self, msp_ids: Sequence[str]) -> list[Answered | None]:
        """Ask organisations at once; where the chaincode itself refuses, the others are waited for no longer."""
        asked = [asyncio.create_task(self._ask(msp_id, MORE_FAILED)) for msp_id in msp_ids]
        try:
            return await asyncio.gather(*asked)
        finally:
            for each in asked:
                each.cancel()

    async def _ask(self, msp_id: str, failed: str) -> Answered | None:
        """Ask the peers of an organisation until one endorses; None, and the reasons kept, if none does.

        Args:
            msp_id: The organisation.
            failed: What the client is told where the chaincode refuses.

        Raises:
            GatewayRefused: The chaincode itself refuses; no other peer will be asked.
        """
        for one in self._peers[msp_id]:
            try:
                answer = await one.endorse(self._proposal.signed, self._proposal.signature, ENDORSE_TIMEOUT_S)
            except TRIED_ELSEWHERE as error:
                self._faults.append(fault_of(one, error))
                continue
            if answer.is_success and answer.endorsement is not None:
                return one, answer
            self._faults.append(NodeFault(one.address, one.msp_id, chaincode_text(answer)))
            if is_chaincodes_own(answer):
                raise GatewayRefused(Code.ABORTED, failed, self._faults)
        return None


def matching(answers: Sequence[Answered]) -> Collected:
    """Put equal answers together.

    Raises:
        Mismatch: One differs from the first.
    """
    expected = answers[0][1].response_payload
    for one, answer in answers:
        if answer.response_payload != expected:
            text = f"ProposalResponsePayloads do not match: {difference(expected, answer.response_payload)}"
            raise Mismatch(NodeFault(one.address, one.msp_id, text))
    return Collected(expected, tuple(answer.endorsement for _, answer in answers if answer.endorsement is not None))


def difference(expected: bytes, found: bytes) -> str:
    """Say in which part two results differ."""
    try:
        one, other = chaincode_action(expected), chaincode_action(found)
    except Refused:
        return "one of them does not decode"
    parts = [
        name for name in ("results", "events", "response", "chaincode_id") if getattr(one, name) != getattr(other, name)
    ]
    return f"they differ in {', '.join(parts) or 'the proposal hash'}"


def is_chaincodes_own(answer: ProposalAnswer) -> bool:
    """Tell a chaincode's own failure from that of its peer, which another peer may not have."""
    return bool(answer.response_payload) or answer.status != FAILED


def chaincode_text(answer: ProposalAnswer) -> str:
    """Say what a chaincode answered."""
    return f"chaincode response {answer.status}, {answer.message}"


def fault_of(one: AsksEndorser, error: Exception) -> NodeFault:
    """Say what a peer answered."""
    return NodeFault(one.address, one.msp_id, error.subject if isinstance(error, InvalidProposal) else str(error))
