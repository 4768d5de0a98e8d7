"""Attacks by their definitions, in loops over rows and columns, float64."""

import math
import struct
from collections.abc import Callable

import torch
from scipy.stats import norm
from torch import Tensor

FORMS = {torch.float64: ("d", "Q"), torch.float32: ("f", "I"), torch.float16: ("e", "H")}
"""Formats of `struct` for a number and for the integer of the same bits."""


def flip_bits(value: float, bits: tuple[int, ...], dtype: torch.dtype) -> float:
    real, whole = FORMS[dtype]
    (integer,) = struct.unpack(whole, struct.pack(real, value))
    for bit in bits:
        integer = integer - 2**bit if (integer // 2**bit) % 2 else integer + 2**bit
    flipped: float = struct.unpack(real, struct.pack(whole, integer))[0]
    return flipped


def column_means(honest: Tensor) -> list[float]:
    return [math.fsum(column) / len(column) for column in honest.double().T.tolist()]


def column_deviations(honest: Tensor) -> list[float]:
    pairs = zip(honest.double().T.tolist(), column_means(honest), strict=True)
    squares = [math.fsum((x - mean) ** 2 for x in column) for column, mean in pairs]
    return [math.sqrt(square / (len(honest) - 1)) for square in squares]


def little_is_enough_z(n: int, n_bad: int) -> float:
    supporters = math.floor(n / 2 + 1) - n_bad
    return float(norm.ppf((n - n_bad - supporters) / (n - n_bad)))


def little_is_enough(honest: Tensor, z: float) -> Tensor:
    pairs = zip(column_means(honest), column_deviations(honest), strict=True)
    return torch.tensor([mean - z * deviation for mean, deviation in pairs], dtype=torch.float64)


def harm(rows: Tensor, mask: Tensor, bad: Tensor, rule: Callable[[Tensor], Tensor]) -> float:
    """How far the rule is from the honest mean if all bad rows of the mask send `bad` [d]."""
    sent = rows.double().clone()
    sent[mask] = bad.double()
    mean = torch.tensor(column_means(rows[~mask]), dtype=torch.float64)
    return float((rule(sent) - mean).norm())


def optimized(rows: Tensor, mask: Tensor, rule: Callable[[Tensor], Tensor]) -> tuple[float, float]:
    """The harm of the best of 20 factors of ALIE and of IPM, with whole rows at every trial."""
    honest = rows[~mask]
    mean = torch.tensor(column_means(honest), dtype=torch.float64)

    def best(bad: Callable[[float], Tensor]) -> float:
        found = {x: harm(rows, mask, bad(x), rule) for x in (0.0, 0.25, 0.5, 1.0, 2.0)}
        while len(found) < 20 and max(found, key=found.__getitem__) == max(found):
            found[2 * max(found)] = harm(rows, mask, bad(2 * max(found)), rule)
        top, exponent, side = max(found, key=found.__getitem__), 0.5, 1
        for _ in range(20 - len(found)):
            trial = top * 2 ** (side * exponent)
            found[trial] = harm(rows, mask, bad(trial), rule)
            is_better = found[trial] > found[top]
            top = trial if is_better else top
            exponent, side = (exponent / 2, 1) if is_better or side < 0 else (exponent, -1)
        return found[top]

    return best(lambda z: little_is_enough(honest, z)), best(lambda factor: -factor * mean)


def huddle(
    rows: Tensor,
    mask: Tensor,
    p: Tensor,
    rule: Callable[[Tensor], Tensor],
    choices: list[tuple[int, float]],
) -> tuple[float, list[Tensor]]:
    """The most harm along p [d] that any of the choices of k and s does, and each choice's rows."""
    honest, bad = rows[~mask].double(), mask.nonzero()[:, 0].tolist()
    mean = torch.tensor(column_means(honest), dtype=torch.float64)
    distance = math.fsum(float((row - mean).norm()) for row in honest) / len(honest)
    unit = p.double() / float(p.double().norm())
    harms, trials = [], []
    for k, s in choices:
        sent = rows.double().clone()
        for i in bad[:k]:
            sent[i] = mean + s * distance * unit
        trials.append(sent)
        harms.append(float((rule(sent) - mean) @ unit))
    return max(harms), trials


def huddle_in_tiles(
    rows: Tensor,
    mask: Tensor,
    p: Tensor,
    rule: Callable[[Tensor], Tensor],
    tiles: list[slice],
    sizes: list[int],
) -> tuple[list[float], list[float]]:
    """For each tile, the most harm of the search in two rounds, and of a grid with all sizes.

    The first round has the first of the `sizes`, the second the best strength with all of them.
    """
    searched, gridded = [], []
    for at in tiles:

        def harm(k: int, s: float, at: slice = at) -> float:
            return huddle(rows[:, at], mask, p[at], rule, [(k, s)])[0]

        harms = {s: harm(sizes[0], s) for s in (0.1, 0.2, 0.4, 0.7, 1.15, 1.9, 3.0)}
        best = max(harms, key=harms.__getitem__)
        near = [harm(sizes[0], best * 1.2), harm(sizes[0], best / 1.2)]
        searched.append(max(harms[best], *near, *(harm(k, best) for k in sizes)))
        grid = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
        gridded.append(max(harm(k, s) for k in sizes for s in grid))
    return searched, gridded


def perturbation(honest: Tensor, direction: str) -> Tensor:
    mean = torch.tensor(column_means(honest), dtype=torch.float64)
    if direction == "unit":
        return mean / float(mean.norm())
    if direction == "sign":
        return mean.sign()
    return torch.tensor(column_deviations(honest), dtype=torch.float64)


def bounded_distance(honest: Tensor, bound: str, direction: str) -> Tensor:
    points = list(honest.double())

    def distance(point: Tensor) -> float:
        if bound == "max":
            return max(float((point - row).norm()) for row in points)
        return math.fsum(float((point - row).square().sum()) for row in points)

    largest = max(distance(row) for row in points)
    return _farthest(honest, direction, lambda bad: distance(bad) <= largest)


def _farthest(honest: Tensor, direction: str, is_allowed: Callable[[Tensor], bool]) -> Tensor:
    """The mean minus gamma p, with the largest gamma that is allowed, by doubling and bisection."""
    mean = torch.tensor(column_means(honest), dtype=torch.float64)
    p = perturbation(honest, direction)
    low, high = 0.0, 1.0
    while is_allowed(mean - high * p):
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if is_allowed(mean - middle * p) else (low, middle)
    return mean - low * p


def mimic_direction(steps: list[Tensor]) -> Tensor:
    """[d] the state after these steps, by the covariance matrix [d, d] of each."""
    deviations = [honest.double() - honest.double().mean(0) for honest in steps]
    longest = max(deviations[0], key=lambda row: float(row.norm()))
    state: Tensor = longest / float(longest.norm())
    for step in deviations:
        pull = torch.stack([torch.outer(row, row) for row in step]).sum(0) @ state
        state = state + pull / float(pull.norm())
    return state


def shadow(honest: Tensor, n_bad: int, fraction: float) -> Tensor:
    columns, means = honest.double().T.tolist(), column_means(honest)
    scores = [math.fsum(x * x for x in column) for column in columns]
    seen = [score + n_bad * mean**2 for score, mean in zip(scores, means, strict=True)]
    threshold = sorted(seen, reverse=True)[max(1, round(fraction * len(seen))) - 1]
    bad = []
    for score, mean, looked_at in zip(scores, means, seen, strict=True):
        lie = math.sqrt(max(0.0, 0.95 * threshold - score) / n_bad)
        bad.append(mean if looked_at >= threshold else -math.copysign(lie, mean))
    return torch.tensor(bad, dtype=torch.float64)


def lightest_first(honest: Tensor) -> list[int]:
    scores = [math.fsum(x * x for x in column) for column in honest.double().T.tolist()]
    return sorted(range(len(scores)), key=scores.__getitem__)


def hijack(honest: Tensor, n_columns: int, size: float) -> Tensor:
    bad = [-mean for mean in column_means(honest)]
    for column in lightest_first(honest)[:n_columns]:
        bad[column] = size
    return torch.tensor(bad, dtype=torch.float64)


def hijack_with_a_lie(
    honest: Tensor, n_bad: int, n_columns: int, size: float, lie: float
) -> Tensor:
    order, means = lightest_first(honest), column_means(honest)
    d = len(order)
    stolen = order[d - n_columns :]
    lied = [column for column in order[: d // 2] if column not in stolen]
    thief = [size if column in stolen else 0.0 for column in range(d)]
    liar = [-lie * means[column] if column in lied else means[column] for column in range(d)]
    return torch.tensor([thief] + [liar] * (n_bad - 1), dtype=torch.float64)


def blur(image: Tensor, sigma: float) -> Tensor:
    """[H, W] one channel, pixel by pixel, mirrored at the edges."""
    height, width = image.shape
    pixels = image.double().tolist()

    def kernel(length: int) -> list[tuple[int, float]]:
        radius = min(math.ceil(3 * sigma), length - 1)
        return [
            (step, math.exp(-(step**2) / (2 * sigma**2))) for step in range(-radius, radius + 1)
        ]

    def mirrored(place: int, length: int) -> int:
        place = abs(place)
        return 2 * (length - 1) - place if place >= length else place

    blurred = torch.empty(height, width, dtype=torch.float64)
    for i in range(height):
        for j in range(width):
            total = weight = 0.0
            for down, a in kernel(height):
                for right, b in kernel(width):
                    total += a * b * pixels[mirrored(i + down, height)][mirrored(j + right, width)]
                    weight += a * b
            blurred[i, j] = total / weight
    return blurred
