"""Do correct peers ever hold different valid checkpoints?  Seeded clusters of the pure machine in a bad network.

Every peer has a disk (what it signed, the latest valid checkpoint), a machine, and the driver's rules for asking and
answering, here without a loop: messages are lost, delayed, doubled and kept back by partitions; peers crash between any
two effects and start from their disks; one peer lies to everybody: it signs what nobody computed, something else to
each, forges, repeats, and makes up proofs.

1. Safety, at every step: at one height all correct peers that hold a valid checkpoint hold the same statement, every
   proof held satisfies the policy by itself, no correct peer signs two statements, none diverges.
2. Liveness, at the end: once the network is whole again, the newest checkpoint becomes valid everywhere.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from ledger.core.checkpoint import Ask, CheckpointMessage, CheckpointProof, PeerSignature, Statement
from ledger.core.checkpoint_proof import CheckpointRules, Scope, check_proof
from ledger.core.checkpoint_tally import (
    Arrived,
    Computed,
    Diverged,
    Event,
    OwnSignatureSeen,
    Persist,
    ProofArrived,
    Send,
    Tally,
    TallySettings,
    Valid,
    step,
)
from ledger.core.names import BlockNumber
from ledger.core.policy import extended
from tests.kit.checkpointing import CHANNEL_ID, default_bundle, message, organisations, proof, signature, statement_at
from tests.kit.organisations import Signer

SEEDS = range(300)
PEERS = 4
"""A majority are three organisations, one of which may lie: the two honest ones in any proof computed the same."""

BUNDLE = default_bundle(PEERS)
SIGNERS = [organisation.peer for organisation in organisations(PEERS)]
HEIGHTS = [10, 20, 30]

Notice = CheckpointMessage | CheckpointProof | Ask


class Crash(Exception):
    """The process ends between two effects."""


@dataclass
class Disk:
    """What survives a crash."""

    signed: dict[int, CheckpointMessage] = field(default_factory=dict)
    proofs: dict[int, CheckpointProof] = field(default_factory=dict)

    @property
    def latest(self) -> CheckpointProof | None:
        return self.proofs[max(self.proofs)] if self.proofs else None


@dataclass
class Packet:
    """A notice under way."""

    source: int
    target: int
    notice: Notice


class Peer:
    """A correct peer: the machine and its driver's rules."""

    def __init__(self, index: int, rules: CheckpointRules, chance: random.Random) -> None:
        self.index = index
        self.signer = SIGNERS[index]
        self.rules = rules
        self.chance = chance
        self.disk = Disk()
        self.height = 0
        self.crash_next = 0
        self.out: list[Packet] = []
        self.start()

    def start(self) -> None:
        """Start from the disk; what was committed is computed again."""
        settings = TallySettings(CHANNEL_ID, self.rules, self.signer.serialized)
        self.tally = Tally(settings, latest_valid=self.disk.latest)
        for number in HEIGHTS:
            if number <= self.height:
                self.compute(number)

    def commit(self, number: int) -> None:
        self.height = number
        self.compute(number)

    def compute(self, number: int) -> None:
        statement = statement_at(number)
        own = self.disk.signed.get(number) or message(self.signer, statement)
        self.take(Computed(statement, BUNDLE, own))

    def take(self, event: Event) -> None:
        tally, effects = step(self.tally, event)
        for effect in effects:
            self.crash_next -= 1
            if self.crash_next == 0:
                raise Crash
            match effect:
                case Persist(own):
                    before = self.disk.signed.setdefault(own.statement.number, own)
                    assert before.statement == own.statement, "signed a second statement"
                case Send(own):
                    assert self.disk.signed[own.statement.number] == own, "sent before it was durable"
                    self.send_all(own)
                case Valid(found, scope):
                    assert scope is Scope.FULL
                    assert found.statement.number not in self.disk.proofs
                    self.disk.proofs[found.statement.number] = found
                case Diverged(computed, found):
                    raise AssertionError(f"peer {self.index} diverged at {computed.number}: {found}")
                case OwnSignatureSeen(number):
                    assert number not in self.disk.signed
                case _:
                    pass
        self.tally = tally

    def hear(self, packet: Packet) -> None:
        source = f"peer {packet.source}"
        match packet.notice:
            case CheckpointMessage():
                self.take(Arrived(packet.notice, source))
            case CheckpointProof():
                self.take(ProofArrived(packet.notice, source))
            case Ask(number):
                if (found := self.disk.proofs.get(number)) is not None:
                    self.out.append(Packet(self.index, packet.source, found))
                elif (height := self.tally.heights.get(number)) is not None:
                    for signer in height.signers:
                        told = CheckpointMessage(height.statement, signer.signed, 10)
                        self.out.append(Packet(self.index, packet.source, told))

    def ask_around(self) -> None:
        pending = [number for number, height in self.tally.heights.items() if height.valid is None]
        for number in pending:
            self.send_all(Ask(number))

    def send_all(self, notice: Notice) -> None:
        self.out += [Packet(self.index, target, notice) for target in range(PEERS) if target != self.index]


