"""The pure decisions: when to try again, what becomes of a job, who waits, how much to claim."""

from __future__ import annotations

import functools
import math
from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota import App, ConfigError, Fatal, InvalidArguments, Retry
from rota.context import Context, SyncContext
from rota.core.arguments import Arguments
from rota.core.demand import prefetch, split_demand
from rota.core.explain import explain
from rota.core.lifecycle import (
    End,
    GiveBack,
    Succeed,
    TryAgain,
    judge,
    judge_lost,
    may_retry,
    needs_mark,
    retry_delay,
    runs_alone,
)
from rota.core.payloads import Limits, json_depth
from rota.core.wheel import Wheel
from rota.model import Failure, Guarantee, Outcome, OutcomeKind, State
from rota.runtime.work import Work
from rota.worker.runners.results import failure_outcome, stopped_outcome

AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE = Guarantee
NOISE = st.floats(0, 1, exclude_max=True)


# -- when to try again


def test_delays_double_until_the_cap():
    retry = Retry(base=2, factor=2, cap=60, jitter=0)
    delays = [retry_delay(retry, attempt, 0.5) for attempt in range(1, 9)]
    assert delays == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_factor_of_one_is_a_fixed_delay():
    retry = Retry(base=7, factor=1, jitter=0)
    assert {retry_delay(retry, attempt, 0.3) for attempt in (1, 2, 50)} == {7}


@given(
    base=st.floats(0, 1e6), factor=st.floats(1, 100), cap=st.floats(0, 1e9),
    jitter=st.floats(0, 1), attempt=st.integers(0, 32_000), noise=NOISE,
)  # fmt: skip
def test_a_delay_is_never_negative_and_within_its_jitter_of_the_cap(
    base, factor, cap, jitter, attempt, noise
):
    retry = Retry(base=base, factor=factor, cap=cap, jitter=jitter)
    delay = retry_delay(retry, attempt, noise)
    assert 0 <= delay <= cap * (1 + jitter) * (1 + 1e-9)
    middle = retry_delay(retry, attempt, 0.5)
    assert middle * (1 - jitter) <= delay * (1 + 1e-9)
    assert delay <= middle * (1 + jitter) * (1 + 1e-9)


def test_jitter_uses_the_whole_of_its_range():
    retry = Retry(base=100, jitter=0.2)
    assert retry_delay(retry, 1, 0.0) == pytest.approx(80)
    assert retry_delay(retry, 1, 0.5) == pytest.approx(100)
    assert retry_delay(retry, 1, 1 - 1e-12) == pytest.approx(120)


@pytest.mark.parametrize(
    "bad",
    [{"max_attempts": 0}, {"max_attempts": 32_001}, {"max_attempts": 1.5}, {"base": -1},
     {"cap": -1}, {"factor": 0.5}, {"jitter": -0.1}, {"jitter": 1.1}],
)  # fmt: skip
def test_a_policy_that_makes_no_sense_is_refused(bad):
    with pytest.raises(ConfigError):
        Retry(**bad)


class Declined(ConnectionError):
    """An exception of the user's own."""


HERE = __name__


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (Declined, True),
        (ConnectionError, True),
        (Exception, True),
        (ValueError, False),
        (f"{HERE}.Declined", True),
        ("ConnectionError", True),
        ("builtins.ConnectionError", True),
        ("OSError", True),
        ("Declined", False),  # of which module?
        ("ValueError", False),
    ],
)
def test_a_rule_matches_a_class_its_bases_and_their_names(rule, matches):
    failure = failure_outcome(Declined("no")).failure
    assert may_retry(Retry(only_on=(rule,)), failure) is matches
    assert may_retry(Retry(never_on=(rule,)), failure) is not matches


def test_never_on_wins_over_only_on():
    failure = failure_outcome(Declined("no")).failure
    assert not may_retry(Retry(only_on=(OSError,), never_on=(Declined,)), failure)
    assert may_retry(Retry(only_on=(OSError,), never_on=(TimeoutError,)), failure)


def test_what_raised_nothing_is_retried_unless_only_some_errors_are():
    crashed = Failure("Crashed", "killed by SIGSEGV")
    assert may_retry(Retry(never_on=(ValueError,)), crashed)
    assert not may_retry(Retry(only_on=(ValueError,)), crashed)


# -- what becomes of a job whose attempt has ended


def tried(attempt=1, max_attempts=5, guarantee=AT_LEAST_ONCE, crashes=0):
    return Work(UUID(int=1), "task", b"{}", 1, attempt, max_attempts, guarantee, crashes=crashes)


def judged(outcome, retry=None, max_crashes=3, **fields):
    policy = retry or Retry(base=10, factor=2, jitter=0)
    return judge(tried(**fields), outcome, policy, max_crashes, 0.5)


