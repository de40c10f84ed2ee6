"""What `statesize` and `restore` measure, with state so small that it takes no time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from strom.benchmarks import cli, restore
from strom.benchmarks.restart import measure_restarts
from strom.benchmarks.restore import measure_restores
from strom.benchmarks.statesize import ACCESSES, ROW_BYTES, measured


@pytest.mark.parametrize("face", ROW_BYTES)
def test_state_grows_beyond_its_memory(face: str) -> None:
    small, large = measured(face, 2 << 20, 256 << 10, 0.05, 2)
    assert small["bytes"] * 2 == pytest.approx(large["bytes"], rel=0.01)
    assert large["keys"] == (2 << 20) // ROW_BYTES[face]
    for line in (small, large):
        assert all(line[f"{access}_per_s"] > 0 for access in (*ACCESSES,))
        assert line["fill_per_s"] > 0
        assert line["rss_mb"] >= 0
    assert 0 < small["state.entries.spilled"] < large["state.entries.spilled"]
    assert large["state.entries.loaded"] > 0


def test_an_unknown_face_is_named() -> None:
    with pytest.raises(SystemExit, match=r"no face \['round'\]: there are values, columns"):
        list(cli.run(cli.parser().parse_args(["statesize", "--faces", "round"])))


def test_a_job_goes_on_from_the_state_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "CHECKPOINT_EVERY", timedelta(milliseconds=50))
    monkeypatch.setattr(restore, "SLACK", 1_000)
    found = list(measure_restores(1 << 20, ["rocksdb"], [1, 2], "local"))
    assert [(line["from"], line["to"]) for line in found] == [(1, 1), (1, 2)]
    for line in found:
        assert line["checkpoint_bytes"] > line["bytes"] / 2, "all keys are in it"
        assert line["first_record_s"] > 0


def test_a_job_restarts_without_copies_and_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "CHECKPOINT_EVERY", timedelta(milliseconds=50))
    monkeypatch.setattr(restore, "SLACK", 1_000)
    found = list(measure_restarts(1 << 20, ["memory"], [2], "local"))
    assert [line["local_recovery"] for line in found] == [False, True]
    for line in found:
        assert line["first_record_s"] > 0
        assert line["restored_bytes"] > line["bytes"] / 2, "all keys are in it"
        local = line["restored_bytes"] if line["local_recovery"] else 0
        assert line["restored_local_bytes"] == local


def test_the_manifest_of_a_large_job_is_measured() -> None:
    options = ["manifest", "--subtasks", "200", "--states", "3", "--layers", "2", "--json"]
    (line,) = cli.run(cli.parser().parse_args(options))
    assert (line["subtasks"], line["states"], line["layers"]) == (200, 3, 2)
    assert line["bytes"] < 200 * 3 * 2 * 6_000, "164 key groups each"
    assert line["encode_s"] >= 0 <= line["decode_s"]
    few = ["manifest", "--subtasks", "1000", "--key-groups", "3277", "--json"]
    (line,) = cli.run(cli.parser().parse_args(few))
    assert line["bytes_per_layer"] < 500
