"""Bad input is refused in one clear sentence, and a call that fails changes nothing."""

import re
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
MSE = nn.MSELoss()


def source(n_rows: Any = 4, model: Any = MODEL, loss_fn: Any = MSE, **options: Any) -> MicroBatches:
    return MicroBatches(model, loss_fn, n_rows=n_rows, **options)


def per_sample(model: nn.Module) -> PerSample:
    return PerSample(model, MSE)


def mixed_dtypes() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1).double())


def tracking_norm() -> nn.Module:
    return nn.InstanceNorm1d(3, affine=True, track_running_stats=True)


class Branching(nn.Module):
    """Its computation depends on the values of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)
        return found if bool(found.sum() > 0) else -found


def constant(_: Tensor, __: Tensor) -> Tensor:
    return torch.tensor(1.0)


NO_GRAPH = "`loss_fn` must depend on the model's trainable parameters, got a loss without a graph."
NO_PARAMETERS = "`parameters` must hold at least one that needs a gradient, got none."
INDEPENDENT = "`model` must keep samples independent (use eval(), GroupNorm or MicroBatches), got"
ONE_DTYPE = "`model` must have its trainable parameters in one dtype and on one device, got"
NO_AGREEMENT = "`batch` must hold tensors that agree on the number of samples, got"
DIVIDE = "`batch` must divide into 3 rows of one size (set drop_last=True in the loader), got 8."
SCALAR = "`loss_fn` must return a scalar (reduction='mean' or 'sum'), got shape (4, 1)."
LOSSES = "`loss_fn` must return a scalar or the losses of the samples [8], got shape (8, 1)."

REFUSED: dict[str, Callable[[], object]] = {
    DIVIDE: lambda: source(3)(X, Y),
    "`batch` must hold at least as many samples as rows (9), got 8.": lambda: source(9)(X, Y),
    f"{NO_AGREEMENT} [6, 8].": lambda: source()(X, Y[:6]),
    f"{NO_AGREEMENT} no tensor.": lambda: source()([], None),
    "`batch` must hold at least one sample, got 0.": lambda: source()(X[:0], Y[:0]),
    "`n_rows` must be a whole number of at least 1, got 0.": lambda: source(0),
    "`n_rows` must be a whole number of at least 1, got 2.0.": lambda: source(2.0),
    "`n_rows` must be a whole number of at least 1, got -1.": lambda: Accumulated(MODEL, n_rows=-1),
    "`budget` must be a whole number of at least 1, got 0.": lambda: PerSample(
        MODEL, MSE, budget=0
    ),
    "`vectorized` must be True or False, got 1.": lambda: source(vectorized=1),
    "`scaler` must be a torch.amp.GradScaler, got float.": lambda: source(scaler=2.0),
    NO_PARAMETERS: lambda: source(model=nn.ReLU()),
    "`model` must be a torch.nn.Module, got str.": lambda: source(model="linear"),
    f"{ONE_DTYPE} [('torch.float32', 'cpu'), ('torch.float64', 'cpu')].": lambda: source(
        model=mixed_dtypes()
    ),
    f"{INDEPENDENT} BatchNorm1d '', which mixes samples.": lambda: per_sample(nn.BatchNorm1d(3))(
        X, X
    ),
    f"{INDEPENDENT} InstanceNorm1d '', which mixes samples.": lambda: per_sample(tracking_norm())(
        X, X
    ),
    "`loss_fn` must be a function of output and targets, got str.": lambda: source(loss_fn="mse"),
    "`reduction` must be that of the loss, 'mean', got 'median'.": lambda: source(
        reduction="median"
    ),
    "`reduction` must be 'mean' or 'sum', got 'median'.": lambda: source(
        loss_fn=torch.dist, reduction="median"
    ),
    SCALAR: lambda: source(2, loss_fn=nn.MSELoss(reduction="none"))(X, Y),
    LOSSES: lambda: LayerGrams(MODEL, nn.MSELoss(reduction="none"))(X, Y),
    "`loss_fn` must return a floating tensor, got float.": lambda: source(loss_fn=lambda *_: 1.0)(
        X, Y
    ),
    "`loss_fn` must return a floating tensor, got torch.int64.": lambda: source(
        loss_fn=lambda *_: torch.tensor(1)
    )(X, Y),
    NO_GRAPH: lambda: source(loss_fn=constant)(X, Y),
}


@pytest.mark.parametrize("message", REFUSED)
def test_one_sentence(message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        REFUSED[message]()


def test_all_sources_refuse_alike() -> None:
    with pytest.raises(ValueError, match=NO_GRAPH):
        LayerGrams(MODEL, constant)(X, Y)
    with pytest.raises(ValueError, match=NO_PARAMETERS):
        Accumulated(nn.ReLU(), n_rows=2)


def test_a_model_that_does_not_work_under_vmap_is_refused() -> None:
    message = r"^`model` must work under torch.func.vmap \(or use MicroBatches with .*\), got .*\.$"
    with pytest.raises(ValueError, match=message):
        per_sample(Branching())(X, Y)


def gradients_of(model: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_a_loss_that_is_not_finite_is_refused_and_nothing_has_changed() -> None:
    model = nn.Linear(3, 1)
    step = bgmd(fraction=0.5)
    batches = MicroBatches(model, MSE, n_rows=4)
    step.backward(batches(torch.randn(8, 3), torch.randn(8, 1)), lr=0.1)
    memory, parameters = step.state_dict(), [parameter.clone() for parameter in model.parameters()]
    gradients = gradients_of(model)
    message = "`loss_fn` must be finite for at least half of the rows, got 4 of 4 with NaN or inf"
    with pytest.raises(NonFiniteRowsError, match=message):
        step.backward(batches(torch.randn(8, 3), torch.full((8, 1), torch.nan)), lr=0.1)
    assert torch.equal(step.state_dict()["carried"], memory["carried"])
    assert torch.equal(step.state_dict()["generator"], memory["generator"])
    assert step.n_steps == 1
    assert all(map(torch.equal, model.parameters(), parameters))
    assert len(gradients) == 2
    assert all(map(torch.equal, gradients_of(model), gradients))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_label_spoils_its_row_only(bad: float) -> None:
    model, x, y = nn.Linear(3, 1), torch.randn(10, 3), torch.randn(10, 1)
    y[3] = bad
    result = RobustStep(GeometricMedian()).backward(MicroBatches(model, MSE, n_rows=5)(x, y))
    assert result.rejected.tolist() == [False, True, False, False, False]
    result = RobustStep(GeometricMedian()).backward(PerSample(model, MSE)(x, y))
    assert torch.nonzero(result.rejected).flatten().tolist() == [3]
    assert bool(torch.isfinite(Layout(model).flatten(gradients_of(model))).all())
