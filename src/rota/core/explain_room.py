"""Explains a job that waits for resources, or for a node with its label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.core.resources import (
    Amounts,
    Shape,
    fits,
    from_json,
    minus,
    said,
    said_one,
    shape_of_lane,
)

_NAMED = 3  # jobs that are named for each node
_NODES = 3


class Holder(msgspec.Struct, frozen=True):
    """A job that runs on a machine, and its lane."""

    id: str
    lane: str


class Machine(msgspec.Struct, frozen=True):
    """A live worker of the job's queue, with the capabilities that it needs."""

    name: str
    resources: dict[str, float] = {}
    labels: tuple[str, ...] = ()
    holders: Sequence[Holder] = ()
    reserved: str | None = None  # the lane that it makes room for

    def free(self) -> dict[str, int]:
        left: Amounts = from_json(self.resources)
        for holder in self.holders:
            left = minus(left, amounts_of(holder.lane))
        return dict(left)


def amounts_of(lane: str) -> Amounts:
    return shape_of_lane(lane).amounts


def explain_unfit(facts: Mapping[str, Any]) -> tuple[str, str] | None:
    """Explain a job that no live node could fit even if nothing else ran there."""
    shape, machines = _asked(facts)
    if not shape.amounts or not machines:
        return None
    amounts = [from_json(machine.resources) for machine in machines]
    if any(fits(each, shape.amounts) for each in amounts):
        return None
    lacking = []
    for name, units in sorted(shape.amounts.items()):
        most = max(each.get(name, 0) for each in amounts)
        if most < units:
            largest = f"the largest node has {name}={said_one(name, most)}"
            lacking.append(
                f"needs {name}={said_one(name, units)}; {largest if most else f'no node has {name}'}"
            )
    if lacking:
        return "resources_unfit", f"No live node can fit it: it {'; it '.join(lacking)}."
    return "resources_unfit", (
        f"No live node can fit it: it needs {said(shape.amounts)} together, and each node has too "
        "little of one of them."
    )


def explain_room(facts: Mapping[str, Any]) -> tuple[str, str] | None:
    """Explain a ready job for which no node has room now, or that waits for a node with its label."""
    shape, machines = _asked(facts)
    able = [each for each in machines if fits(from_json(each.resources), shape.amounts)]
    labelled = [each for each in able if shape.near in each.labels]
    now, due = facts["now"], facts["due_at"]
    others_from = due + timedelta(seconds=shape.near_seconds)
    if shape.near is not None and now < others_from:
        able = labelled
        if not labelled:
            return "waiting_for_label", (
                f"It is near {shape.near!r}, and no live worker that could run it has that label; "
                f"others may claim it from {_moment(others_from)} on."
            )
    roomy = [each for each in able if fits(each.free(), shape.amounts)]
    if shape.amounts and roomy and all(_is_kept_for_another(each, facts["lane"]) for each in roomy):
        return "waiting_for_resources", _kept(roomy)
    if not shape.amounts or roomy:
        if shape.near is not None and now < others_from:
            return "waiting_for_label", (
                f"It is near {shape.near!r}: {_workers(len(labelled))} with that label may claim it "
                f"now, others from {_moment(others_from)} on."
            )
        return None
    nodes = "; ".join(_held(each, shape) for each in able[:_NODES])
    more = f"; and {len(able) - _NODES} more" if len(able) > _NODES else ""
    sentence = f"It waits until a node has {said(shape.amounts)} free: {nodes}{more}."
    if facts.get("reserved_on"):
        sentence += f" Node {facts['reserved_on']} makes room for the oldest job of its kind."
    return "waiting_for_resources", sentence


def _is_kept_for_another(machine: Machine, lane: str) -> bool:
    return machine.reserved is not None and _base(machine.reserved) != _base(lane)


def _base(lane: str) -> str:
    return lane.partition("#")[0]


def _kept(machines: Sequence[Machine]) -> str:
    nodes = "; ".join(
        f"{each.name} makes room for {said(amounts_of(each.reserved or ''))}"
        for each in machines[:_NODES]
    )
    more = f"; and {len(machines) - _NODES} more" if len(machines) > _NODES else ""
    return (
        f"It waits for a larger job that has waited for longer: {nodes}{more}. Until then such a node "
        "starts what leaves enough for that, or what has a timeout that ends in time."
    )


def _held(machine: Machine, shape: Shape) -> str:
    has, free = from_json(machine.resources), machine.free()
    held = ", ".join(
        f"{name}={said_one(name, has.get(name, 0) - free.get(name, 0))} of "
        f"{said_one(name, has.get(name, 0))}"
        for name in sorted(shape.amounts)
    )
    names = [each.id for each in machine.holders if set(amounts_of(each.lane)) & set(shape.amounts)]
    by = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return f"on {machine.name} {held} is held" + (f" by {by}" if by else "")


def _asked(facts: Mapping[str, Any]) -> tuple[Shape, list[Machine]]:
    return shape_of_lane(facts["lane"]), list(facts.get("machines") or ())


def _workers(count: int) -> str:
    return "1 live worker" if count == 1 else f"{count} live workers"


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