class Liar:
    """Signs whatever, to whomever."""

    def __init__(self, index: int, chance: random.Random) -> None:
        self.index = index
        self.signer = SIGNERS[index]
        self.chance = chance
        self.heard: list[CheckpointMessage] = []

    def lies(self) -> Iterator[Packet]:
        for target in range(PEERS):
            if target != self.index:
                yield Packet(self.index, target, self.lie())

    def lie(self) -> Notice:
        chance = self.chance
        number = chance.choice([*HEIGHTS, 7, 40])
        flavour = chance.choice(["", "a", "b", "c"])
        statement = statement_at(number, flavour)
        other = self.heard[chance.randrange(len(self.heard))] if self.heard else message(self.signer, statement)
        match chance.randrange(6):
            case 0 | 1:
                return message(self.signer, statement)
            case 2:  # Another's signature under something else.
                return CheckpointMessage(statement, other.signed, 10)
            case 3:  # A proof with too few, doubled or forged signatures.
                mine = signature(self.signer, statement)
                return CheckpointProof(statement, (mine, *chance.choice([(), (mine,), (other.signed, other.signed)])))
            case 4:  # A true proof, as far as it can be made.
                signed = [m.signed for m in self.heard if m.statement == statement]
                return CheckpointProof(statement, (signature(self.signer, statement), *dict.fromkeys(signed)))
            case _:
                return CheckpointMessage(statement, PeerSignature(self.signer.serialized, b"garbage"), 10)