def test_a_traceback_has_a_line_for_each_frame_also_where_the_compiler_added_the_code():
    def without_lines() -> None:
        raise ValueError("no")

    def caller() -> None:
        try:
            without_lines()
        except ValueError as error:
            raise ExceptionGroup("several", [error]) from error

    code = without_lines.__code__
    units = len(code.co_code) // 2
    # As the compiler writes "no line": an entry for up to eight instructions.
    table = bytes(0xF8 | (min(8, units - start) - 1) for start in range(0, units, 8))
    without_lines.__code__ = code.replace(co_linetable=table)
    with pytest.raises(ExceptionGroup) as raised:
        caller()

    failure = failure_outcome(raised.value).failure

    assert failure is not None
    assert "in without_lines" in failure.traceback
    assert "line None" not in failure.traceback


RAISED = failure_outcome(ValueError("no"))
TIMED_OUT = stopped_outcome("timeout", "over its timeout")
CRASHED = Outcome(OutcomeKind.CRASHED, failure=Failure("Crashed", "exit code 139"))


def test_success_succeeds_whatever_came_before():
    assert judged(Outcome.succeeded(), attempt=5, crashes=2) == Succeed()


@pytest.mark.parametrize("outcome", [RAISED, TIMED_OUT])
def test_a_failed_attempt_is_repeated_until_none_is_left(outcome):
    assert judged(outcome, attempt=1) == TryAgain(10, 0)
    assert judged(outcome, attempt=4) == TryAgain(80, 0)
    assert judged(outcome, attempt=5) == End(State.FAILED, 0, outcome.failure)
    assert judged(outcome, attempt=1, max_attempts=1) == End(State.FAILED, 0, outcome.failure)


def test_fatal_ends_it():
    outcome = failure_outcome(Fatal("never again"))
    assert judged(outcome) == End(State.FAILED, 0, outcome.failure)


def test_retry_after_says_when_but_not_how_often():
    outcome = failure_outcome(Retry.after(1234))
    assert judged(outcome, attempt=4) == TryAgain(1234, 0)
    assert judged(outcome, attempt=5) == End(State.FAILED, 0, outcome.failure)
    with pytest.raises(ValueError, match="seconds >= 0"):
        Retry.after(-1)
    with pytest.raises(ValueError, match="seconds >= 0"):
        Retry.after(math.nan)


@pytest.mark.parametrize("outcome", [RAISED, TIMED_OUT, CRASHED])
def test_at_most_once_is_never_repeated(outcome):
    verdict = judged(outcome, guarantee=AT_MOST_ONCE)
    assert isinstance(verdict, End)
    assert verdict.state is State.FAILED


def test_a_cancelled_attempt_ends_cancelled():
    assert judged(stopped_outcome("cancel"), attempt=1) == End(State.CANCELLED, 0)


def test_what_a_shutdown_interrupted_is_given_back_unless_it_must_not_run_twice():
    returned = stopped_outcome("shutdown")
    assert judged(returned, attempt=5) == GiveBack()
    assert judged(returned, guarantee=EXACTLY_ONCE) == GiveBack()
    verdict = judged(returned, guarantee=AT_MOST_ONCE)
    assert (verdict.state, verdict.failure.type) == (State.FAILED, "Interrupted")


def test_crashes_add_up_to_a_quarantine_before_attempts_run_out():
    assert judged(CRASHED, attempt=1, max_attempts=1000) == TryAgain(10, 1)
    assert judged(CRASHED, attempt=2, max_attempts=1000, crashes=1) == TryAgain(20, 2)
    verdict = judged(CRASHED, attempt=3, max_attempts=1000, crashes=2)
    assert (verdict.state, verdict.crashes) == (State.FAILED, 3)
    assert verdict.failure.type == "Quarantined"
    assert "3 times" in verdict.failure.message
    assert "exit code 139" in verdict.failure.message


def test_raising_is_no_crash():
    assert judged(RAISED, crashes=2) == TryAgain(10, 2)


# -- what becomes of a job whose node died


def lost(*, started=False, cancelled=False, max_crashes=3, **fields):
    return judge_lost(
        tried(**fields), started=started, cancelled=cancelled, max_crashes=max_crashes
    )


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_a_loss_is_repeated_at_once_even_in_the_last_attempt(guarantee):
    assert lost(guarantee=guarantee) == TryAgain(0.0, 1)
    assert lost(guarantee=guarantee, attempt=5, max_attempts=5) == TryAgain(0.0, 1)


def test_a_lost_at_most_once_job_is_given_back_only_if_it_had_not_begun():
    assert lost(guarantee=AT_MOST_ONCE, started=False) == GiveBack()
    verdict = lost(guarantee=AT_MOST_ONCE, started=True)
    assert (verdict.state, verdict.failure.type) == (State.FAILED, "NodeLost")


