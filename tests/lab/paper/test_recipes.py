"""Every recipe, in every variant and size, is a plan that fits together."""

import functools
import json
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from holdfast.lab.config import (
    Config,
    config_from_json,
    config_to_json,
    format_rule,
    format_threat,
    hash_of,
)
from holdfast.lab.optimizers import Adam, Sgd
from holdfast.lab.paper import Plan, Size, Variant, recipes, study_of
from holdfast.lab.partitions import Shards, Shuffled
from holdfast.lab.records import Study
from holdfast.lab.schedules import Cosine, CosineRestarts, Exponential
from holdfast.lab.training import run
from holdfast.robust_step import MeanMemory, RowMemory
from holdfast.threats import NoisyRows, ScaledFlip

CASES: list[tuple[str, Variant, Size]] = [
    (name, variant, size)
    for name, recipe in recipes.items()
    for variant, size in product(recipe.variants, get_args(Size))
]


@functools.cache
def plan_of(name: str, variant: Variant, size: Size, n_seeds: int = 2) -> Plan:
    return recipes[name].plan(variant, size, range(n_seeds))


def test_plans_and_their_studies_are_plain_values() -> None:
    for name, variant, size in CASES:
        plan = plan_of(name, variant, size, 1)
        assert plan.title, name
        assert plan.about, name
        for config in plan.configs:
            assert config_from_json(json.loads(json.dumps(config_to_json(config)))) == config
        study = study_of(recipes[name], plan, variant, size, 1)
        assert Study.from_json(json.loads(json.dumps(study.to_json()))) == study
        assert study.name == f"{name}-{variant}-{size}"
        assert (study.recipe, study.variant, study.size) == (name, variant, size)


def test_no_run_is_planned_twice_and_the_seeds_of_a_cell_have_the_same_labels() -> None:
    for name, variant, size in CASES:
        plan = plan_of(name, variant, size)
        study = study_of(recipes[name], plan, variant, size)
        assert len(study.runs) == len(plan.runs), name
        assert len(study.measurements) == len(plan.measured), name
        seeds: dict[str, list[int]] = {}
        for config, labels in plan.runs:
            seeds.setdefault(json.dumps(labels), []).append(config.seed)
        assert all(some == [0, 1] for some in seeds.values()), name
        places = [json.dumps(labels) for _, labels in plan.measured]
        assert len(places) == len(set(places)), name


def test_studies_stand_in_the_order_of_the_recipes_and_name_their_command() -> None:
    studies = [
        study_of(recipe, plan_of(name, "paper", "smoke", 1), "paper", "smoke")
        for name, recipe in recipes.items()
    ]
    assert [study.place for study in studies] == sorted({study.place for study in studies})
    assert studies[0].command == ("holdfast", "reproduce", "table1", "--size", "smoke")
    published = study_of(
        recipes["table2"], plan_of("table2", "published", "quick", 2), "published", "quick", 2
    )
    assert published.command == (
        "holdfast",
        "reproduce",
        "table2",
        "--size",
        "quick",
        "--variant",
        "published",
        "--seeds",
        "2",
    )


def test_quick_is_long_enough_and_says_its_steps() -> None:
    for name, variant, size in CASES:
        plan = plan_of(name, variant, size, 1)
        for config in plan.configs:
            if size == "quick":
                assert config.n_steps >= 600, name
                assert config.row_size == 16, name
                assert getattr(config.optimizer, "momentum", 0.9) == 0.9, name
            if size != "smoke":
                assert f"{config.n_steps:,} steps" in plan.about, name
            assert (config.data == "fashion-mnist-slice") == (size == "smoke"), name


def test_one_seed_is_everywhere_before_the_others_come_line_by_line() -> None:
    configs = plan_of("table2", "paper", "quick", 3).configs
    assert [config.seed for config in configs[:55]] == [0] * 55
    urgent = configs[55:105]
    assert [config.seed for config in urgent] == ([1] * 5 + [2] * 5) * 5
    assert {format_threat(config.threat) for config in urgent} == {
        "none",
        "scaled-flip",
        "noisy-rows",
    }
    assert all(
        "covariance" in format_rule(config.rule, config.selector, config.memory)
        for config in configs[165:]
    )
    names = [format_threat(config.threat) for config in configs[:55]]
    assert list(dict.fromkeys(names)) == [
        "none",
        "scaled-flip",
        "noisy-rows",
        "gaussian-noise",
        "salt-and-pepper",
        "wrong-labels(labels=8)",
    ]


def table(name: str, variant: Variant, size: Size = "full") -> dict[tuple[str, str], Config]:
    """The runs of a table by line and column."""
    return {
        (
            f"{own['threat']}, {own['share']:.0%}" if own["share"] else own["threat"],
            own["method"],
        ): config
        for config, own in plan_of(name, variant, size, 1).runs
    }


