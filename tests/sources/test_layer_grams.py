"""Per-sample rows without the matrix: right for every rule and row size, or refused by name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torchjd.autogram import Engine

from holdfast import Layout, RobustStep, bgmd
from holdfast.aggregators import CoordinateMedian, GeometricMedian, TrustedReference, rules
from holdfast.errors import NonFiniteRowsError
from holdfast.geometry import CleanLengths, DenseRows
from holdfast.optim import robust_backward
from holdfast.sources import LayerGrams, LayerRows, PerSample
from tests.oracle.gradients import by_loop
from tests.sources.cases import CASES, Case, matrix, named


def rows_of(case: Case, n: int = 6) -> tuple[LayerRows, DenseRows]:
    """The rows layer by layer, and the same from a loop."""
    model, x, y = case.make(n)
    return LayerGrams(model, nn.CrossEntropyLoss())(x, y), DenseRows(
        by_loop(model, nn.CrossEntropyLoss(), x, y, n)
    )


def test_inner_products_are_those_of_the_explicit_rows() -> None:
    for case in CASES:
        with named(case):
            rows, explicit = rows_of(case)
            references = torch.randn(2, rows.d)
            expected = explicit.exact_products(references, center=None, scale=1.0)
            torch.testing.assert_close(
                rows.products(references),
                expected,
                rtol=1e-4,
                atol=1e-5 * float(expected.abs().max()),
            )
            for center in (None, 2):
                found = rows.exact_products(references, center=center, scale=0.5)
                expected = explicit.exact_products(references, center=center, scale=0.5)
                torch.testing.assert_close(
                    found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max())
                )


def test_lengths_are_those_of_the_explicit_rows() -> None:
    for case in CASES:
        with named(case):
            rows, explicit = rows_of(case)
            lengths = rows.lengths()
            assert isinstance(lengths, CleanLengths)
            torch.testing.assert_close(
                lengths.norms, explicit.lengths().norms, rtol=1e-4, atol=1e-6
            )


def test_lengths_of_rows_of_unusual_size_take_the_careful_way() -> None:
    model, x, y = nn.Linear(4, 1), torch.randn(5, 4), torch.randn(5, 1)
    y[1] = 1e18
    lengths = LayerGrams(model, nn.MSELoss())(x, y).lengths()
    assert not isinstance(lengths, CleanLengths)
    torch.testing.assert_close(
        lengths.norms,
        DenseRows(by_loop(model, nn.MSELoss(), x, y, 5)).lengths().norms,
        rtol=1e-4,
        atol=1e-6,
    )


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_inner_products_are_those_of_an_independent_engine() -> None:
    """TorchJD's engine has no formulas for layers. Cases with shared parameters are left out."""
    for case in (case for case in CASES if case.name != "tied"):
        with named(case):
            batch_dim = None if case.name in ("attention", "evaluated batch norm") else 0
            model, x, y = case.make()
            rows = LayerGrams(model, nn.CrossEntropyLoss())(x, y)
            engine = Engine(model, batch_dim=batch_dim)
            gramian = engine.compute_gramian(cross_entropy(model(x), y, reduction="none"))
            torch.testing.assert_close(
                rows.products(torch.empty(0, rows.d)).float(),
                gramian,
                rtol=1e-3,
                atol=1e-5 * float(gramian.abs().max()),
            )


def test_some_of_the_rows_are_rows() -> None:
    for case in CASES:
        with named(case):
            rows, explicit = rows_of(case)
            indices = torch.tensor([4, 1, 2])
            weights = torch.tensor([0.5, 0.0, -2.0], dtype=torch.float64)
            torch.testing.assert_close(
                rows.keep(indices).combine(weights),
                explicit.keep(indices).combine(weights),
                rtol=1e-4,
                atol=1e-6,
            )
            largest = matrix(explicit).abs().amax(1)
            assert bool((rows.magnitudes() >= 0.999 * largest).all())


