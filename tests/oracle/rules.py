"""Rules by their definitions, in loops."""

from itertools import combinations

import torch
from torch import Tensor

from holdfast.aggregators import Aggregator
from holdfast.geometry import Tiling


def krum_scores(rows: Tensor, n_bad: int) -> list[float]:
    points = [row.double() for row in rows]
    scores = []
    for i, row in enumerate(points):
        others = sorted(
            float((row - other).square().sum()) for j, other in enumerate(points) if j != i
        )
        scores.append(sum(others[: len(points) - n_bad - 2]))
    return scores


def krum(rows: Tensor, n_bad: int) -> Tensor:
    scores = krum_scores(rows, n_bad)
    return rows[scores.index(min(scores))]


def multi_krum(rows: Tensor, n_bad: int, n_selected: int) -> Tensor:
    order = sorted(range(len(rows)), key=krum_scores(rows, n_bad).__getitem__)
    return rows[order[:n_selected]].double().mean(0)


def bulyan(rows: Tensor, n_bad: int) -> Tensor:
    left, chosen = list(range(len(rows))), []
    for _ in range(len(rows) - 2 * n_bad):
        squares = {
            i: sorted(float((rows[i] - rows[j]).double().square().sum()) for j in left if j != i)
            for i in left
        }
        scores = {i: sum(squares[i][: max(1, len(left) - n_bad - 2)]) for i in left}
        # Mutual nearest neighbors tie; the one nearest to all is taken.
        tied = [i for i in left if scores[i] <= min(scores.values()) * (1 + 1e-12)]
        best = min(tied, key=lambda i, squares=squares: sum(squares[i]))  # type: ignore[misc]
        left.remove(best)
        chosen.append(best)
    return mean_around_median(rows[chosen], len(chosen) - 2 * n_bad)


def mean_around_median(rows: Tensor, n_kept: int) -> Tensor:
    columns = []
    for column in rows.double().T:
        values = sorted(column.tolist())
        half = len(values) // 2
        middle = values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
        nearest = sorted((abs(value - middle), value) for value in values)[:n_kept]
        columns.append(sum(value for _, value in nearest) / n_kept)
    return torch.tensor(columns, dtype=torch.float64)


def minimum_variance(rows: Tensor, n_bad: int) -> Tensor:
    points = rows.double()

    def largest(members: tuple[int, ...]) -> float:
        chosen = points[list(members)]
        return float(torch.linalg.matrix_norm(chosen - chosen.mean(0), 2))

    best = min(combinations(range(len(points)), len(points) - n_bad), key=largest)
    return points[list(best)].mean(0)


def neighbor_mean(rows: Tensor, n_bad: int, index: int) -> Tensor:
    points = rows.double()
    order = sorted(range(len(points)), key=lambda i: float((points[i] - points[index]).norm()))
    return points[order[: len(points) - n_bad]].mean(0)


def minimum_diameter(rows: Tensor, n_bad: int) -> Tensor:
    points = rows.double()

    def extent(members: tuple[int, ...]) -> tuple[float, float]:
        squares = [
            float((points[i] - points[j]).square().sum()) for i, j in combinations(members, 2)
        ]
        return max(squares, default=0.0), sum(squares)

    best = min(combinations(range(len(points)), len(points) - n_bad), key=extent)
    return points[list(best)].mean(0)


def centered_clipping(rows: Tensor, radius: float, n_steps: int, start: Tensor) -> Tensor:
    v = start.double()
    for _ in range(n_steps):
        differences = rows.double() - v
        v = v + (differences * (radius / differences.norm(dim=1, keepdim=True)).clamp(max=1)).mean(
            0
        )
    return v


def top_direction(points: Tensor, weights: Tensor) -> tuple[float, Tensor]:
    mean = (weights[:, None] * points).sum(0) / weights.sum()
    centered = points - mean
    covariance = (centered.T * weights) @ centered / weights.sum()
    values, vectors = torch.linalg.eigh(covariance)
    return float(values[-1]), (centered @ vectors[:, -1]).square()


