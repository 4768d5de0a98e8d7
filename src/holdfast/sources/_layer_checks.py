"""Checks of a model whose gradients are computed layer by layer, most at the first batch only."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from holdfast.checks import failure
from holdfast.layout import Layout
from holdfast.sources._batch_loss import Objective, first_line, picked, tensors_of
from holdfast.sources._buffers import without_side_effects
from holdfast.sources._layer_rows import LayerRows
from holdfast.sources._module_calls import (
    Call,
    RecordedPass,
    ShapesOfCalls,
    own_parameters,
    recorded_calls,
    refused,
)
from holdfast.sources.layers import is_known

NOT_REPLACED = "returns a tensor for all samples that cannot be repeated for each"


def shapes_with_one_more(objective: Objective, batch: Any, n: int) -> ShapesOfCalls:
    """Shapes in a pass without side effects over the n samples and a copy of the first."""
    one_more = torch.cat([torch.arange(n), torch.zeros(1, dtype=torch.int64)])
    model = objective.model
    try:
        with without_side_effects(model), recorded_calls(model, n + 1) as recorded:
            objective(picked(batch, one_more))
    except Exception as error:
        # If the model fails on the batch itself, that error is the one to show.
        with without_side_effects(model):
            objective(batch)
        requirement = "take any number of samples along the first dimension"
        got = f"with one more, {first_line(error)}"
        raise failure("model", requirement, got) from error
    n_calls: Counter[str] = Counter()
    found: ShapesOfCalls = {}
    for call in recorded.calls:
        found[call.name, n_calls[call.name]] = call.shapes
        n_calls[call.name] += 1
    return found


def check_copies(pass_: RecordedPass, nudged: RecordedPass, n: int) -> None:
    """Check that the first copy of what is repeated for each sample influences that sample only.

    `nudged` is a pass in which that copy was changed.
    """
    copies = next(call for call in pass_.calls if call.is_repeated)
    if [call.name for call in pass_.calls] != [call.name for call in nudged.calls]:
        return  # the model chooses its modules at random
    pairs = list(zip(tensors_of(pass_.output), tensors_of(nudged.output), strict=True))
    both = [(tensor, now, 0) for tensor, now in pairs if len(tensor) == n]
    for call, other in zip(pass_.calls, nudged.calls, strict=True):
        arguments = tensors_of(call.arguments), tensors_of(other.arguments)
        triples = zip(*arguments, call.dimensions[0], strict=True)
        both += [(tensor, now, at) for tensor, now, at in triples if at is not None]
    for tensor, now, at in both:
        left, right = (each.detach().movedim(at, 0)[1:] for each in (tensor, now))
        if not torch.allclose(left, right, rtol=1e-3, atol=1e-6, equal_nan=True):
            raise refused(copies.name, copies.module, NOT_REPLACED)


def check_uses(calls: Sequence[Call], n_uses: Counter[int]) -> None:
    """Check that parameters of known modules are used by calls of such modules only.

    `n_uses` counts the operations in the graph that use each parameter, by its id.
    """
    n_calls = Counter(
        id(p) for call in calls if is_known(call.module) for p in own_parameters(call.module)
    )
    for call in calls:
        for own, parameter in call.module._parameters.items():
            if 0 < n_calls[id(parameter)] < n_uses[id(parameter)]:
                why = f"has a {own} that is also used outside it"
                raise refused(call.name, call.module, why)


def blamed(error: RuntimeError, calls: Sequence[Call]) -> Exception:
    """The error, or if outputs were repeated for each sample, the refusal of the last of those."""
    repeated_calls = [call for call in calls if call.is_repeated]
    if not repeated_calls:
        return error
    call = repeated_calls[-1]
    return refused(call.name, call.module, f"{NOT_REPLACED} ({first_line(error)})")


def check_reached(layout: Layout, n_uses: Counter[int], rows: LayerRows) -> None:
    """Check that the rows hold gradients of every parameter that the loss depends on."""
    for name, parameter in zip(layout.names, layout.parameters, strict=True):
        if n_uses[id(parameter)] and parameter.numel() and not rows.reaches(parameter):
            requirement = "use parameters in modules that take and return tensors with samples"
            raise failure("model", requirement, f"{name!r}, used elsewhere")


def check_sum(rows: LayerRows, weights: Tensor, ordinary: Tensor, layout: Layout) -> bool:
    """Check that rows and inner products add up to the ordinary gradient.

    Returns False if a sample is not finite, so that the sums cannot be compared.
    """
    n, found = rows.n, rows.combine(weights)
    products = rows.products(ordinary[None])
    weights = weights.to(products)
    scale = float(weights @ products.diagonal()[:n].clamp(min=0).sqrt())
    if not scale < float("inf") or not bool(torch.isfinite(ordinary).all()):
        return False
    is_coarse = torch.is_autocast_enabled(found.device.type) or found.dtype.itemsize < 4
    tolerance = 0.05 if is_coarse else 1e-3
    errors = [float(torch.linalg.vector_norm(piece)) for piece in layout.split(found - ordinary)]
    worst = max(range(len(errors)), key=lambda i: errors[i])
    if errors[worst] > tolerance * scale:
        requirement = "have per-sample gradients that add up to its gradient (or use PerSample)"
        raise failure("model", requirement, f"{layout.names[worst]!r}, where they do not")
    # <g_i, mean of all g_j> two ways: catches inner products that are wrong while the sum is right.
    along = weights * (products[:n, :n] @ weights - products[:n, n])
    if float(along.abs().sum()) > tolerance * scale**2:
        requirement = "have layers that compute each sample independently of the others"
        raise failure("model", requirement, "one that does not")
    return True
