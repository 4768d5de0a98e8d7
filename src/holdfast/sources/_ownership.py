"""Which module answers for which parameter, and whether their per-sample gradients can be believed."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.checks import failure
from holdfast.layout import Layout
from holdfast.sources._batch import first_line, picked
from holdfast.sources._layer_rows import LayerRows
from holdfast.sources._objective import Objective
from holdfast.sources._recording import Call, recorded, refused
from holdfast.sources._rehearsal import rehearsal
from holdfast.sources.layers import is_known


def check_owners(model: nn.Module, calls: Sequence[Call], n_uses: Counter[int]) -> None:
    """Every module is called at most once, no two share a parameter, and known layers are alone in using theirs."""
    n_calls = Counter(id(call.module) for call in calls)
    owners: dict[int, tuple[str, str, nn.Module]] = {}
    for name, module in model.named_modules():
        if n_calls[id(module)] > 1:
            raise refused(name, module, "is called more than once")
        for own, parameter in module._parameters.items():
            if parameter is not None and parameter.requires_grad:
                if id(parameter) in owners:
                    raise refused(
                        name, module, f"shares its {own} with {owners[id(parameter)][0]!r}"
                    )
                owners[id(parameter)] = name, own, module
    for parameter_id, (name, own, module) in owners.items():
        if n_calls[id(module)] and is_known(module) and n_uses[parameter_id] > 1:
            raise refused(name, module, f"has a {own} that is used outside it, too")


def adopters(model: nn.Module, calls: Sequence[Call]) -> dict[int, nn.Module]:
    """Parameters (by id) whose own module is never called, with the innermost module of unknown kind that holds them and is."""
    called = {id(call.module) for call in calls}
    orphans = {
        id(parameter)
        for module in model.modules()
        if id(module) not in called
        for parameter in module._parameters.values()
        if parameter is not None
    }
    adopted: dict[int, nn.Module] = {}
    for call in sorted(
        calls, key=lambda call: call.name.count(".") + bool(call.name)
    ):  # the innermost comes last
        if not is_known(call.module):
            adopted |= {
                id(parameter): call.module
                for parameter in call.module.parameters()
                if id(parameter) in orphans
            }
    return adopted


def check_reached(layout: Layout, n_uses: Counter[int], rows: LayerRows) -> None:
    """Every parameter that the loss depends on has its gradients in the rows."""
    for name, parameter in zip(layout.names, layout.parameters, strict=True):
        if n_uses[id(parameter)] and parameter.numel() and not rows.reaches(parameter):
            raise failure(
                "model",
                "use parameters in modules that take and return tensors with samples",
                f"{name!r}, used elsewhere",
            )


def calls_with_one_more(objective: Objective, batch: Any, n: int) -> list[Call]:
    """The calls of a forward pass with the first of the n samples once more at the end; random numbers and buffers stand as before."""
    one_more = torch.cat([torch.arange(n), torch.zeros(1, dtype=torch.int64)])
    try:
        with rehearsal(objective.model), recorded(objective.model) as others:
            objective(picked(batch, one_more))
    except Exception as error:
        with rehearsal(objective.model):
            objective(
                batch
            )  # raises what the model itself has to say against the batch, if anything
        got = f"with one more, {first_line(error)}"
        raise failure(
            "model", "take any number of samples along the first dimension", got
        ) from error
    return others


def check_lengths(calls: Sequence[Call], others: Sequence[Call], n: int) -> None:
    """What has n entries has them because there are n samples: in the `others`, with one more sample, it has one more."""
    if [call.name for call in others] != [call.name for call in calls]:
        return  # a model that calls its modules at random
    for call, other in zip(calls, others, strict=True):
        if any(
            length == n != now - 1 for length, now in zip(call.lengths, other.lengths, strict=True)
        ):
            raise refused(
                call.name, call.module, "does not have the samples along the first dimension"
            )


def check_sum(rows: LayerRows, ordinary: Tensor, layout: Layout) -> bool:
    """The rows, and their inner products, add up to the ordinary gradient; False where a sample is not finite and that cannot be told."""
    n, found = rows.n, rows.combine(torch.ones(rows.n))
    products = rows.products(ordinary[None])
    scale = float(products.diagonal()[:n].clamp(min=0).sqrt().sum())
    if not scale < float("inf") or not bool(torch.isfinite(ordinary).all()):
        return False
    tolerance = (
        0.05 if torch.is_autocast_enabled(found.device.type) or found.dtype.itemsize < 4 else 1e-3
    )
    errors = [float(torch.linalg.vector_norm(piece)) for piece in layout.split(found - ordinary)]
    worst = max(range(len(errors)), key=lambda i: errors[i])
    if errors[worst] > tolerance * scale:
        raise failure(
            "model",
            "have layers whose per-sample gradients add up to the ordinary gradient (PerSample and MicroBatches ask less)",
            f"{layout.names[worst]!r}, where they do not",
        )
    if float((products[:n, :n].sum(1) - products[:n, n]).abs().max()) > tolerance * scale**2:
        raise failure(
            "model", "have layers that treat every sample as if it were alone", "one that does not"
        )
    return True
