"""A ledger is opened ready to commit: what a crash left is finished, configuration and trust root are checked."""

import shutil
from pathlib import Path

import pytest

from ledger.core.errors import Conflict, InvalidBlock
from ledger.core.hashing import header_hash
from ledger.node.ledgers import open_ledger
from ledger.node.rules import make_rules
from ledger.wire.block import decode_block, encode_block
from tests.kit.channel import Channel, genesis_of
from tests.kit.orderer_node import batching
from tests.kit.outcomes import channel_id, genesis_block, judged
from tests.kit.stores import answers

NAME = "rich"
"""It has several configurations."""

KNOWN = judged(NAME)
GENESIS = genesis_block(NAME)
CONFIG_BLOCKS = [outcome.block.number for outcome in KNOWN.outcomes if outcome.is_config]


def filled(data: Path, height: int, *, chk: int = 100) -> None:
    """Make a ledger with the first blocks of the recorded channel."""
    opened = open_ledger(data, GENESIS, make_rules(None), chk=chk)
    opened.store.commit_group(KNOWN.outcomes[opened.store.height : height])
    opened.store.close()


def test_new_ledger_is_empty_and_stands_under_the_genesis_configuration(tmp_path: Path) -> None:
    opened = open_ledger(tmp_path, GENESIS, make_rules(None))
    assert (opened.store.height, opened.recommitted) == (0, 0)
    assert (opened.bundle.channel_id, opened.bundle.sequence) == (channel_id(NAME), 0)
    opened.store.close()


@pytest.mark.parametrize("height", [1, CONFIG_BLOCKS[-1], CONFIG_BLOCKS[-1] + 1, len(KNOWN.outcomes)])
def test_configuration_is_the_one_after_the_last_block(height: int, tmp_path: Path) -> None:
    filled(tmp_path, height)
    opened = open_ledger(tmp_path, GENESIS, make_rules(None))
    assert opened.bundle.config == KNOWN.bundles[height].config
    opened.store.close()


def test_blocks_beyond_the_savepoint_are_judged_again_each_under_the_configuration_before_it(tmp_path: Path) -> None:
    """Goal: a crash behind the sync of the segments costs nothing, over configuration changes too.

    Method: the database of an older height beside the segments of all blocks; the real rules judge what is between.
    """
    filled(tmp_path / "older", CONFIG_BLOCKS[-2] - 5)
    database = Path("channels", channel_id(NAME), "db")
    shutil.copytree(tmp_path / "older" / database, tmp_path / "database")
    filled(tmp_path / "older", len(KNOWN.outcomes))
    shutil.rmtree(tmp_path / "older" / database)
    shutil.move(tmp_path / "database", tmp_path / "older" / database)
    opened = open_ledger(tmp_path / "older", GENESIS, make_rules(None))
    assert opened.recommitted == len(KNOWN.outcomes) - (CONFIG_BLOCKS[-2] - 5)
    assert opened.bundle.config == KNOWN.bundles[-1].config
    found = answers(opened.store)
    opened.store.close()
    filled(tmp_path / "undisturbed", len(KNOWN.outcomes))
    undisturbed = open_ledger(tmp_path / "undisturbed", GENESIS, make_rules(None))
    assert found == answers(undisturbed.store)
    undisturbed.store.close()


def test_directory_of_another_genesis_block_is_refused_with_both_hashes_and_left_closed(tmp_path: Path) -> None:
    tree = Channel().tree
    first, second = genesis_of(tree), genesis_of(batching(tree, count=3))
    opened = open_ledger(tmp_path, encode_block(first), make_rules(None))
    channel = Channel(tree=tree)
    opened.store.commit(channel.transition.judge(
        channel.transition.prepare(first, channel.bundle), opened.store.staged_view(), channel.bundle
    ))  # fmt: skip
    opened.store.close()
    with pytest.raises(InvalidBlock) as caught:
        open_ledger(tmp_path, encode_block(second), make_rules(None))
    header = second.header
    assert caught.value.rule == "genesis block"
    assert caught.value.found == header_hash(header.number, header.previous_hash, header.data_hash)
    assert caught.value.expected == opened.store.block_hash
    open_ledger(tmp_path, encode_block(first), make_rules(None)).store.close()


def test_what_is_no_genesis_block_opens_nothing(tmp_path: Path) -> None:
    later = encode_block(KNOWN.outcomes[3].block)
    for data, rule in ((b"\xff", "block message"), (later, "block number"), (GENESIS[:-40], "")):
        with pytest.raises(InvalidBlock) as caught:
            open_ledger(tmp_path, data, make_rules(None))
        assert caught.value.rule.startswith(rule)
    assert list(tmp_path.iterdir()) == []
    assert decode_block(GENESIS).number == 0


def test_second_opening_is_a_conflict_and_the_first_goes_on(tmp_path: Path) -> None:
    opened = open_ledger(tmp_path, GENESIS, make_rules(None))
    with pytest.raises(Conflict, match="in use by another process"):
        open_ledger(tmp_path, GENESIS, make_rules(None))
    opened.store.commit(KNOWN.outcomes[0])
    opened.store.close()