@given(
    guarantee=st.sampled_from(Guarantee), attempt=st.integers(1, 9), crashes=st.integers(0, 9),
    started=st.booleans(), cancelled=st.booleans(), max_crashes=st.integers(1, 5),
)  # fmt: skip
def test_a_loss_never_breaks_a_promise(
    guarantee, attempt, crashes, started, cancelled, max_crashes
):
    verdict = lost(
        guarantee=guarantee, attempt=attempt, crashes=crashes, started=started,
        cancelled=cancelled, max_crashes=max_crashes,
    )  # fmt: skip
    if cancelled:
        assert verdict == End(State.CANCELLED, crashes)
    elif guarantee is AT_MOST_ONCE and started:
        assert isinstance(verdict, End)
    elif isinstance(verdict, TryAgain):
        assert verdict.crashes == crashes + 1 < max_crashes
    elif isinstance(verdict, GiveBack):
        assert needs_mark(guarantee, crashes)
        assert not started


def test_a_suspect_is_marked_and_a_prime_suspect_runs_alone():
    assert not needs_mark(AT_LEAST_ONCE, 0)
    assert not needs_mark(EXACTLY_ONCE, 0)
    assert needs_mark(AT_MOST_ONCE, 0)
    assert needs_mark(AT_LEAST_ONCE, 1)
    assert [runs_alone(crashes) for crashes in (0, 1, 2, 3)] == [False, False, True, True]


# -- the timing wheel

MOMENTS = st.floats(0, 1e7, allow_nan=False)


@given(dues=st.lists(MOMENTS, max_size=50), looks=st.lists(MOMENTS, max_size=20))
def test_the_wheel_gives_nothing_early_nothing_twice_and_all_in_order(dues, looks):
    wheel: Wheel[tuple[float, int]] = Wheel()
    for number, due in enumerate(dues):
        wheel.add(due, (due, number))
    given = []
    for now in [*sorted(looks), 1e7 + 1]:
        popped = wheel.pop_due(now)
        assert all(due <= now * (1 + 1e-12) for due, _ in popped)
        # What stayed has at most its slot, a millisecond, to wait.
        given += popped
        assert len(wheel) == len(dues) - len(given)
        assert all(due > now - 0.001 - 1e-6 for due, _ in set(enumerate_items(dues)) - set(given))
    assert len(given) == len(set(given)) == len(dues)
    slots = [math.ceil(due * 1000) for due, _ in given]
    assert slots == sorted(slots)


def enumerate_items(dues):
    return [(due, number) for number, due in enumerate(dues)]


def test_the_wheel_says_when_to_look_next_and_can_be_emptied():
    wheel: Wheel[str] = Wheel()
    assert wheel.next_due() is None
    wheel.add(2.0, "later")
    wheel.add(1.0004, "sooner")
    assert wheel.next_due() == pytest.approx(1.001)
    assert wheel.pop_due(1.0004) == []
    assert wheel.pop_due(wheel.next_due()) == ["sooner"]
    wheel.add(3.0, "last")
    assert (wheel.clear(), len(wheel), wheel.next_due()) == (["later", "last"], 0, None)


# -- how much to claim

LANES = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(
    demand=st.integers(-5, 12) | st.integers(0, 3000), lanes=LANES, turn=st.integers(0, 100),
    found=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 50)),
)  # fmt: skip
def test_demand_is_shared_out_to_the_last_and_never_exceeded(demand, lanes, turn, found):
    shares = split_demand(demand, lanes, found, turn)
    assert set(shares) <= set(lanes)
    assert all(share >= 1 for share in shares.values())
    assert sum(shares.values()) == (max(demand, 0) if lanes else 0)


@given(demand=st.integers(1, 5), lanes=LANES.filter(len))
def test_no_lane_is_forgotten_when_there_isnt_enough_for_all(demand, lanes):
    looked_into = set()
    for turn in range(len(lanes)):
        looked_into |= set(split_demand(demand, lanes, {}, turn))
    assert looked_into == set(lanes)


