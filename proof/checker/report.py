"""What the checker says: what each rule looked at, what it found, and the figures of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from proof.checker.facts import Facts

_NAME_WIDTH = 38


class Violation(msgspec.Struct, frozen=True):
    """A promise that was not kept, in a sentence, and the lines of the history that show it."""

    rule: str
    subject: str
    sentence: str
    evidence: tuple[str, ...] = ()


# Counts what a rule has looked at, by the names in its `looks_at`.
Tally = Counter[str]
Found = Iterator[tuple[str, str, tuple[str, ...]]]  # subject, sentence, evidence


class Rule(msgspec.Struct, frozen=True):
    number: int
    name: str
    looks_at: tuple[str, ...]
    check: Callable[[Facts, Tally], Found]


class Finding(msgspec.Struct, frozen=True):
    """What one rule saw."""

    rule: Rule
    examined: dict[str, int]
    violations: list[Violation]

    @property
    def unseen(self) -> list[str]:
        """What it should have looked at, and there was none of."""
        return [what for what, count in self.examined.items() if count == 0]


class Report(msgspec.Struct, frozen=True):
    title: str
    findings: list[Finding]
    figures: dict[str, str]

    @property
    def violations(self) -> list[Violation]:
        return [violation for finding in self.findings for violation in finding.violations]

    @property
    def unseen(self) -> list[str]:
        """Rules that looked at nothing of some kind: a run that wants to prove them can insist."""
        return [f"{f.rule.name}: {what}" for f in self.findings for what in f.unseen]

    def unseen_of(self, rule: str) -> list[str]:
        return next(finding.unseen for finding in self.findings if finding.rule.name == rule)

    @property
    def ok(self) -> bool:
        return not self.violations

    def text(self) -> str:
        parts = [self.title, ""]
        parts += [_finding_line(finding) for finding in self.findings]
        parts += ["", "Stats"]
        parts += [f"      {name:<22}{value}" for name, value in self.figures.items()]
        for finding in self.findings:
            parts += _violation_lines(finding)
        return "\n".join([*parts, "", self._verdict()])

    def _verdict(self) -> str:
        if self.ok:
            verdict = f"Every promise was kept: {len(self.findings)} rules, no violation."
        else:
            broken = sum(bool(finding.violations) for finding in self.findings)
            verdict = (
                f"NOT KEPT: {_many(len(self.violations), 'violation')} of {_many(broken, 'rule')}."
            )
        if self.unseen:
            verdict += f" Nothing was there to be seen for: {'; '.join(self.unseen)}."
        return verdict


def apply_rule(rule: Rule, facts: Facts) -> Finding:
    tally: Tally = Counter()
    violations = [Violation(rule.name, *found) for found in rule.check(facts, tally)]
    return Finding(rule, {what: tally[what] for what in rule.looks_at}, violations)


def line(source: str, record: Any) -> str:
    """A line of evidence: where it stands, and what it says."""
    return f"{source}: {msgspec.json.encode(record).decode()}"


def _finding_line(finding: Finding) -> str:
    rule = finding.rule
    seen = ", ".join(f"{count:,} {what}" for what, count in finding.examined.items() if count)
    if finding.unseen:
        seen = ", ".join(
            part for part in (seen, f"EXAMINED 0: {', '.join(finding.unseen)}") if part
        )
    mark = "XX" if finding.violations else "!!" if finding.unseen else "ok"
    broken = f"  {_many(len(finding.violations), 'VIOLATION')}" if finding.violations else ""
    return f"  {mark} {rule.number:>2}  {rule.name:<{_NAME_WIDTH}}{seen}{broken}"


def _violation_lines(finding: Finding) -> list[str]:
    lines = ["", f"{finding.rule.number}  {finding.rule.name}"] if finding.violations else []
    for violation in finding.violations:
        lines.append(f"   {violation.subject}: {violation.sentence}")
        lines += [f"      {each}" for each in violation.evidence]
    return lines


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 'S' if what.isupper() else 's'}"