@pytest.mark.parametrize(
    "text",
    [
        "mean",
        "geometric-median",
        "krum(n_bad=2)",
        "multi-krum(n_bad=2, n_selected=3)",
        "medoid",
        "covariance-filter",
        "norm-filter(n_bad=2)",
        "mixing(n_bad=2) | geometric-median",
        "clipping(n_bad=2) | covariance-filter",
        "minimum-diameter(n_bad=2)",
    ],
)
def test_every_gram_rule_gives_what_it_gives_on_explicit_rows(text: str) -> None:
    rows, explicit = rows_of(CASES[1], n=9)
    rule = rules.parse(text)
    found, expected = rule.aggregate(rows), rule.aggregate(explicit)
    assert found.weights is not None
    torch.testing.assert_close(found.weights, expected.weights, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(found.vector, expected.vector, rtol=1e-3, atol=1e-5)
    assert torch.equal(found.rejected, expected.rejected)


def test_rules_with_a_reference() -> None:
    rows, explicit = rows_of(CASES[2])
    reference = torch.randn(rows.d)
    found = TrustedReference()(rows, reference=reference)
    torch.testing.assert_close(
        found, TrustedReference()(explicit, reference=reference), rtol=1e-3, atol=1e-5
    )


def test_rules_that_look_at_columns_are_refused_in_one_sentence() -> None:
    rows, _ = rows_of(CASES[1])
    for run in (lambda: CoordinateMedian()(rows), lambda: bgmd()(rows, lr=0.1)):
        with pytest.raises(ValueError, match=r"^LayerRows cannot be read by \w+; use PerSample"):
            run()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30, -1e18])
def test_a_bad_sample_is_survived(value: float) -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    x, y = torch.randn(9, 4), torch.randn(9, 1)
    y[2] = value
    result = GeometricMedian().aggregate(LayerGrams(model, nn.MSELoss())(x, y))
    honest = torch.arange(9) != 2
    others = by_loop(model, nn.MSELoss(), x[honest], y[honest], 8)
    center, spread = others.mean(0), (others - others.mean(0)).norm(dim=1).max()
    assert float((result.vector - center).norm()) < 2 * float(spread)
    assert result.weights is not None
    if value != -1e18:
        assert float(result.weights[2]) < 1e-6


def test_a_majority_of_bad_samples_is_an_error_that_says_so() -> None:
    model = nn.Linear(4, 1)
    x, y = torch.randn(5, 4), torch.full((5, 1), torch.nan)
    with pytest.raises(NonFiniteRowsError, match="finite in at least half of the rows, got 5 of 5"):
        GeometricMedian()(LayerGrams(model, nn.MSELoss())(x, y))

    def losses(output: Tensor, target: Tensor) -> Tensor:
        return (output - target).square()[:, 0]

    with pytest.raises(
        NonFiniteRowsError,
        match="`loss_fn` must be finite for at least half of the rows, got 5 of 5",
    ):
        LayerGrams(model, losses)(x, y)


def test_losses_of_single_samples_are_kept() -> None:
    model, x, y = CASES[1].make()
    source = LayerGrams(model, nn.CrossEntropyLoss(reduction="none"))
    rows = source(x, y)
    torch.testing.assert_close(source.losses, cross_entropy(model(x), y, reduction="none").detach())
    torch.testing.assert_close(
        rows.combine(torch.eye(6)[1]), by_loop(model, cross_entropy, x, y, 6)[1]
    )


