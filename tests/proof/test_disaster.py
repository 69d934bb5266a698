"""A region that is lost under load: every job is accounted for."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from proof import disaster
from proof.history import OK, Beat
from rota.operations.recovery import Recovery, UncertainJob

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def beat(job: int, event: str, task: str = "plain", at: float = 1.0) -> Beat:
    return Beat(at, event, str(UUID(int=job)), task, 1, 1, "worker", outcome=OK * (event == "end"))  # type: ignore[arg-type]


def found(*listed: int) -> Recovery:
    jobs = [UncertainJob(UUID(int=n), "default", "at_most", "q", "ready", NOW) for n in listed]
    return Recovery(
        installation=None, copied=False, restored=True, last_seen=None, now=NOW, may_have_run=jobs,
        will_run=[], schedules=[],
    )  # fmt: skip


def test_what_is_missing_from_the_list_or_began_twice_is_told() -> None:
    before = [beat(1, "start"), beat(1, "end"), beat(2, "start", "at_most"), beat(4, "start")]
    after = [*before, beat(2, "start", "at_most"), beat(3, "start")]
    told = disaster.account(
        {str(UUID(int=number)): 0.0 for number in (1, 2, 3, 4, 5)}, before, after, found(),
        {str(UUID(int=number)): state for number, state in {1: 5, 2: 2, 3: 2, 5: 2}.items()},
        Counter({str(UUID(int=1)): 2}), 0.0, 0.0,
    )  # fmt: skip
    assert (told.ran, told.will_run, told.gone, told.gone_but_ran) == (1, 3, 1, 1)
    assert [sentence.partition(" ")[2] for sentence in told.broken] == [
        "runs at most once, began before the loss, and is not on the list",
        "is at_most_once and began twice",
        "effect of 00000000-0000-0000-0000-000000000001 happened 2 times",
        "never began",
    ]


def test_a_job_on_the_list_is_accounted_for() -> None:
    before = [beat(2, "start", "at_most")]
    told = disaster.account(
        {str(UUID(int=2)): 0.0},
        before,
        before,
        found(2),
        {str(UUID(int=2)): 2},
        Counter(),
        0.0,
        0.0,
    )
    assert (told.may_have_run, told.may_have_run_and_did, told.broken) == (1, 1, [])


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_a_lost_region_s_standby_takes_over_and_every_job_is_accounted_for() -> None:
    """The small version of `make disaster`."""
    folder = Path(tempfile.mkdtemp(prefix="rota-disaster-"))
    folder.chmod(0o711)
    told = await disaster.run(folder, rate=60, jobs=200, behind=60)
    assert told.broken == []
    assert told.ran > 0
    assert told.gone > 0
    assert told.may_have_run > 0
    assert told.acknowledged == told.ran + told.will_run + told.may_have_run + told.gone
    shutil.rmtree(folder)
