"""What jobs ask of a machine: sizes, steps, entries; what a node with a reservation may start."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core import resources
from rota.core.resources import Room, Running, Shape
from rota.errors import ConfigError

GIB = 1 << 30
NAMES = st.sampled_from(("memory", "cpu", "gpu", "licence"))


@pytest.mark.parametrize(
    ("given", "mib"),
    [("2GB", 2048), ("2GiB", 2048), ("2g", 2048), ("512MB", 512), ("1.5GB", 1536), (64 << 20, 64),
     ("1", 64), ("0.1T", 131072), (2 * GIB + 1, 3072)],
)  # fmt: skip
def test_sizes_are_powers_of_1024_and_rounded_up_to_a_step(given, mib):
    assert resources.parse_job({"memory": given}) == {"memory": mib}


def test_a_node_has_what_it_has_and_no_more():
    found = resources.parse_node({"memory": 3 * GIB - 1, "gpu": "2", "cpu": 1.5, "none": 0})
    assert found == {"memory": 3071, "gpu": 200, "cpu": 150, "none": 0}


@given(st.integers(1, 1 << 24))
def test_a_step_is_enough_and_at_most_half_as_much_again(mib):
    step = resources.memory_step(mib)
    assert step >= mib
    assert step <= max(mib * 1.5, 64)
    assert resources.memory_step(step) == step


def test_steps_are_few():
    assert len({resources.memory_step(mib) for mib in range(1, 1 << 18, 7)}) == 25  # up to 256 GB


JOBS = st.dictionaries(NAMES, st.integers(1, 5000).map(lambda n: n / 100), max_size=4)
PARTS = {
    "needs": st.none() | st.lists(st.sampled_from(("cuda", "rocm")), unique=True),
    "near": st.none() | st.sampled_from(("", "model7", "model:8")),
    "seconds": st.none() | st.integers(0, 8_640_000).map(lambda n: n / 100),
}


@given(
    JOBS.filter(lambda job: "memory" not in job), PARTS["needs"], PARTS["near"], PARTS["seconds"]
)
def test_what_is_stored_is_what_was_asked(job, needs, near, seconds):
    stored = resources.demands(needs or [], job, near, seconds, ())
    shape = resources.shape_of(stored)
    assert shape.capabilities == tuple(needs or ())
    assert shape.amounts == {name: round(value * 100) for name, value in job.items()}
    assert shape.near == (near or None)
    lane = "default/queue" + "".join(f"+{need}" for need in sorted(set(stored)))
    assert resources.shape_of_lane(lane + "#0123").amounts == shape.amounts


@given(st.data())
def test_marks_stand_for_what_the_task_declares(data):
    """A process that has the task's code stores the same as one that leaves it to the database."""
    declared = resources.demands(
        data.draw(PARTS["needs"]) or [], data.draw(JOBS), data.draw(PARTS["near"]), None, ()
    )
    asked = data.draw(PARTS["needs"]), data.draw(st.none() | JOBS), data.draw(PARTS["near"]), None
    known = resources.demands(*asked, declared)
    unknown = resources.with_declared(resources.demands(*asked, None), declared)
    assert sorted(known) == sorted(unknown)


def test_what_is_near_and_what_is_said():
    assert resources.shape_of(("gpu=1", "~model7=5", "cuda")) == Shape(
        ("cuda",), {"gpu": 100}, "model7", 5.0
    )
    assert (
        resources.said({"gpu": 150, "memory": 1536, "cpu": 100}) == "cpu=1, gpu=1.5, memory=1.5GB"
    )
    assert resources.to_public({"gpu": 100, "memory": 64}) == {"gpu": 1, "memory": 64 << 20}
    assert resources.parse_pairs(["gpu=2", " memory=16GB "]) == {"gpu": "2", "memory": "16GB"}
    with pytest.raises(ConfigError, match="must be NAME=AMOUNT"):
        resources.parse_pairs(["gpu"])


