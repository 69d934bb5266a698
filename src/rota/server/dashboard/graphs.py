"""Draw the graph of a run as SVG: steps in topological layers, from left to right.

Many steps of one task in a layer are folded into one box with counts, so that a graph of ten thousand
steps is as easy to read as one of ten.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from markupsafe import Markup

from rota.model import GraphStep, MapProgress
from rota.server.dashboard.words import SHAPES

_FOLD_FROM = 9  # steps of one layer and task
_MOST_IN_A_LAYER = 60  # boxes
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 190, 42, 56, 14, 8
_LETTERS = 23  # of a name in a box
# What a folded box is shown as: the first of these that one of its steps is in.
_WORST = (
    "failed", "running", "upstream_failed", "cancelled", "waiting", "skipped", "succeeded"
)  # fmt: skip

_READABLE, _WIDEST_TO_FIT = 860, 1400  # see rota.css
_SVG = Markup(
    '<svg class="{3}" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img" aria-label="{2}">'
    "{4}</svg>"
)
_BOX = Markup(
    '<g class="is-{0}"><title>{1}</title><rect x="{2}" y="{3}" width="{4}" height="{5}" rx="6"/>'
    '<text x="{6}" y="{7}">{8}</text><text class="second" x="{6}" y="{9}">{10}</text></g>'
)
_EDGE = Markup('<path class="{0}" d="M{1} {2}C{3} {2} {3} {4} {5} {4}"/>')


class Box(msgspec.Struct):
    """A step, or several that are folded."""

    name: str
    states: Counter[str]
    layer: int
    row: float = 0.0
    after: set[int] = msgspec.field(default_factory=set)
    critical: bool = False
    note: str = ""  # of a map: how far it has come

    @property
    def state(self) -> str:
        return next(state for state in _WORST if self.states[state])

    @property
    def text(self) -> str:
        if self.note and self.states.total() == 1:
            return self.note
        if self.states.total() == 1:
            return self.state.replace("_", " ")
        return ", ".join(
            f"{self.states[s]:,} {s.replace('_', ' ')}" for s in _WORST if self.states[s]
        )


def draw(steps: Sequence[GraphStep], critical: frozenset[int] = frozenset()) -> Markup:
    """Draw a graph. Steps on the critical path are marked."""
    boxes = _boxes(steps, critical)
    _arrange(boxes)
    columns = 1 + max(box.layer for box in boxes)
    rows = 1 + max(box.row for box in boxes)
    width = 2 * _MARGIN + columns * _WIDTH + (columns - 1) * _GAP_X
    height = 2 * _MARGIN + int(rows * (_HEIGHT + _GAP_Y)) - _GAP_Y
    drawn = Markup("")
    for box in boxes:
        x, y = _place(box)
        for number in sorted(box.after):
            other = boxes[number]
            from_x, from_y = _place(other)
            begin, middle = from_x + _WIDTH, _GAP_X // 2
            kind = "edge critical" if box.critical and other.critical else "edge"
            drawn += _EDGE.format(
                kind, begin, from_y + _HEIGHT // 2, begin + middle, y + _HEIGHT // 2, x
            )
    for box in boxes:
        x, y = _place(box)
        name = box.name if len(box.name) <= _LETTERS else box.name[: _LETTERS - 1] + "…"
        drawn += _BOX.format(
            box.state, f"{box.name}: {box.text}", x, y, _WIDTH, _HEIGHT, x + 12, y + 17,
            f"{SHAPES.get(box.state, '•')} {name}", y + 34, box.text,
        )  # fmt: skip
    # A little too wide is made smaller, until its words are hard to read; what is wider is scrolled.
    looks = "graph fits" if _READABLE < width <= _WIDEST_TO_FIT else "graph"
    return _SVG.format(width, height, _sentence(steps), looks, drawn)


def _place(box: Box) -> tuple[int, int]:
    x = _MARGIN + box.layer * (_WIDTH + _GAP_X)
    return x, int(_MARGIN + box.row * (_HEIGHT + _GAP_Y))


def _sentence(steps: Sequence[GraphStep]) -> str:
    counts = Counter(step.state for step in steps)
    said = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in counts.items())
    return f"Graph of {len(steps):,} steps: {said}"


def _boxes(steps: Sequence[GraphStep], critical: frozenset[int]) -> list[Box]:
    layers = _layers(steps)
    crowds = Counter((layers[step.number], step.task) for step in steps)
    many = Counter(layers[step.number] for step in steps)
    boxes: list[Box] = []
    folded: dict[tuple[int, str | None], int] = {}
    of_step: dict[int, int] = {}
    for step in steps:
        layer = layers[step.number]
        kind = (layer, step.task if many[layer] <= _MOST_IN_A_LAYER * 50 else None)
        folds = crowds[layer, step.task] >= _FOLD_FROM or many[layer] > _MOST_IN_A_LAYER
        place = folded.get(kind) if folds else None
        if place is None:
            place = len(boxes)
            name = f"{crowds[layer, step.task]:,} of {step.task}" if folds else step.name
            boxes.append(Box(name, Counter(), layer))
            if folds:
                folded[kind] = place
        box = boxes[place]
        box.states[step.state] += 1
        if step.progress is not None:
            box.note = _short_progress(step.progress)
        box.critical = box.critical or step.number in critical
        box.after.update(of_step[number] for number in step.after)
        of_step[step.number] = place
    return boxes


def _short_progress(progress: MapProgress) -> str:
    done = progress.succeeded + progress.failed + progress.under_way
    failed = f", {progress.failed:,} failed" if progress.failed else ""
    return f"{done:,} of {progress.members:,}{failed}"


def _layers(steps: Sequence[GraphStep]) -> Mapping[int, int]:
    """Return the layer of each step: one more than the last that it comes after."""
    layers: dict[int, int] = {}
    for step in steps:  # by number, which is topological
        layers[step.number] = 1 + max((layers[number] for number in step.after), default=-1)
    return layers


def _arrange(boxes: list[Box]) -> None:
    """Give each box a row in its layer, near those that it comes after."""
    columns: dict[int, list[Box]] = defaultdict(list)
    for box in boxes:
        columns[box.layer].append(box)
    tallest = max(len(column) for column in columns.values())
    for layer in sorted(columns):
        column = columns[layer]
        column.sort(key=lambda box: _middle([boxes[number].row for number in box.after]))
        top = (tallest - len(column)) / 2
        for row, box in enumerate(column):
            box.row = top + row


def _middle(rows: Sequence[float]) -> float:
    return sum(rows) / len(rows) if rows else 0.0


def critical_path(steps: Sequence[GraphStep]) -> frozenset[int]:
    """Return the steps that decided when the run ended: from the last, always the latest before it."""
    by_number = {step.number: step for step in steps}
    ended = [step for step in steps if step.ended_at is not None and step.started_at is not None]
    if not ended:
        return frozenset()
    step = max(ended, key=lambda each: each.ended_at or each.started_at)  # type: ignore[arg-type,return-value]
    path = {step.number}
    while True:
        before = [by_number[number] for number in step.after]
        before = [each for each in before if each.ended_at is not None]
        if not before:
            return frozenset(path)
        step = max(before, key=lambda each: each.ended_at)  # type: ignore[arg-type,return-value]
        path.add(step.number)
