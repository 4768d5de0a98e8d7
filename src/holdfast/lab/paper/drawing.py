"""Sections of a report for the studies of the paper's experiments."""

from collections.abc import Callable, Mapping

from holdfast.lab.paper._measured_views import images, speed_up, table1, toy
from holdfast.lab.paper._trained_views import choice_of_k, residual, table, wall_clock
from holdfast.lab.records import Study
from holdfast.lab.report import Collection, Section, study_section
from holdfast.lab.report.figures import View

VIEWS: dict[str, Callable[[Study], tuple[View, ...]]] = {
    "table1": table1,
    "table2": table,
    "table3": table,
    "table4": table,
    "feature-corruption": wall_clock,
    "gradient-corruption": wall_clock,
    "label-corruption": wall_clock,
    "choice-of-k": choice_of_k,
    "large-model": residual,
    "tiny-model": residual,
    "toy": toy,
    "images": images,
    "speed-up": speed_up,
}
"""The tables and figures of each recipe."""


def sections(collection: Collection, notes: Mapping[str, str]) -> tuple[list[Section], list[str]]:
    """Draw the studies of a collection.

    Args:
        collection: studies, runs and measurements.
        notes: how to read the results of a study, by its name.

    Returns:
        The sections, and a sentence for each study that cannot be drawn.
    """
    made: list[Section] = []
    problems: list[str] = []
    for study in collection.studies:
        if study.recipe not in VIEWS:
            problems.append(_not_shown(study, f"this release has no recipe {study.recipe!r}"))
            continue
        try:
            views = VIEWS[study.recipe](study)
        except (LookupError, TypeError, ValueError) as error:
            reason = f"its labels do not fit its recipe ({type(error).__name__}: {error})"
            problems.append(_not_shown(study, reason))
        else:
            made.append(study_section(study, views, collection, notes.get(study.name, "")))
    return made, problems


def _not_shown(study: Study, reason: str) -> str:
    others = " and its measurements are left out" if study.measurements else ""
    return (
        f"The study {study.name} is not shown, because {reason}; "
        f"its runs are listed as other runs{others}."
    )
