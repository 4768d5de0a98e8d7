"""What autograd's graph of a loss tells."""

from collections import Counter
from collections.abc import Iterator

from torch import Tensor
from torch.autograd.graph import Node

from holdfast.checks import failure


def nodes_of(loss: Tensor) -> Iterator[Node]:
    """Every operation that the loss was computed by, and every leaf."""
    seen: set[Node] = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [following for following, _ in node.next_functions]


def uses(loss: Tensor) -> Counter[int]:
    """How often each leaf (by its id) is used."""
    leaves = (
        getattr(following, "variable", None)
        for node in nodes_of(loss)
        for following, _ in node.next_functions
    )
    return Counter(id(leaf) for leaf in leaves if leaf is not None)


def check_differentiable(loss: Tensor) -> None:
    """The loss has a graph, and one whose parts can be differentiated."""
    if not loss.requires_grad:
        raise failure(
            "loss_fn", "depend on the model's trainable parameters", "a loss without a graph"
        )
    if any(node.name() == "CheckpointFunctionBackward" for node in nodes_of(loss)):
        raise failure(
            "model",
            "use checkpoints that autograd sees through (use_reentrant=False)",
            "a reentrant checkpoint",
        )
