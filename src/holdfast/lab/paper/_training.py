"""The paper's experiments with training: Tables 2 to 4, wall-clock time, size of the block."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

from holdfast.lab.config import Config
from holdfast.lab.paper import _comparison as compared
from holdfast.lab.paper._comparison import CLEAN_ROW, FILTERED, RULES, run_of, threat_of
from holdfast.lab.paper._plan import Plan, Recipe, Seeds, Size, Variant
from holdfast.lab.paper._settings import cifar10, describe, fashion_mnist, mnist

CURVE_SHARES = (0.0, 0.1, 0.2, 0.4)

FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
"""k / d."""

BLOCK_METHODS: dict[Variant, tuple[str, ...]] = {
    "paper": (compared.ALGORITHM_1, compared.BGMD),
    "published": (compared.PUBLISHED,),
}
"""The paper's figures about k show Algorithm 1; its averaged memory is safe where no row is bad."""

WITH_MEMORY = "with memory"
MEMORIES = {WITH_MEMORY: None, "without memory": "none"}
"""Label to the memory in place of the rule's own.

BGmD has no "without": a step that delivers after the rule always carries the rest.
"""


def table(
    name: str,
    title: str,
    setting: Callable[[Variant, Size], Config],
    variant: Variant,
    size: Size,
    seeds: Seeds,
) -> Plan:
    """Plan Table 2, 3 or 4: final accuracy of every method under every threat."""
    base, keys = setting(variant, size), list(compared.PAPER_CELLS[name])
    is_federated_text = name == "table4" and variant == "paper"
    # As published, noise on the gradients of CIFAR-10 had deviation 100.
    deviation = 100.0 if name == "table4" and variant == "published" else 10.0
    runs = []
    for (what, share), method, seed in _in_order(keys, compared.methods(variant), seeds):
        threat = threat_of(what, share, variant, deviation=deviation)
        labels = {"threat": what, "share": share, "method": method}
        runs.append((run_of(base, RULES[method], seed, threat=threat), labels))
    who = compared.who_is_bad([what for what, _ in keys[1:]], (0.2, 0.4), base.n_rows, variant)
    shorter = (
        f"After {base.n_steps:,} steps of {base.model} instead of the paper's training; "
        "compare the cells of a line with each other."
    )
    return Plan(
        title=f"{title}, clients that differ" if is_federated_text else title,
        about=f"{describe(base)} {who}",
        note="" if size == "full" else shorter,
        runs=tuple(runs),
        paper=tuple(compared.paper_figures(name, variant)),
    )


def _in_order(
    keys: Sequence[tuple[str, float]], columns: Sequence[str], seeds: Seeds
) -> Iterator[tuple[tuple[str, float], str, int]]:
    """Yield all lines, columns and seeds in the order in which they are run.

    One seed of every cell comes first, then the other seeds line by line, clean and gradient
    attacks before the rest. The filter, which the paper does not have, follows in the same order.
    """
    urgent = sorted(keys, key=lambda key: compared.GROUPS[key[0]] not in compared.URGENT)
    for some in ([method for method in columns if method != FILTERED], [FILTERED]):
        yield from product(keys, some, seeds[:1])
        yield from ((key, method, seed) for key in urgent for seed in seeds[1:] for method in some)


def wall_clock(what: str, variant: Variant, size: Size, seeds: Seeds) -> Plan:
    """Plan accuracy against time under one threat; runs at 0, 20 and 40 % are those of Table 2."""
    base = fashion_mnist(variant, size)
    runs = []
    for seed, share, method in product(seeds, CURVE_SHARES, compared.methods(variant)):
        if method != FILTERED:
            labels = {"threat": what if share else CLEAN_ROW, "share": share, "method": method}
            threat = threat_of(what, share, variant)
            runs.append((run_of(base, RULES[method], seed, threat=threat), labels))
    who = compared.who_is_bad([what], CURVE_SHARES[1:], base.n_rows, variant)
    title = f"Accuracy against time: {what.lower()}"
    return Plan(title=title, about=f"{describe(base)} {who}", runs=tuple(runs))


def block_sizes(
    title: str, model: str, memories: Sequence[str], variant: Variant, size: Size, seeds: Seeds
) -> Plan:
    """Plan runs over k without corruption, with the memory and perhaps without."""
    base = mnist(variant, size, model)
    runs = []
    for seed, k, method, memory in product(seeds, FRACTIONS, BLOCK_METHODS[variant], memories):
        if method == compared.BGMD and memory != WITH_MEMORY:
            continue
        labels = {"method": method, "memory": memory, "fraction": k}
        rule = f"{RULES[method]}(fraction={k})"
        runs.append((run_of(base, rule, seed, memory=MEMORIES[memory]), labels))
    return Plan(title=title, about=f"{describe(base)} No row is bad.", runs=tuple(runs))


def _residual(name: str, model: str, n_parameters: str) -> Recipe:
    title = f"Relative residual, accuracy and loss over k: {name} model"
    plan = partial(block_sizes, title, model, (WITH_MEMORY,))
    what = f"relative residual, accuracy and loss over k for {n_parameters} parameters"
    return Recipe(f"{name}-model", what, plan, BLOCK_SEEDS)


def _wall_clock(name: str, what: str) -> Recipe:
    title = f"accuracy against time, {what.lower()} at 0, 10, 20 and 40 %"
    return Recipe(name, title, partial(wall_clock, what), SEEDS)


SEEDS: dict[Size, int] = {"smoke": 1, "quick": 3, "full": 5}
BLOCK_SEEDS: dict[Size, int] = {"smoke": 1, "quick": 1, "full": 5}

TRAINED = (
    Recipe(
        "table2",
        "Fashion-MNIST, five threats, every method",
        partial(table, "table2", "Table 2: Fashion-MNIST, i.i.d.", fashion_mnist),
        SEEDS,
    ),
    Recipe(
        "table3",
        "MNIST, two attacks on gradients, every method",
        partial(table, "table3", "Table 3: MNIST, i.i.d.", mnist),
        SEEDS,
    ),
    Recipe(
        "table4",
        "CIFAR-10 among clients that differ, two attacks, every method",
        partial(table, "table4", "Table 4: CIFAR-10, federated", cifar10),
        SEEDS,
    ),
    _wall_clock("feature-corruption", compared.IMPULSE),
    _wall_clock("gradient-corruption", compared.BIT_FLIP),
    _wall_clock("label-corruption", compared.BACKDOOR),
    Recipe(
        "choice-of-k",
        "final accuracy over k, with and without memory",
        partial(block_sizes, "Choice of k and the role of memory", "lenet", tuple(MEMORIES)),
        BLOCK_SEEDS,
    ),
    _residual("large", "lenet", "1,163,978"),
    _residual("tiny", "tiny-cnn", "412"),
)
