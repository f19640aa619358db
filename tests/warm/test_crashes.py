"""Several stagers at once, and stagers that die."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import fxload
from fxload import warm
from tests.warm.looking import content, find, leftovers
from tests.warm.stagers import Stager, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from fxload.config import Config
    from tests.conftest import SlowFsFactory
    from tests.warm.conftest import Copies, Model

HANG = "read hang 6 model-00003-of-00003.safetensors"


def one_entry(config: Config) -> warm.Entry:
    (entry,) = warm.list_entries(config=config).entries
    return entry


def test_second_stager_waits_for_the_first_and_reuses_its_copy(
    slowfs: SlowFsFactory, copies: Copies, config: Config, tmp_path: Path
) -> None:
    storage = slowfs(copies.take("large").parent)
    model = storage.mount / "m"
    storage.faults.set(HANG)
    with Stager(config, model) as first:
        storage.wait_until_hanging()
        with Stager(config, model, marker=tmp_path / "waits") as second:
            wait_for((tmp_path / "waits").exists)
            assert first.process.poll() is None
            assert second.process.poll() is None
            storage.faults.clear()
            done = first.result()
            reused = second.result()
    assert (done["reused"], reused["reused"]) == (False, True)
    assert done["path"] == reused["path"]
    # It saw how far the other had come.
    assert any(0 < have < total for have, total in reused["seen"])
    assert one_entry(config).state == "ready"
    assert leftovers(config.warm_ram_dir) == []


def test_second_stager_takes_over_when_the_first_is_killed(
    slowfs: SlowFsFactory, copies: Copies, config: Config, tmp_path: Path
) -> None:
    storage = slowfs(copies.take("large").parent)
    model = storage.mount / "m"
    storage.faults.set(HANG)
    with Stager(config, model) as first:
        storage.wait_until_hanging()
        with Stager(config, model, marker=tmp_path / "waits") as second:
            wait_for((tmp_path / "waits").exists)
            first.process.kill()
            storage.faults.clear()
            first.kill()
            done = second.result()
    assert not done["reused"]
    assert content(one_entry(config).path) == content(model)
    assert leftovers(config.warm_ram_dir) == []


def test_killed_stager_leaves_nothing_that_is_believed(
    slowfs: SlowFsFactory, copies: Copies, config: Config
) -> None:
    storage = slowfs(copies.take("large").parent)
    model = storage.mount / "m"
    storage.faults.set(HANG)
    with Stager(config, model) as stager:
        storage.wait_until_hanging()
        stager.process.kill()
        storage.faults.clear()
        stager.kill()
    assert any("entry" in str(path) for path in (config.warm_ram_dir / "staging").rglob("*"))
    assert find(model, config) is None
    staged = warm.stage(model, config=config)
    assert not staged.reused
    assert content(staged.path) == content(model)
    assert leftovers(config.warm_ram_dir) == []


# What to run in a stager so that it dies at a step of the protocol, as by kill -9.
DEATHS = {
    "before the manifest": """
import os
from fxload.warm import staging
staging._complete = lambda *_: os._exit(9)
""",
    "within the manifest": """
import os
def die(*_): os._exit(9)
os.fsync = die
""",
    "before publishing": """
import os
from fxload.warm import staging
staging._publish = lambda *_: os._exit(9)
""",
}
AFTER_PUBLISHING = """
import os
from fxload.warm.room import Reservation
Reservation.drop = lambda _: os._exit(9)
"""


@pytest.mark.parametrize("step", DEATHS)
def test_death_before_publishing(model: Path, config: Config, step: str) -> None:
    warm.sweep(config=config)
    with Stager(config, model, before=_after_opening(DEATHS[step])) as stager:
        stager.process.communicate(timeout=60)
        assert stager.process.returncode == 9
    assert find(model, config) is None
    assert list((config.warm_ram_dir / "staging").iterdir())
    assert warm.list_entries(config=config).entries == ()
    assert leftovers(config.warm_ram_dir) == []
    assert not warm.stage(model, config=config).reused


def _after_opening(code: str) -> str:
    """Runs `code` when the copy begins: the stores are made before."""
    return f"""
from fxload.warm import staging as _staging
_copy = _staging.copy_checked
def _then(*positional, **named):
    exec({code!r}, {{}})
    return _copy(*positional, **named)
_staging.copy_checked = _then
"""


def test_death_after_publishing(model: Path, config: Config) -> None:
    with Stager(config, model, before=AFTER_PUBLISHING) as stager:
        stager.process.communicate(timeout=60)
        assert stager.process.returncode == 9
    # The copy is good, but the source's digests are not known yet.
    assert one_entry(config).state == "ready"
    assert find(model, config) is None
    staged = warm.stage(model, config=config)
    assert staged.path == one_entry(config).path
    assert find(model, config) is not None
    assert leftovers(config.warm_ram_dir) == []


def test_reservation_of_a_live_stager_counts_that_of_a_dead_one_does_not(
    slowfs: SlowFsFactory, copies: Copies, config: Config, models: dict[str, Model]
) -> None:
    storage = slowfs(copies.take("large").parent)
    large = storage.mount / "m"
    other = models["b"].path
    # Room for either of the two models, not for both.
    tight = replace(config, warm_ram_limit_bytes=13_100_000, warm_disk_limit_bytes=0)
    storage.faults.set(HANG)
    with Stager(tight, large) as stager:
        storage.wait_until_hanging()
        with pytest.raises(fxload.CapacityError, match="13100000"):
            warm.stage(other, config=tight)
        stager.process.kill()
        storage.faults.clear()
        stager.kill()
    assert not warm.stage(other, config=tight).reused


def test_many_at_once(models: dict[str, Model], config: Config) -> None:
    # Six processes, three sources, one entry each.
    stagers = [Stager(config, models[name].path) for name in "abcabc"]
    try:
        results = [stager.result() for stager in stagers]
    finally:
        for stager in stagers:
            with stager:
                pass
    assert all("error" not in result for result in results)
    assert sorted(result["reused"] for result in results) == [False] * 3 + [True] * 3
    entries = warm.list_entries(config=config).entries
    assert sorted(entry.state for entry in entries) == ["ready"] * 3
    assert leftovers(config.warm_ram_dir) == []


def test_stager_ahead_that_hangs_ends_the_wait(
    slowfs: SlowFsFactory, copies: Copies, config: Config
) -> None:
    storage = slowfs(copies.take("large").parent)
    model = storage.mount / "m"
    storage.faults.set(HANG)
    with Stager(config, model) as first:
        storage.wait_until_hanging()
        with pytest.raises(fxload.DeadlineError) as caught:
            warm.stage(model, config=config, options=warm.CopyOptions(stall_timeout_s=0.5))
        assert str(config.warm_ram_dir) in str(caught.value)
        storage.faults.clear()
        assert not first.result()["reused"]


def test_removal_that_was_cut_short_is_finished(model: Path, config: Config) -> None:
    staged = warm.stage(model, config=config)
    staging = config.warm_ram_dir / "staging"
    # As a removal leaves it when it dies right after its rename, and halfway through.
    staged.entry.rename(staging / "v1-early")
    (staging / "v1-late/model").mkdir(parents=True)
    (staging / "v1-late/model/weights").write_bytes(bytes(1000))
    assert find(model, config) is None
    freed = {report.store: report.freed_bytes for report in warm.sweep(config=config)}
    assert freed[config.warm_ram_dir] > staged.size_bytes
    assert leftovers(config.warm_ram_dir) == []
