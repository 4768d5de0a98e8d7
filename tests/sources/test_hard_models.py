"""Models that are hard for per-sample gradients: the rows are right, or the model is refused."""

import copy
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import update_bn
from torch.utils.checkpoint import checkpoint

from holdfast import Layout
from holdfast.sources import Accumulated, LayerGrams, MicroBatches, PerSample
from tests.oracle.gradients import by_loop
from tests.sources.cases import matrix


class Custom(nn.Module):
    """Any forward pass over a few layers."""

    def __init__(self, forward: Callable[[Any, Tensor], Any], **members: Any) -> None:
        super().__init__()
        for name, member in members.items():
            setattr(self, name, member)
        self._forward = forward

    def forward(self, x: Tensor) -> Any:
        return self._forward(self, x)


def scaled_norm() -> nn.Module:
    class Twice(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * functional.layer_norm(x, self.normalized_shape, self.weight, self.bias)

    return nn.Sequential(nn.Linear(5, 5), Twice(5), nn.Linear(5, 3))


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    model[0].register_forward_hook(lambda module, args, output: 2 * output)
    return model


def patched() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    first: Any = model[0]
    first.forward = lambda x: 2 * functional.linear(x, first.weight, first.bias)
    return model


def pruned() -> nn.Module:
    from torch.nn.utils import prune

    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    prune.random_unstructured(model[0], "weight", 0.3)
    return model


def empty_parameter() -> nn.Module:
    return Custom(
        lambda self, x: self.out(x) + 0 * self.none(x).sum(1, keepdim=True),
        out=nn.Linear(5, 3),
        none=nn.Linear(5, 0),
    )


def in_place_attention() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        mixed, _ = self.attention(x, x, x, need_weights=False)
        return self.out(mixed.add_(x)).mean(1)

    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    return Custom(forward, attention=attention, out=nn.Linear(4, 3))


def shared_layers() -> nn.Module:
    """Layers of several kinds that are called twice, and a table as long as the batch."""

    def forward(self: Any, x: Tensor) -> Any:
        for _ in range(2):
            x = self.norm(self.convolution(x + self.position(torch.arange(6))).tanh())
            x = self.scale(x)
        return self.out(x).mean(1)

    return Custom(
        forward,
        convolution=nn.Conv1d(6, 6, 3, padding=1),
        norm=nn.LayerNorm(5),
        position=nn.Embedding(6, 5),
        scale=Scale(5),
        out=nn.Linear(5, 3),
    )


RIGHT: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "in-place on a view": (
        lambda: Custom(
            lambda self, x: self.out(self.first(x).relu_()).mean(1),
            first=nn.Linear(5, 4),
            out=nn.Linear(4, 3),
        ),
        (6, 4, 5),
    ),
    "in-place on attention": (in_place_attention, (6, 5, 4)),
    "a norm that computes something else": (scaled_norm, (6, 5)),
    "a hook that changes the output": (hooked, (6, 5)),
    "a forward of its own": (patched, (6, 5)),
    "pruned": (pruned, (6, 5)),
    "a parameter of size zero": (empty_parameter, (6, 5)),
    "layers that are called twice": (shared_layers, (6, 6, 5)),
}


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    build, shape = RIGHT[name]
    model, x, y = build(), torch.randn(shape), torch.randint(0, 3, (6,))
    layout = Layout(model)
    # Without the oracle, because some of these models cannot be copied.
    losses = [cross_entropy(model(x[i : i + 1]), y[i : i + 1]) for i in range(6)]
    expected = torch.stack(
        [layout.flatten(torch.autograd.grad(loss, layout.parameters)) for loss in losses]
    )
    for source in (LayerGrams(model, cross_entropy), MicroBatches(model, cross_entropy, n_rows=6)):
        torch.testing.assert_close(matrix(source(x, y)), expected, rtol=1e-4, atol=1e-5)


@dataclass
class Output:
    """A kind of output that sources do not look into."""

    logits: Tensor


class Scaled(nn.Linear):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out)
        self.scale = nn.Parameter(torch.ones(()))


class Scale(nn.Module):
    """Its parameter times its input."""

    def __init__(self, n: int, returns: Callable[[Tensor], Any] = lambda x: x) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(n))
        self.returns = returns

    def forward(self, x: Tensor) -> Any:
        return self.returns(x * self.w)


class BatchMean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.w).mean(0)


class Temperature(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.zeros(()))

    def forward(self) -> Tensor:
        return self.log.exp()


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w * torch.rand_like(x)


def out() -> nn.Linear:
    return nn.Linear(5, 3)