def test_table_2_is_the_paper_s() -> None:
    cells = table("table2", "paper")
    assert len({row for row, _ in cells}) == 11
    for (row, column), config in cells.items():
        assert (config.data, config.model, config.n_rows, config.row_size, config.n_steps) == (
            "fashion-mnist",
            "lenet",
            32,
            64,
            1465,
        )
        assert config.optimizer == Sgd(lr=0.01, weight_decay=1e-4)
        assert config.schedule == Exponential(decay=0.99)
        assert isinstance(config.partition, Shuffled)
        assert config.threat.adversaries.redrawn
        assert not config.threat.whole_rows
        assert (config.threat.attack is None and config.threat.corruption is None) == (
            row == "Clean"
        )
        if "40%" in row and config.threat.hits_rows:
            assert config.threat.adversaries.count(32) == 13
        if column == "BGmD":
            assert format_rule(config.rule, config.selector, config.memory) == "bgmd"
            assert config.memory is None
        if column == "Algorithm 1":
            assert isinstance(config.memory, MeanMemory)
    assert cells["Bit flip, 20%", "SGD"].threat.attack == ScaledFlip(factor=100.0)
    assert cells["Additive, 20%", "SGD"].threat.attack == NoisyRows(deviation=10.0)


def test_table_2_as_published() -> None:
    cells = table("table2", "published")
    for (row, column), config in cells.items():
        assert (config.row_size, config.schedule) == (16, Exponential(decay=0.9))
        assert config.optimizer == Sgd(lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-5)
        assert config.threat.repeats == (row != "Clean")
        assert config.threat.adversaries.redrawn == (row == "Clean")
        assert config.threat.whole_rows == (config.threat.corruption is not None)
        if column == "published BGmD":
            assert isinstance(config.memory, RowMemory)
    assert cells["Bit flip, 20%", "SGD"].threat.attack == ScaledFlip(factor=5.0)


def test_tables_3_and_4() -> None:
    for config in table("table3", "paper").values():
        assert (config.data, config.n_rows, config.row_size) == ("mnist", 10, 64)
        assert config.optimizer == Sgd(lr=0.001, momentum=0.9, weight_decay=1e-4)
        assert isinstance(config.schedule, Cosine)
    assert all(
        config.optimizer == Adam(lr=0.001, weight_decay=1e-5)
        for config in table("table3", "published").values()
    )
    for config in table("table4", "paper").values():
        assert (config.data, config.model, config.n_rows, config.row_size) == (
            "cifar-10",
            "resnet-18",
            10,
            128,
        )
        assert config.partition == Shards(n_shards=80)
        assert isinstance(config.schedule, CosineRestarts)
        assert config.optimizer == Sgd(lr=0.1, weight_decay=1e-4)
    published = table("table4", "published")
    assert published["Additive, 40%", "GmD"].threat.attack == NoisyRows(deviation=100.0)
    assert isinstance(published["Clean", "SGD"].partition, Shuffled)


def test_the_paper_s_cells_have_the_labels_of_ours() -> None:
    plan = plan_of("table2", "paper", "quick")
    cells = {
        (own["threat"], own["share"], own["method"]): (own["mean"], own["interval"])
        for own in plan.paper
    }
    assert len(cells) == len(plan.paper) == 11 * 5  # every method but the filter
    assert cells.keys() < {tuple(labels.values()) for _, labels in plan.runs}
    assert cells["Clean", 0.0, "SGD"] == (89.39, 0.28)
    assert cells["Bit flip", 0.4, "SGD"] == (None, None)
    assert cells["Backdoor", 0.4, "GmD"] == (81.32, 0.16)
    assert cells["Backdoor", 0.4, "Algorithm 1"] == cells["Backdoor", 0.4, "BGmD"] == (84.69, 0.31)
    assert ("Clean", 0.0, "BGmD, filter") not in cells


def test_figures_share_the_runs_of_the_table() -> None:
    of_table = {hash_of(config) for config in plan_of("table2", "paper", "quick").configs}
    of_figure = {
        hash_of(config) for config in plan_of("gradient-corruption", "paper", "quick").configs
    }
    assert len(of_figure - of_table) == 2 * 5  # the five methods at 10 %
    of_k = {hash_of(config) for config in plan_of("choice-of-k", "paper", "quick").configs}
    assert {hash_of(config) for config in plan_of("large-model", "paper", "quick").configs} <= of_k


def test_variants_have_no_run_in_common() -> None:
    for name in ("table2", "table3", "table4", "tiny-model"):
        paper, published = (
            {hash_of(config) for config in plan_of(name, variant, "quick").configs}
            for variant in ("paper", "published")
        )
        assert not paper & published


@pytest.mark.usefixtures("few_images")
@pytest.mark.parametrize(
    ("name", "variant"), [("table2", "published"), ("table4", "paper"), ("tiny-model", "published")]
)
def test_smoke_sizes_run_to_their_end(name: str, variant: Variant, tmp_path: Path) -> None:
    for config in plan_of(name, variant, "smoke", 1).configs:
        record = run(config, tmp_path / hash_of(config))
        assert record.end is not None


def test_restarts_do_not_come_just_before_the_end() -> None:
    sizes: tuple[Size, ...] = ("quick", "full")
    for size in sizes:
        config = plan_of("table4", "paper", size, 1).configs[0]
        n_epochs = config.n_steps * config.batch_size / 50_000
        last = (config.n_steps - 1) * config.batch_size / 50_000
        assert config.schedule.factor(last, n_epochs) < 0.05, size