def test_robust_backward_writes_what_the_explicit_way_writes() -> None:
    model, x, y = CASES[2].make()
    result = robust_backward(model, cross_entropy, x, y, rule=GeometricMedian())
    written = Layout(model).flatten(
        [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    )
    explicit = GeometricMedian()(PerSample(model, cross_entropy)(x, y))
    torch.testing.assert_close(written, explicit, rtol=1e-3, atol=1e-6)
    assert result.weights is not None
    robust_backward(model, cross_entropy, x, y, rule=GeometricMedian())
    twice = Layout(model).flatten(
        [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    )
    torch.testing.assert_close(twice, 2 * written, rtol=1e-3, atol=1e-6)


def test_no_matrix_of_rows_is_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor made on the way is half as large as the rows would be."""
    model, x, y = CASES[-1].make(n=16)
    n_entries = 16 * Layout(model).d
    sizes: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            found = function(*args, **(kwargs or {}))
            sizes.extend(
                tensor.numel()
                for tensor in torch.utils._pytree.tree_leaves(found)
                if isinstance(tensor, Tensor)
            )
            return found

    with Watch():  # type: ignore[no-untyped-call]
        RobustStep(GeometricMedian()).backward(LayerGrams(model, cross_entropy)(x, y))
    assert max(sizes) < n_entries / 2
    with Watch():  # type: ignore[no-untyped-call]
        PerSample(model, cross_entropy)(x, y)
    assert max(sizes) >= n_entries, "the watch sees what there is to see"


FORMS = ("convolutions", "sequence", "volumes", "perceptron")


def test_both_forms_of_the_products_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for case in (case for case in CASES if case.name in FORMS):
        found = []
        for pays in (True, False):
            for module in ("_linear", "_convolution"):
                name = f"holdfast.sources.layers.{module}.pays_pairwise"
                monkeypatch.setattr(name, lambda *_, pays=pays: pays)
            found.append(rows_of(case)[0].products(torch.empty(0, Layout(case.make()[0]).d)))
        torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)


def test_small_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for case in CASES:
        if case.name not in ("convolutions", "sequence", "lenet"):
            continue
        rows, _ = rows_of(case)
        whole = rows.products(torch.empty(0, rows.d))
        for module in ("_linear", "_convolution", "_embedding"):
            monkeypatch.setattr(f"holdfast.sources.layers.{module}.LIMIT", 64)
        torch.testing.assert_close(
            rows.products(torch.empty(0, rows.d)), whole, rtol=1e-4, atol=1e-6
        )
        monkeypatch.undo()


def test_a_model_is_looked_at_once_for_every_shape() -> None:
    model, x, y = CASES[1].make()
    n_passes = 0

    def count(*_: object) -> None:
        nonlocal n_passes
        n_passes += 1

    model.register_forward_hook(count)
    source = LayerGrams(model, cross_entropy)
    for inputs, labels, expected in ((x, y, 2), (x, y, 1), (x[:4], y[:4], 2), (x, y, 1)):
        n_passes = 0
        source(inputs, labels)
        assert n_passes == expected


class Outside(nn.Module):
    def __init__(self, called: bool) -> None:
        super().__init__()
        self.called = called
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return (self.layer(x) if self.called else 0.0) + linear(x, self.layer.weight)


class Flattened(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x.flatten(0, 1)).view(x.shape).mean(1)
        return found


class Changed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = x * 1.0
        out: Tensor = self.layer(hidden)
        hidden.add_(1.0)
        return out


@pytest.mark.parametrize(
    ("build", "shape", "message"),
    [
        (
            lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)),
            (4, 3),
            r"BatchNorm1d '1', which mixes samples",
        ),
        (
            lambda: nn.Sequential(
                nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)
            ).eval(),
            (4, 3),
            r"BatchNorm1d '1'",
        ),
        (
            lambda: Outside(called=True),
            (4, 3),
            r"Linear 'layer', which has a weight that is also used outside it",
        ),
        (
            lambda: Outside(called=False),
            (4, 3),
            r"modules that take and return tensors with samples, got 'layer.weight', used",
        ),
        (
            Flattened,
            (4, 5, 3),
            r"Linear 'layer', which has no dimension of its own for the samples",
        ),
        (Changed, (4, 3), r"Linear 'layer', which has an input that is changed in place later"),
        (
            lambda: nn.MultiheadAttention(2, 1, dropout=0.1),
            (4, 3, 2),
            r"MultiheadAttention '', which has no dimension of its own for the samples",
        ),
    ],
)
def test_what_cannot_be_told_is_refused_by_name(
    build: Callable[[], nn.Module], shape: tuple[int, ...], message: str
) -> None:
    model = build()
    x = torch.randn(shape)
    batch = (x, x, x) if isinstance(model, nn.MultiheadAttention) else x

    def loss_fn(output: Any) -> Tensor:
        first: Tensor = output[0] if isinstance(output, tuple) else output
        return first.square().mean()

    with pytest.raises(ValueError, match=message):
        LayerGrams(model, loss_fn)(batch)


def test_a_penalty_on_the_weights_is_noticed() -> None:
    model = nn.Linear(3, 1)

    def loss_fn(output: Tensor) -> Tensor:
        return output.square().mean() + model.weight.square().sum()

    with pytest.raises(
        ValueError, match=r"Linear '', which has a weight that is also used outside it"
    ):
        LayerGrams(model, loss_fn)(torch.randn(4, 3))


def test_layers_that_have_no_influence_have_zero_gradients() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.called, self.never = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            self.called(x)
            found: Tensor = self.used(x)
            return found

    rows = LayerGrams(Unused(), nn.MSELoss())(torch.randn(4, 3), torch.randn(4, 1))
    found = rows.combine(torch.ones(4))
    assert bool((found[:4] != 0).all())
    assert not found[4:].any()


def test_a_subclass_that_computes_something_else_is_run_again() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    model, x, y = Doubled(3, 2), torch.randn(5, 3), torch.randn(5, 2)
    rows = LayerGrams(model, nn.MSELoss())(x, y)
    torch.testing.assert_close(matrix(rows), by_loop(model, nn.MSELoss(), x, y, 5))
