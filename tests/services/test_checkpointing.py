"""Agreeing on checkpoints between peers that really talk: mutual TLS on loopback, records on disk."""

from pathlib import Path

from tests.kit.checkpointing import MemorySource, TalkingPeer, default_bundle, organisations, until

BUNDLE = default_bundle(2)


def make_peers(folder: Path, count: int = 2) -> list[TalkingPeer]:
    return [
        TalkingPeer(organisation, folder / organisation.msp_id, MemorySource(default_bundle(count)))
        for organisation in organisations(count)
    ]


async def test_two_peers_reach_a_valid_checkpoint(tmp_path: Path) -> None:
    first, second = make_peers(tmp_path)
    async with first.running():
        second.links = [second.link_to(first)]
        async with second.running():
            for peer in (first, second):
                peer.reach(10)
            await until(lambda: first.valid == [10] and second.valid == [10])
            for peer in (first, second):
                status = peer.service.status()
                assert (status.latest_valid, status.newest_computed) == (10, 10)
                assert peer.source.kept == [10]