REFUSED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "an output of unknown kind": (
        lambda: Custom(
            lambda self, x: self.out(self.scale(x).logits), scale=Scale(5, Output), out=out()
        ),
        (6, 5),
        "'scale.w', used elsewhere",
    ),
    "an output that is a scalar": (
        lambda: Custom(lambda self, x: self.out(x) * self.t(), t=Temperature(), out=out()),
        (6, 5),
        "'t.log', used elsewhere",
    ),
    "random numbers of its own": (
        lambda: nn.Sequential(Noisy(), out()),
        (6, 5),
        "Noisy '0', which draws random numbers",
    ),
    "used outside a module of unknown kind": (
        lambda: Custom(
            lambda self, x: self.out(self.scale(x) + self.scale.w), scale=Scale(5), out=out()
        ),
        (6, 5),
        "add up .* got 'scale.w', where",
    ),
    "a further parameter used by the parent": (
        lambda: Custom(lambda self, x: self.layer(x) * self.layer.scale, layer=Scaled(5, 3)),
        (6, 5),
        "add up .* got 'layer.scale', where",
    ),
    "an output that is the same for all samples, and not added to others": (
        lambda: Custom(
            lambda self, x: self.out(x + self.position(torch.arange(4)).mT.reshape(4, 5)[0]),
            position=nn.Embedding(4, 5),
            out=out(),
        ),
        (6, 5),
        "Embedding 'position', which returns a tensor for all samples that cannot be repeated",
    ),
    "an output of which all samples use one copy": (
        lambda: Custom(
            lambda self, x: self.out(x + self.position(torch.zeros(1, 4, dtype=torch.long))[0, 1]),
            position=nn.Embedding(4, 5),
            out=out(),
        ),
        (6, 5),
        "Embedding 'position', which returns a tensor for all samples that cannot be repeated",
    ),
    "one copy of an output, after the last layer": (
        lambda: Custom(
            lambda self, x: self.out(x) + self.scores(torch.zeros(1, 4, dtype=torch.long))[0, 1],
            scores=nn.Embedding(4, 3),
            out=out(),
        ),
        (6, 5),
        "Embedding 'scores', which returns a tensor for all samples that cannot be repeated",
    ),
    "an output that mixes samples": (
        lambda: Custom(lambda self, x: self.out(x + self.mean(x)), mean=BatchMean(), out=out()),
        (6, 5),
        "BatchMean 'mean', which has a tensor without a separate dimension for the samples",
    ),
    "a sequence as long as the batch": (
        lambda: Custom(
            lambda self, x: self.out(self.recurrent(x)[0][-1]), recurrent=nn.LSTM(5, 5), out=out()
        ),
        (6, 6, 5),
        "must take any number of samples along the first dimension, got with one more, "
        "Expected input batch_size",
    ),
    "frequencies over the batch": (
        lambda: nn.Sequential(nn.Embedding(4, 5, scale_grad_by_freq=True), out()),
        (),
        "Embedding '0', which scales gradients by frequencies over the batch",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    build, shape, message = REFUSED[name]
    x = torch.randn(shape) if shape else torch.tensor([0, 0, 0, 1, 2, 3])
    with pytest.raises(ValueError, match=message):
        LayerGrams(build(), cross_entropy)(x, torch.randint(0, 3, (6,)))


@pytest.mark.parametrize("what", ["batch", "parameter", "mode"])
@pytest.mark.parametrize("n_calls", [1, 2])
def test_rows_of_a_changed_batch_or_model_are_refused(what: str, n_calls: int) -> None:
    again = [Scale(4)] * n_calls
    model: Any = nn.Sequential(nn.Linear(5, 4), *again, nn.Linear(4, 3))
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    rows = LayerGrams(model, cross_entropy)(x, y)
    rows.gram()
    if what == "batch":
        x.zero_()
    elif what == "mode":
        model.eval()
    else:
        model[1].w.detach().add_(1.0)
    message = "`rows` must be used before the batch or the model they are computed from changes"
    for use in (rows.gram, lambda: rows.combine(torch.ones(6)), lambda: rows.keep(torch.ones(1))):
        with pytest.raises(ValueError, match=message):
            use()


def test_reentrant_checkpoints_are_refused_and_others_are_right() -> None:
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    for reentrant in (True, False):

        def forward(self: Any, x: Tensor, reentrant: bool = reentrant) -> Any:
            return self.out(
                checkpoint(self.inner, x.clone().requires_grad_(), use_reentrant=reentrant)
            )

        model = Custom(forward, inner=nn.Linear(5, 5), out=out())
        source = MicroBatches(model, cross_entropy, n_rows=3)
        if reentrant:
            message = r"must use checkpoints with use_reentrant=False, got a reentrant checkpoint\."
            with pytest.raises(ValueError, match=message):
                source(x, y)
        else:
            torch.testing.assert_close(matrix(source(x, y)), by_loop(model, cross_entropy, x, y, 3))


@pytest.mark.parametrize(
    "make",
    [
        PerSample,
        lambda *a: MicroBatches(*a, n_rows=3, vectorized=True),
        lambda *a: MicroBatches(*a, n_rows=3),
    ],
)
def test_a_loss_may_look_at_the_parameters(make: Callable[..., Any]) -> None:
    model, x, y = out(), torch.randn(6, 5), torch.randint(0, 3, (6,))

    def loss_fn(output: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(output, targets) + 0.1 * sum(
            p.square().sum() for p in model.parameters()
        )

    rows = make(model, loss_fn)(x, y)
    mean = rows.combine(torch.full((rows.n,), 1 / rows.n))
    model.zero_grad()
    torch.autograd.backward(loss_fn(model(x), y))
    torch.testing.assert_close(
        mean, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    )


@pytest.mark.parametrize(
    "make",
    [
        PerSample,
        lambda *a: MicroBatches(*a, n_rows=3, vectorized=True),
        lambda *a: MicroBatches(*a, n_rows=3),
    ],
)
def test_buffers_that_are_replaced_count_once(make: Callable[..., Any]) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = out()
            self.n_calls: Tensor
            self.register_buffer("n_calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.n_calls = self.n_calls + 1
            found: Tensor = self.layer(x)
            return found

    model, x, y = Counting(), torch.randn(6, 5), torch.randint(0, 3, (6,))
    source = make(model, cross_entropy)
    for expected in (1, 2):
        source(x, y)
        assert float(model.n_calls) == expected


def normalized() -> Any:
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def test_accumulated_follows_the_model_to_another_dtype_and_other_statistics() -> None:
    model, x, y = normalized(), torch.randn(6, 5), torch.randint(0, 3, (6,))
    source = Accumulated(model, n_rows=3)
    model.double()
    update_bn([x.double() + 100], model)  # without gradients: not a row
    moved = model[1].running_mean.clone()
    assert float(moved.abs().max()) > 5
    for part, labels in zip(x.double().chunk(3), y.chunk(3), strict=True):
        cross_entropy(model(part), labels).backward()
        rows = source()
    assert rows is not None
    assert rows.dtype == torch.float64
    assert float((model[1].running_mean - 0.9 * moved).abs().max()) < 0.2 * float(moved.abs().max())


def test_accumulated_works_in_evaluation_mode_and_without_a_call_of_the_model() -> None:
    model, x, y = normalized().eval(), torch.randn(6, 5), torch.randint(0, 3, (6,))
    source = Accumulated(model, n_rows=2)
    for forward in (model, lambda x: model[2](model[1](model[0](x)))):
        cross_entropy(forward(x), y).backward()
        rows = source()
    assert rows is not None


def test_models_with_an_accumulated_source_can_be_copied_and_saved() -> None:
    model = normalized()
    source = Accumulated(model, n_rows=2)
    twin = copy.deepcopy(model)
    twin(torch.randn(6, 5))
    assert source._buffers is None, "the copy does not report to the source"
    torch.save(model, io.BytesIO())
    del source
    assert not model._forward_pre_hooks


def test_another_set_of_parameters_is_refused() -> None:
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    for make in (PerSample, LayerGrams, lambda *a: MicroBatches(*a, n_rows=3)):
        model = normalized()
        model[1].eval()
        source = make(model, cross_entropy)
        model[0].weight.requires_grad_(False)
        message = r"parameters it had when the source was made .* got another '0.weight'"
        with pytest.raises(ValueError, match=message):
            source(x, y)
        model[0].weight.requires_grad_(True)
        source(x, y)
        model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
        with pytest.raises(ValueError, match="parameters it had when the source was made"):
            source(x, y)


def test_sparse_gradients_are_rows_too() -> None:
    model, x, y = (
        nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Linear(4, 3)),
        torch.randint(0, 7, (6,)),
        torch.randint(0, 3, (6,)),
    )
    dense: Any = copy.deepcopy(model)
    dense[0].sparse = False
    expected = by_loop(dense, cross_entropy, x, y, 6)
    torch.testing.assert_close(matrix(MicroBatches(model, cross_entropy, n_rows=6)(x, y)), expected)
    torch.testing.assert_close(matrix(LayerGrams(model, cross_entropy)(x, y)), expected)
    source = Accumulated(model, n_rows=1)
    cross_entropy(model(x[:1]), y[:1]).backward()
    rows = source()
    assert rows is not None
    torch.testing.assert_close(matrix(rows)[0], expected[0])


def test_inputs_that_need_gradients_are_taken_as_they_are() -> None:
    model, x, y = out(), torch.randn(6, 5, requires_grad=True), torch.randint(0, 3, (6,))
    expected = by_loop(model, cross_entropy, x.detach(), y, 6)
    for source in (
        PerSample(model, cross_entropy),
        LayerGrams(model, cross_entropy),
        MicroBatches(model, cross_entropy, n_rows=6),
    ):
        torch.testing.assert_close(matrix(source(x, y)), expected)
    assert x.grad is None


def test_a_mistake_of_the_model_is_not_blamed_on_vmap() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        PerSample(out(), cross_entropy)(torch.randn(6, 4), torch.zeros(6, dtype=torch.int64))