SHAPES = st.dictionaries(st.sampled_from("ab"), st.integers(1, 4), min_size=1, max_size=2)


@given(st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.integers(0, 9)}), SHAPES)
def test_as_many_fit_as_are_counted_and_not_one_more(free, shape):
    count = resources.how_many(free, shape, 100)
    assert resources.fits(resources.minus(free, shape, count), {}) is True
    assert all(left >= 0 for left in resources.minus(free, shape, count).values())
    assert not resources.fits(resources.minus(free, shape, count), shape)


def test_when_a_shape_fits_is_reckoned_from_what_ends():
    running = [Running({"a": 2}, 5.0), Running({"a": 1}, 1.0), Running({"a": 4}, None)]
    assert resources.free_in({"a": 1}, running, {"a": 1}) == 0.0
    assert resources.free_in({"a": 1}, running, {"a": 2}) == 1.0
    assert resources.free_in({"a": 1}, running, {"a": 4}) == 5.0
    assert resources.free_in({"a": 1}, running, {"a": 5}) is None  # one of them is not known
    assert resources.expected_end(2.0, 10.0, None) == 8.0
    assert resources.expected_end(2.0, 10.0, 3.0) == 1.0
    assert resources.expected_end(4.0, 10.0, 3.0) == 0.0
    assert resources.expected_end(4.0, None, None) is None


def test_beside_a_reservation_starts_what_leaves_room_or_ends_in_time():
    capacity, reserved, small = {"a": 8}, {"a": 4}, {"a": 1}
    beside = resources.backfill(capacity, {"a": 3}, reserved, {"a": 2}, small, 9.0, 10)
    assert beside == Room(2)  # 8 - 4 - 2: what ran before ends at last
    ends = resources.backfill(capacity, {"a": 3}, reserved, {"a": 4}, small, 9.0, 10)
    assert ends == Room(3, 9.0)
    unknown = resources.backfill(capacity, {"a": 3}, reserved, {"a": 4}, small, None, 10)
    assert unknown == Room(0)
    due = resources.backfill(capacity, {"a": 3}, reserved, {"a": 4}, small, 0.0, 10)
    assert due == Room(0)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(2, 10),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(0, 8)), min_size=1),
    st.data(),
)
def test_the_largest_job_waits_for_the_patience_and_the_longest_run_at_most(capacity, kinds, data):
    """A node under endless small jobs, second by second. Each has an amount, a timeout, and runs for no
    longer than that."""
    patience, has = 5, {"a": capacity}
    large = {"a": data.draw(st.integers(1, capacity))}
    longest = max(timeout for _, timeout, _ in kinds)
    running: list[tuple[int, int, dict[str, int], bool]] = []  # end, latest end, amounts, lasting
    turn = 0
    for now in range(patience + longest + 2):
        running = [each for each in running if each[0] > now]
        free = has
        for _, _, amounts, _ in running:
            free = resources.minus(free, amounts)
        if now >= patience and resources.fits(free, large):
            break
        for _ in range(20):
            amount, timeout, less = kinds[turn % len(kinds)]
            turn += 1
            shape = {"a": min(amount, capacity)}
            room = Room(resources.how_many(free, shape, 1))
            if now >= patience:
                lasting: dict[str, int] = {}
                for _, _, amounts, lasts in running:
                    lasting = resources.plus(lasting, amounts) if lasts else lasting
                ends = [Running(amounts, latest - now) for _, latest, amounts, _ in running]
                reserved_in = resources.free_in(free, ends, large)
                room = resources.backfill(has, free, large, lasting, shape, reserved_in, 1)
            if room.count and (room.within is None or timeout <= room.within):
                end = now + max(timeout - less, 1)
                lasts = now >= patience and room.within is None
                running.append((end, now + timeout, shape, lasts))
                free = resources.minus(free, shape)
                assert free["a"] >= 0
    else:
        pytest.fail(f"it still waits after {patience} + {longest} s")
