"""Which copies of its checkpoints' files a task keeps: scripted, and against a model by seeds."""

from __future__ import annotations

import random

import pytest
from strom.checkpoint.handles import FileHandle
from strom.checkpoint.local_copies import LocalCopies, copy_name
from strom.core.ids import CheckpointId

N = CheckpointId


def made(copies: LocalCopies, n: int, *names: str) -> None:
    for name in names:
        assert copies.made(N(n), name)
    copies.validate()


def test_copies_are_called_as_the_files_are() -> None:
    own = FileHandle("a.arrow", 1, "0" * 16)
    shared = FileHandle("3-a.pack", 1, "0" * 16, shared=True, offset=8)
    assert copy_name(N(7), own) == "chk-7/a.arrow"
    assert copy_name(N(7), shared) == "shared/3-a.pack"


def test_the_newest_complete_checkpoint_is_kept_and_what_is_open() -> None:
    copies = LocalCopies()
    made(copies, 1, "shared/1-base", "chk-1/own")
    copies.written(N(1), ["shared/1-base", "chk-1/own"])
    assert copies.completed(N(1)) == []
    made(copies, 2, "shared/2-delta", "chk-2/own")
    copies.written(N(2), ["shared/1-base", "shared/2-delta", "chk-2/own"])
    made(copies, 3, "chk-3/own")  # while 2 is being published
    assert copies.completed(N(2)) == ["chk-1/own"]
    assert copies.held == {"shared/1-base", "shared/2-delta", "chk-2/own", "chk-3/own"}
    copies.written(N(3), ["chk-3/own"])  # a new base: nothing of before is needed
    assert copies.completed(N(3)) == ["chk-2/own", "shared/1-base", "shared/2-delta"]
    assert copies.held == {"chk-3/own"}
    copies.validate()


def test_what_was_made_for_a_failed_checkpoint_goes_and_its_base_stays() -> None:
    copies = LocalCopies()
    made(copies, 1, "shared/1-base")
    copies.written(N(1), ["shared/1-base"])
    copies.completed(N(1))
    made(copies, 2, "shared/2-delta")
    copies.written(N(2), ["shared/1-base", "shared/2-delta"])
    assert copies.aborted(N(2)) == ["shared/2-delta"]
    assert not copies.made(N(2), "chk-2/late"), "nobody wants it any more"
    copies.written(N(2), ["chk-2/late"])
    assert copies.held == {"shared/1-base"}
    copies.validate()


def test_one_that_is_aborted_leaves_the_others_open() -> None:
    copies = LocalCopies()
    for n in (1, 2, 3):
        made(copies, n, f"chk-{n}/a")
    copies.written(N(3), ["shared/0-base", "chk-3/a"])
    assert copies.aborted(N(2)) == ["chk-2/a"]
    assert copies.held == {"chk-1/a", "chk-3/a"}
    assert copies.made(N(1), "chk-1/b")
    assert copies.completed(N(3)) == ["chk-1/a", "chk-1/b"]
    assert not copies.made(N(1), "chk-1/c")
    assert copies.completed(N(2)) == [], "it comes too late, and harms nothing"
    copies.validate()


def test_what_an_open_one_names_is_held_though_the_complete_one_does_not() -> None:
    copies = LocalCopies()
    made(copies, 1, "shared/1-a", "shared/1-b")
    copies.written(N(1), ["shared/1-a", "shared/1-b"])
    copies.completed(N(1))
    copies.written(N(2), ["shared/1-a"])
    copies.written(N(3), ["shared/1-b"])
    assert copies.completed(N(2)) == []
    copies.validate()
    assert copies.completed(N(3)) == ["shared/1-a"]
    copies.validate()


def test_what_a_former_attempt_left_goes_but_for_what_was_restored() -> None:
    copies = LocalCopies()
    left = ["chk-4/mine", "chk-4/anothers", "shared/2-base", "chk-5/torn", "shared/half.tmp"]
    needs = ["chk-4/mine", "chk-4/anothers", "shared/2-base", "chk-4/of-another-machine"]
    assert copies.began(needs, left) == ["chk-5/torn", "shared/half.tmp"]
    assert copies.held == {"chk-4/mine", "chk-4/anothers", "shared/2-base"}
    # Checkpoints of this attempt build on nothing of that: it goes with the first of them.
    made(copies, 6, "shared/6-base")
    copies.written(N(6), ["shared/6-base"])
    assert copies.completed(N(6)) == ["chk-4/anothers", "chk-4/mine", "shared/2-base"]
    assert copies.held == {"shared/6-base"}


def test_without_a_checkpoint_to_start_from_all_goes() -> None:
    assert LocalCopies().began([], ["chk-1/a", "shared/1-b"]) == ["chk-1/a", "shared/1-b"]


def test_a_task_that_is_over_makes_no_more() -> None:
    copies = LocalCopies()
    made(copies, 1, "chk-1/a")
    copies.close()
    assert not copies.made(N(1), "chk-1/b")


@pytest.mark.parametrize("seed", range(200))
def test_by_seeds_the_complete_checkpoint_is_held_and_nothing_without_use(seed: int) -> None:
    """A task writes checkpoints over the newest complete one, some fail, some copies are lost, and
    its mail may be late; attempts follow each other. The disk is a set of names."""
    rng = random.Random(seed)
    disk: set[str] = set()
    n, complete = 0, 0
    needs: dict[int, set[str]] = {0: set()}
    lost: set[str] = set()
    for _ in range(3):
        copies = LocalCopies()
        started = complete
        disk.difference_update(copies.began(needs[complete], disk))
        assert disk <= needs[complete]
        mail: list[tuple[str, int]] = []
        in_attempt = 0
        for _ in range(rng.randint(1, 12)):
            n += 1
            layers = needs[complete] if in_attempt and rng.random() < 0.7 else set()
            base = {name for name in layers if name.startswith("shared/")}
            files = {f"chk-{n}/{i}" for i in range(rng.randint(0, 2))}
            files |= {f"shared/{n}-{i}" for i in range(rng.randint(0, 2))}
            fails = rng.random() < 0.3
            for name in sorted(files)[: rng.randint(0, 4) if fails else None]:
                if rng.random() < 0.1:
                    lost.add(name)  # a disk that was full
                else:
                    disk.add(name)
                    assert copies.made(N(n), name)
            if not fails or rng.random() < 0.5:
                needs[n] = files | base
                copies.written(N(n), needs[n])
            if not fails:
                complete = in_attempt = n
            mail.append(("aborted" if fails else "completed", n))
            if rng.random() < 0.6:
                for event, m in mail:
                    disk.difference_update(getattr(copies, event)(N(m)))
                mail.clear()
                kept = needs[complete] if in_attempt else needs[started]
                assert disk == copies.held == disk & kept, "nothing without use"
            copies.validate()
            assert needs[complete] - lost <= disk, "the complete checkpoint is held"
        copies.close()
        if rng.random() < 0.5:
            disk.add(f"shared/{seed}.tmp")  # it was killed while it wrote