class Cluster:
    """Four peers, the last of which may lie, and the network between them."""

    def __init__(self, seed: int, *, liar: bool, local: str | None = None) -> None:
        self.chance = random.Random(seed)
        rules = CheckpointRules(extended.parse(local) if local else None)
        count = PEERS - 1 if liar else PEERS
        self.peers = [Peer(index, rules, self.chance) for index in range(count)]
        self.liar = Liar(PEERS - 1, self.chance) if liar else None
        self.network: list[Packet] = []
        self.cut: set[tuple[int, int]] = set()
        self.rules = rules
        self.checked: set[CheckpointProof] = set()

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.trouble()
            for peer in self.peers:
                self.work(peer)
            self.collect()
            self.deliver(loss=0.2, doubling=0.1)
            self.check()

    def heal(self) -> None:
        """Make the network whole, let everybody commit everything, and repeat until it is quiet."""
        self.cut.clear()
        for peer in self.peers:
            peer.crash_next = 0
            for number in HEIGHTS:
                if number > peer.height:
                    peer.commit(number)
        for _ in range(3):
            for peer in self.peers:
                peer.ask_around()
            self.collect()
            while self.network:
                self.deliver(loss=0, doubling=0)
                self.collect()
            self.check()

    def trouble(self) -> None:
        chance = self.chance
        if chance.random() < 0.2:
            side = {index for index in range(PEERS) if chance.random() < 0.5}
            self.cut = {(a, b) for a in range(PEERS) for b in range(PEERS) if (a in side) != (b in side)}
        elif chance.random() < 0.3:
            self.cut.clear()
        if chance.random() < 0.15:
            chance.choice(self.peers).crash_next = chance.randint(1, 6)
        if self.liar is not None and chance.random() < 0.5:
            self.network += self.liar.lies()

    def work(self, peer: Peer) -> None:
        remaining = [number for number in HEIGHTS if number > peer.height]
        if remaining and self.chance.random() < 0.5:
            self.guarded(peer, lambda: peer.commit(remaining[0]))
        elif self.chance.random() < 0.5:
            peer.ask_around()

    def guarded(self, peer: Peer, action: object) -> None:
        assert callable(action)
        try:
            action()
        except Crash:
            peer.out = [packet for packet in peer.out if self.chance.random() < 0.5]
            peer.crash_next = 0
            peer.start()

    def collect(self) -> None:
        for peer in self.peers:
            self.network += peer.out
            peer.out = []

    def deliver(self, *, loss: float, doubling: float) -> None:
        """Deliver what is under way in any order; some of it is lost, doubled or kept for later."""
        under_way, self.network = self.network, []
        self.chance.shuffle(under_way)
        for packet in under_way:
            if self.chance.random() < loss:
                continue
            if loss and self.chance.random() < 0.2:
                self.network.append(packet)
                continue
            if self.chance.random() < doubling:
                self.network.append(packet)
            if (packet.source, packet.target) in self.cut:
                continue
            if packet.target < len(self.peers):
                peer = self.peers[packet.target]
                self.guarded(peer, lambda peer=peer, packet=packet: peer.hear(packet))
            elif self.liar is not None and isinstance(packet.notice, CheckpointMessage):
                self.liar.heard.append(packet.notice)

    def check(self) -> None:
        valid: dict[int, Statement] = {}
        for peer in self.peers:
            for number, found in peer.disk.proofs.items():
                assert found.statement == valid.setdefault(number, found.statement), f"two checkpoints at {number}"
                if found not in self.checked:
                    check_proof(found, BUNDLE, self.rules)
                    self.checked.add(found)
            assert peer.tally.latest_valid == peer.disk.latest or peer.crash_next


@pytest.mark.parametrize("start", range(0, len(SEEDS), 50))
def test_correct_peers_agree_whatever_one_liar_and_the_network_do(start: int) -> None:
    for seed in SEEDS[start : start + 50]:
        cluster = Cluster(seed, liar=True)
        try:
            cluster.run(rounds=14)
            cluster.heal()
            assert [peer.disk.latest.statement.number for peer in cluster.peers if peer.disk.latest] == [30] * 3
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("start", range(0, 60, 30))
def test_local_policies_are_satisfied_too_once_their_peers_are_connected(start: int) -> None:
    for seed in SEEDS[start : start + 30]:
        cluster = Cluster(seed, liar=False, local="any(4)")
        try:
            cluster.run(rounds=10)
            cluster.heal()
            assert [peer.disk.latest.statement.number for peer in cluster.peers if peer.disk.latest] == [30] * 4
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_majority_of_liars_would_be_seen_as_a_divergence() -> None:
    """The checks above can fail: peers that validly agree on something else stop a correct one."""
    peer = Peer(0, CheckpointRules(), random.Random(0))
    peer.commit(10)
    liars: list[Signer] = SIGNERS[1:]
    with pytest.raises(AssertionError, match="peer 0 diverged at 10"):
        peer.hear(Packet(1, 0, proof(statement_at(10, "other"), *liars)))
    assert replace(peer.tally) == peer.tally


def test_every_delivery_order_of_the_same_messages_gives_the_same_valid_statement() -> None:
    """Goal: order and repetition are harmless.  Method: all messages twice, shuffled by 200 seeds."""
    messages = [message(signer, statement_at(10)) for signer in SIGNERS[1:]]
    for seed in range(200):
        chance = random.Random(seed)
        peer = Peer(0, CheckpointRules(), chance)
        events = [*messages, *messages]
        chance.shuffle(events)
        own = chance.randrange(len(events))
        for index, each in enumerate(events):
            if index == own:
                peer.commit(10)
            peer.hear(Packet(1, 0, each))
        found = peer.disk.proofs[BlockNumber(10)]
        assert found.statement == statement_at(10), f"seed {seed}"