def spectral_filter(rows: Tensor, n_bad: int) -> Tensor:
    points = rows.double()
    for _ in range(n_bad):
        _, scores = top_direction(points, torch.ones(len(points), dtype=torch.float64))
        worst = int(scores.argmax())
        points = torch.cat([points[:worst], points[worst + 1 :]])
    return points.mean(0)


def covariance_filter(rows: Tensor, n_bad: int) -> Tensor:
    points, c = rows.double(), torch.ones(len(rows), dtype=torch.float64)
    best, smallest = points.mean(0), float("inf")
    while float(c.sum()) > len(rows) - 2 * n_bad:
        variance, scores = top_direction(points, c)
        if variance < smallest:
            best, smallest = (c[:, None] * points).sum(0) / c.sum(), variance
        scores = torch.where(c > 0, scores, 0.0)
        c = c * (1 - scores / scores.max())
    return best


def principal_scores(products: Tensor, weights: Tensor) -> tuple[float, Tensor]:
    """The largest variance and the scores along it from inner products, by all eigenvectors."""
    shares = weights / weights.sum()
    image = products @ shares
    centered = products - image[:, None] - image[None, :] + shares @ image
    roots = shares.sqrt()
    values, vectors = torch.linalg.eigh(centered * roots[:, None] * roots[None, :])
    variance = float(values[-1].clamp(min=0))
    if variance == 0.0:
        return 0.0, torch.zeros_like(weights)
    return variance, (centered @ (roots * vectors[:, -1])).square() / variance


def covariance_filter_weights(products: Tensor, shares: Tensor, n_bad: int) -> Tensor:
    """The weights of the covariance filter, by all of its steps."""
    trust = torch.ones_like(shares)
    best, smallest = trust, float("inf")
    while float((shares * trust).sum()) > len(shares) - 2 * n_bad:
        variance, scores = principal_scores(products, shares * trust)
        if variance < smallest:
            best, smallest = trust, variance
        if variance == 0.0:
            break
        scores = torch.where(trust > 0, scores, 0.0)
        trust = trust * (1 - scores / scores.max())
    return shares * best / (shares * best).sum()


def nearest_neighbor_mixing(rows: Tensor, n_bad: int) -> Tensor:
    points = rows.double()
    return torch.stack(
        [
            points[(points - row).norm(dim=1).argsort()[: len(rows) - n_bad]].mean(0)
            for row in points
        ]
    )


def norm_clipping(rows: Tensor, radius: float) -> Tensor:
    points = rows.double()
    clipped: Tensor = points * (radius / points.norm(dim=1, keepdim=True)).clamp(max=1)
    return clipped


def trusted_reference(rows: Tensor, reference: Tensor) -> Tensor:
    points, trusted = rows.double(), reference.double()
    trust = torch.nn.functional.cosine_similarity(points, trusted[None]).clamp(min=0)
    scaled = points * trusted.norm() / points.norm(dim=1, keepdim=True)
    mean: Tensor = (trust[:, None] * scaled).sum(0) / trust.sum()
    return mean


def tile_by_tile(
    rule: Aggregator, rows: Tensor, tiling: Tiling, row_weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """[d] the rule's results on all tiles side by side, and [n_tiles, n] its weights."""
    vectors, weights = [], []
    for piece in tiling.pieces:
        for i in range(piece.n_tiles):
            start = piece.start + i * piece.width
            part = rows[:, start : start + piece.width].clone()
            arguments = {} if row_weights is None else {"row_weights": row_weights}
            found = rule.aggregate(part, **arguments)  # type: ignore[arg-type]
            assert found.weights is not None
            vectors.append(found.vector)
            weights.append(found.weights)
    return torch.cat(vectors), torch.stack(weights)
