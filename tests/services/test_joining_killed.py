"""Is a joiner that was killed at any moment able to go on?  The real command, kill -9, the command again."""

import asyncio
import random
import sys
from pathlib import Path

import pytest
import yaml

from ledger.core import joining as rules
from tests.kit import proven
from tests.kit.joining import CHANNEL_ID, LATEST, Seller, joined_store, settings_for
from tests.kit.peers import key_pem

KILLS = 4


def write_config(directory: Path) -> Path:
    """Write what `peerledger peer join` reads."""
    settings = settings_for(directory)
    signer = proven.life().organisations[2].peer
    for folder, name, content in (
        ("signcerts", "cert.pem", signer.certificate),
        ("keystore", "key.pem", key_pem(signer.private_key)),
    ):
        (directory / folder).mkdir()
        (directory / folder / name).write_bytes(content)
    config = directory / "peer.yaml"
    config.write_text(yaml.safe_dump(settings.model_dump(mode="json", exclude_none=True)))
    return config


async def start(config: Path, seller: Seller) -> asyncio.subprocess.Process:
    command = ["-m", "ledger.cli.main", "peer", "join", "--config", str(config), "--from", seller.address, "--json"]
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def test_a_joiner_that_is_killed_again_and_again_completes_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no kill leaves anything that is in the way, or a half ledger.

    Method: kill -9 after some number of answered questions, drawn anew each time; then let it end, and compare.
    """
    monkeypatch.setattr(rules, "ENTRIES_PER_CHUNK", 1)
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    config = write_config(tmp_path / "new")
    channels = tmp_path / "new/data/channels"
    async with Seller(tmp_path / "a", delay_s=0.02).open() as seller:
        for _ in range(KILLS):
            seller.asked, wanted = [], chance.randrange(2, 14)
            process = await start(config, seller)
            while len(seller.asked) < wanted and process.returncode is None:  # noqa: ASYNC110  # Nobody tells.
                await asyncio.sleep(0.002)
            if process.returncode is None:
                process.kill()
            await process.communicate()
            if (channels / CHANNEL_ID).exists():
                break  # It was done before it was killed.
        process = await start(config, seller)
        out, err = await process.communicate()
        if process.returncode != 0:
            assert b"is there already" in err, (out, err)
        whole = seller.store.roots(LATEST)
    assert [path.name for path in channels.iterdir()] == [CHANNEL_ID]
    store = joined_store(tmp_path / "new")
    assert store.roots(LATEST) == whole
    store.close()
