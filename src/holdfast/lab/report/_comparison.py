"""Runs of several rules under several threats: what each reached, and a sentence about it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from holdfast.lab.report._collection import Collection
from holdfast.lab.report._formatting import DIVERGED, listed, percent
from holdfast.lab.report._outcome import Outcome, outcome
from holdfast.lab.report._run_groups import CLEAN, RunGroup, differing, short_names
from holdfast.lab.report.figures._metrics import accuracy_in_percent

COUNTS = ("steps", "rows", "workers", "local-steps")
"""Settings that are written behind their value: "60 steps"."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@final
@dataclass(frozen=True, kw_only=True)
class Contender:
    """A rule in one setting.

    Args:
        label: the rule, and settings in which it was run more than once.
        setting: other settings that not all contenders have in common; may be empty.
        runs: hashes by threat; a threat that was not run is missing.
        outcomes: by threat.
    """

    label: str
    setting: str
    runs: Mapping[str, tuple[str, ...]]
    outcomes: Mapping[str, Outcome]

    def worst(self, threats: Sequence[str]) -> str | None:
        """Return the threat with the least mean; None if a run of one of them is missing."""
        found = [self.outcomes.get(threat) for threat in threats]
        if any(one is None or one.n_ended == 0 for one in found):
            return None
        return min(threats, key=lambda threat: self.outcomes[threat].height, default=None)


@final
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All contenders, from the best to the worst, and all threats, the clean runs first."""

    contenders: tuple[Contender, ...]
    threats: tuple[str, ...]

    @property
    def judged(self) -> tuple[str, ...]:
        """The attacks, or the clean runs if there is no attack."""
        return tuple(threat for threat in self.threats if threat != CLEAN) or self.threats

    @property
    def is_table(self) -> bool:
        """Whether there are at least two contenders and two threats."""
        return len(self.contenders) > 1 and len(self.threats) > 1

    def verdict(self) -> str:
        """Say in a sentence which contender held, and which did not."""
        judged = self.judged
        worst = [(one, worst) for one in self.contenders if (worst := one.worst(judged))]
        if not worst:
            return "No rule has ended under all threats yet." if judged else ""
        if all(one.outcomes[threat].mean is None for one, threat in worst):
            who = worst[0][0].label if len(worst) == 1 else f"All {len(worst)} rules"
            return f"{who} {DIVERGED}{self._under(judged)}."
        best, threat = worst[0]
        verb = "reached" if judged == (CLEAN,) else "kept"
        at_least = "at least " if len(judged) > 1 else ""
        text = (
            f"{best.label} {verb} {at_least}{best.outcomes[threat].text()} %{self._under(judged)}"
        )
        clean = best.outcomes.get(CLEAN)
        if verb == "kept" and clean is not None and clean.mean is not None:
            text += f" ({percent(clean.mean)} % without attack)"
        return text + (self._contrast(*worst[-1]) if len(worst) > 1 else "") + "."

    def _under(self, threats: Sequence[str]) -> str:
        """Name some of the judged threats, or count them if they are all or more than two."""
        n, n_judged = len(threats), len(self.judged)
        if threats == (CLEAN,):
            return ""
        if n > 1 and n == n_judged:
            return f" under all {n} attacks"
        return f" under {n} of {n_judged} attacks" if n > 2 else f" under {listed(threats)}"

    def _contrast(self, last: Contender, threat: str) -> str:
        result = last.outcomes[threat]
        if threat == CLEAN:
            return (
                f", {last.label} {result.text()} %"
                if result.mean is not None
                else (f"; {last.label} {result.text()}")
            )
        ended = DIVERGED if result.mean is None else f"ended at {result.text()} %"
        if len(self.judged) == 1:
            return f", where {last.label} {ended}"
        lost = [one for one in self.judged if last.outcomes[one].mean is None] or [threat]
        return f"; {last.label} {ended}{self._under(lost)}"


def compare(groups: Sequence[RunGroup], collection: Collection) -> Comparison:
    """Compare groups; settings that differ beside rule and threat tell contenders apart."""
    names = differing(groups)
    of_threat = [name for name in names if name.startswith("threat.")]
    of_rule = [name for name in names if name not in of_threat]
    shares = {group.settings["bad"] for group in groups if group.is_attacked}
    threats = {id(group): _threat(group, of_threat, len(shares) > 1) for group in groups}
    order = {threats[id(group)]: _order(group, threats[id(group)]) for group in groups}
    ordered = sorted(order, key=lambda threat: order[threat])
    contenders = []
    for key in dict.fromkeys(_identity(group, of_rule) for group in groups):
        own = [group for group in groups if _identity(group, of_rule) == key]
        alike = [group for group in groups if group.settings["rule"] == key[0]]
        telling = [name for name in of_rule if len({g.settings.get(name) for g in alike}) > 1]
        runs: dict[str, tuple[str, ...]] = {}
        for group in sorted(own, key=lambda group: order[threats[id(group)]]):
            runs[threats[id(group)]] = (*runs.get(threats[id(group)], ()), *group.hashes)
        others = [name for name in of_rule if name not in telling]
        made = Contender(
            label=", ".join([key[0], *told(own[0], telling, of_rule)]),
            setting=", ".join(told(own[0], others, of_rule)),
            runs=runs,
            outcomes={t: outcome(collection, runs[t], accuracy_in_percent) for t in runs},
        )
        contenders.append(made)
    judged = Comparison(contenders=(), threats=tuple(ordered)).judged
    contenders.sort(key=lambda one: (_rank(one, judged), one.label))
    return Comparison(contenders=tuple(contenders), threats=tuple(ordered))


def _identity(group: RunGroup, names: Sequence[str]) -> tuple[str, ...]:
    return (group.settings["rule"], *(group.settings.get(name, "") for name in names))


def _threat(group: RunGroup, names: Sequence[str], has_shares: bool) -> str:
    """Return the name of a threat, with its share of bad rows where shares differ."""
    share = [group.settings["bad"]] if has_shares and group.is_attacked else []
    return ", ".join([group.settings["threat"], *share, *told(group, names, names)])


def _order(group: RunGroup, threat: str) -> tuple[bool, str, list[float], str]:
    numbers = [float(found) for found in _NUMBER.findall(threat)]
    return group.is_attacked, group.settings["threat"], numbers, threat


def told(group: RunGroup, names: Sequence[str], among: Sequence[str]) -> list[str]:
    """Describe the settings of these names; `among` are all from which short names tell apart."""
    short = dict(zip(among, short_names(among), strict=True))
    words = []
    for name in names:
        key, value = short[name], group.settings.get(name)
        if value is not None:
            is_flag = value == "true"
            words.append(
                f"{value} {key}" if key in COUNTS else key if is_flag else f"{key} {value}"
            )
    return words


def _rank(contender: Contender, judged: Sequence[str]) -> tuple[bool, float, float]:
    """Return a key that sorts the best first, and those that have not ended last."""
    worst = contender.worst(judged)
    clean = contender.outcomes.get(CLEAN, Outcome(n_wanted=0))
    return worst is None, -contender.outcomes[worst].height if worst else 0.0, -clean.height
