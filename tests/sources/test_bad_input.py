"""One clear sentence for everything that a source cannot work with; nothing is changed by a call that fails."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from holdfast import Layout, RobustStep, bgmd
from holdfast.aggregators import GeometricMedian
from holdfast.errors import NonFiniteRowsError
from holdfast.sources import Accumulated, LayerGrams, MicroBatches, PerSample

MODEL = nn.Linear(3, 1)
X, Y = torch.zeros(8, 3), torch.zeros(8, 1)


def source(n_rows: int = 4, **options: Any) -> MicroBatches:
    return MicroBatches(MODEL, nn.MSELoss(), n_rows=n_rows, **options)


def mixed_dtypes() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1).double())


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: source(3)(X, Y), r"`batch` must divide into 3 rows of one size \(a loader's last batch: drop_last=True\), got 8\."),
        (lambda: source(9)(X, Y), r"`batch` must hold at least as many samples as rows \(9\), got 8\."),
        (lambda: source(4)(X, Y[:6]), r"`batch` must hold tensors that agree on the number of samples, got \[6, 8\]\."),
        (lambda: source(4)(X[:0], Y[:0]), r"`batch` must hold at least one sample, got 0\."),
        (lambda: source(4)([], None), r"`batch` must hold tensors that agree on the number of samples, got no tensor\."),
        (lambda: source(0), r"`n_rows` must be a whole number of at least 1, got 0\."),
        (lambda: source(2.0), r"`n_rows` must be a whole number of at least 1, got 2\.0\."),  # type: ignore[arg-type]
        (lambda: source(vectorized=1), r"`vectorized` must be True or False, got 1\."),
        (lambda: source(scaler=2.0), r"`scaler` must be a torch.amp.GradScaler, got float\."),
        (lambda: MicroBatches(nn.ReLU(), nn.MSELoss(), n_rows=2), r"`parameters` must hold at least one that needs a gradient, got none\."),
        (lambda: MicroBatches(print, nn.MSELoss(), n_rows=2), r"`model` must be a torch.nn.Module, got builtin_function_or_method\."),  # type: ignore[arg-type]
        (lambda: MicroBatches(MODEL, "mse", n_rows=2), r"`loss_fn` must be a function of the model's output and the targets, got str\."),  # type: ignore[arg-type]
        (lambda: MicroBatches(mixed_dtypes(), nn.MSELoss(), n_rows=2), r"`model` must have its trainable parameters in one dtype and on one device"),
        (lambda: source(reduction="median"), r"`reduction` must be that of the loss, 'mean', got 'median'\."),
        (lambda: MicroBatches(MODEL, torch.dist, n_rows=2, reduction="median"), r"`reduction` must be 'mean' or 'sum', got 'median'\."),  # type: ignore[arg-type]
        (lambda: MicroBatches(MODEL, nn.MSELoss(reduction="none"), n_rows=2)(X, Y), r"`loss_fn` must return a scalar \(reduction='mean' or 'sum'\), got shape \(4, 1\)\."),
        (lambda: MicroBatches(MODEL, lambda *_: 1.0, n_rows=2)(X, Y), r"`loss_fn` must return a floating tensor, got float\."),  # type: ignore[arg-type]
        (lambda: MicroBatches(MODEL, lambda *_: torch.tensor(1), n_rows=2)(X, Y), r"`loss_fn` must return a floating tensor, got torch.int64\."),
        (lambda: MicroBatches(MODEL, lambda *_: torch.tensor(1.0), n_rows=2)(X, Y), r"`loss_fn` must depend on the model's trainable parameters, got a loss without a graph\."),
        (lambda: LayerGrams(MODEL, lambda *_: torch.tensor(1.0))(X, Y), r"`loss_fn` must depend on the model's trainable parameters, got a loss without a graph\."),
        (lambda: LayerGrams(MODEL, nn.MSELoss(reduction="none"))(X, Y), r"`loss_fn` must return a scalar or the losses of the samples \[8\], got shape \(8, 1\)\."),
        (lambda: PerSample(MODEL, nn.MSELoss(), budget=0), r"`budget` must be a whole number of at least 1, got 0\."),
        (lambda: PerSample(nn.BatchNorm1d(3), nn.MSELoss())(X, X), r"`model` must keep samples apart .* got BatchNorm1d '', which mixes them in training mode\."),
        (lambda: PerSample(nn.InstanceNorm1d(3, affine=True, track_running_stats=True), nn.MSELoss())(X, X), r"got InstanceNorm1d '', which mixes them"),
        (lambda: Accumulated(MODEL, n_rows=-1), r"`n_rows` must be a whole number of at least 1, got -1\."),
        (lambda: Accumulated(nn.ReLU(), n_rows=2), r"`parameters` must hold at least one that needs a gradient, got none\."),
        (lambda: PerSample(Branching(), nn.MSELoss())(X, Y), r"`model` must work under torch.func.vmap \(MicroBatches without `vectorized` asks less\), got"),
    ],
)  # fmt: skip
def test_one_sentence(run: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run()


class Branching(nn.Module):
    """Looks at its input's value to decide what to do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)
        return found if bool(found.sum() > 0) else -found


def test_a_loss_that_is_not_finite_is_refused_and_nothing_has_changed() -> None:
    model = nn.Linear(3, 1)
    step = bgmd(fraction=0.5)
    batches = MicroBatches(model, nn.MSELoss(), n_rows=4)
    step.backward(batches(torch.randn(8, 3), torch.randn(8, 1)), lr=0.1)
    memory, parameters = step.state_dict(), [parameter.clone() for parameter in model.parameters()]
    gradients = [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]
    with pytest.raises(
        NonFiniteRowsError,
        match="`loss_fn` must be finite for at least half of the rows, got 4 of 4 with NaN or inf",
    ):
        step.backward(batches(torch.randn(8, 3), torch.full((8, 1), torch.nan)), lr=0.1)
    assert torch.equal(step.state_dict()["memory"], memory["memory"])
    assert torch.equal(step.state_dict()["generator"], memory["generator"])
    assert step.n_steps == 1
    assert all(
        torch.equal(parameter, before)
        for parameter, before in zip(model.parameters(), parameters, strict=True)
    )
    assert all(
        torch.equal(p.grad, before)
        for p, before in zip(model.parameters(), gradients, strict=True)
        if p.grad is not None
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_label_costs_its_row_alone(bad: float) -> None:
    model, x, y = nn.Linear(3, 1), torch.randn(10, 3), torch.randn(10, 1)
    y[3] = bad
    result = RobustStep(GeometricMedian()).backward(
        MicroBatches(model, nn.MSELoss(), n_rows=5)(x, y)
    )
    assert result.rejected.tolist() == [False, True, False, False, False]
    result = RobustStep(GeometricMedian()).backward(PerSample(model, nn.MSELoss())(x, y))
    assert torch.nonzero(result.rejected).flatten().tolist() == [3]
    assert bool(
        torch.isfinite(
            Layout(model).flatten([p.grad for p in model.parameters() if p.grad is not None])
        ).all()
    )