@given(demand=st.integers(1, 50), count=st.integers(51, 400), first=st.integers(0, 100))
def test_many_lanes_are_looked_into_one_part_after_the_other(demand, count, first):
    lanes = [str(number) for number in range(count)]
    looked_into: set[str] = set()
    for turn in range(first, first + -(-count // demand)):
        looked_into |= set(split_demand(demand, lanes, {}, turn))
    assert len(looked_into) == count


def test_a_lane_with_work_among_many_gets_all_that_is_asked_for_every_other_time():
    lanes = [str(number) for number in range(400)]
    assert split_demand(20, lanes, {"7": 1}, 3) == {"7": 20}
    assert sum(split_demand(20, lanes, {"7": 1}, 4).values()) == 20


def test_lanes_that_had_work_get_what_is_left():
    assert split_demand(10, ["a", "b", "c"], {"b": 5}, 0) == {"a": 1, "b": 8, "c": 1}


@given(demand=st.integers(1, 5), lanes=LANES.filter(len), data=st.data())
def test_with_little_demand_every_other_look_is_at_lanes_that_had_work(demand, lanes, data):
    busy = data.draw(st.lists(st.sampled_from(lanes), unique=True, min_size=1))
    asked: Counter[str] = Counter()
    for turn in range(2 * len(lanes) * len(busy)):
        shares = split_demand(demand, lanes, dict.fromkeys(busy, 1), turn)
        asked.update(shares)
        if turn % 2:
            assert any(lane in busy for lane in shares)
    assert set(asked) == set(lanes), "the others are looked into all the same"
    assert max(asked[lane] for lane in busy) == min(asked[lane] for lane in busy)


@given(rate=st.floats(0, 1e6), limit=st.integers(0, 5000))
def test_prefetch_is_a_tenth_of_a_second_within_its_limit(rate, limit):
    ahead = prefetch(rate, limit)
    assert 0 <= ahead <= limit
    assert ahead <= rate * 0.1


@given(
    rate=st.floats(0, 1e6),
    limit=st.integers(0, 5000),
    size=st.integers(1, 1000),
    seconds=st.floats(0, 1e4),
)
def test_the_longer_jobs_take_the_fewer_are_held_ahead(rate, limit, size, seconds):
    ahead = prefetch(rate, limit, size=size, seconds=seconds)
    assert 0 <= ahead <= prefetch(rate, limit)
    assert prefetch(rate, limit, size=size, seconds=2 * seconds) <= ahead
    if seconds > 0.1:
        assert ahead < size
    else:
        assert ahead == prefetch(rate, limit)


# -- arguments

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner),
    max_leaves=20,
)  # fmt: skip
LIMITS = Limits(1_000_000, 64)


def arguments_of(function):
    return Arguments(function, (Context, SyncContext))


@given(value=JSON, rest=st.lists(JSON, max_size=3))
@settings(max_examples=50)
def test_any_json_value_comes_back_as_it_was(value, rest):
    def take(first, *others, last=None): ...

    arguments = arguments_of(take)
    payload = arguments.encode((value, *rest), {"last": value}, LIMITS)
    args, kwargs = arguments.decode(payload)
    assert (args, kwargs) == ([value, *rest], {"last": value})


@given(value=JSON)
@settings(max_examples=50)
def test_depth_is_counted_as_nested(value):
    def depth(value):
        if isinstance(value, dict):
            return 1 + max(map(depth, value.values()), default=0)
        if isinstance(value, list):
            return 1 + max(map(depth, value), default=0)
        return 0

    def take(value): ...

    payload = arguments_of(take).encode((value,), {}, LIMITS)
    assert json_depth(payload) == 1 + depth(value)


def test_the_context_is_no_argument():
    def annotated(a: int, where: Context): ...

    def named(a: int, ctx): ...

    assert arguments_of(annotated).context_parameter == "where"
    assert arguments_of(named).context_parameter == "ctx"
    with pytest.raises(InvalidArguments, match="where"):
        arguments_of(annotated).encode((), {"a": 1, "where": 2}, LIMITS)


def test_generators_are_refused_when_the_task_is_defined():
    def plain():
        yield 1

    async def coroutine():
        yield 1

    for function in (plain, coroutine, functools.partial(plain)):
        with pytest.raises(ConfigError, match=r"'pages' is a generator: nothing would ever run it"):
            App().task(function, name="pages")


async def test_a_handler_that_returns_what_nobody_runs_has_failed(sandbox):
    ran = []

    def decorated(function):
        return lambda: function()  # what a decorator that knows no coroutines does

    async def greet():
        ran.append(1)

    def numbers():
        ran.append(1)
        yield 1

    for function in (greet, numbers):
        sandbox.app.task(decorated(function), name=function.__name__)
        await sandbox.app.submit(function.__name__)
        [job] = await sandbox.run_due()
        assert (job.state, job.attempt, job.error.type) == ("failed", 1, "NeverRun")
    assert ran == []


def test_annotations_that_cant_travel_are_refused_when_the_task_is_defined():
    def odd(value: complex): ...

    def unresolved(value: NoSuchType): ...  # noqa: F821

    with pytest.raises(ConfigError, match="'unresolved': an annotation can't be resolved"):
        arguments_of(unresolved)
    with pytest.raises((ConfigError, InvalidArguments), match="'odd'"):
        arguments_of(odd).encode((1j,), {}, LIMITS)


# -- explanations that no table can show yet


def test_a_job_that_waits_for_another_says_so():
    assert explain({"state": State.WAITING, "lane": "default/mail"}).code == "waiting"
