"""Dropout whose noise can be repeated when a module is run again."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from holdfast.sources._random_state import random_state

Factors = Callable[[Tensor, float], Tensor]
_dropout = functional.dropout
_attention = functional.scaled_dot_product_attention


class _OwnNoise(TorchFunctionMode):
    """Multiplies by given factors where torch would draw the noise of dropout."""

    def __init__(self, factors: Factors) -> None:
        super().__init__()
        self._factors = factors

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        own = {_dropout: self._dropout, _attention: self._attention}.get(function, function)
        if function is not functional.multi_head_attention_forward:
            return own(*args, **(kwargs or {}))
        # The mode is off within a function that it has intercepted; this one calls the other two.
        functional.dropout = self._dropout
        functional.scaled_dot_product_attention = self._attention
        try:
            return function(*args, **(kwargs or {}))
        finally:
            functional.dropout = _dropout
            functional.scaled_dot_product_attention = _attention

    def _dropout(
        self,
        input: Tensor,  # noqa: A002 (the name in torch, which callers may use)
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        if not training or p == 0.0:
            return input
        factors = self._factors(input, p)
        return input.mul_(factors) if inplace else input * factors

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """With dropout by the formula in the documentation of torch's function."""
        if dropout_p == 0.0:
            return _attention(
                query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        if enable_gqa:
            n_repeats = query.size(-3) // key.size(-3)
            key, value = (t.repeat_interleave(n_repeats, -3) for t in (key, value))
        scores = query @ key.mT * (scale or 1.0 / math.sqrt(query.size(-1)))
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        shares = torch.softmax(scores, dim=-1)
        return shares * self._factors(shares, dropout_p) @ value


@dataclass(eq=False)
class Noise:
    """The noise of one call of a module.

    Attributes:
        factors: what each dropout multiplied with, in the order of the calls.
        state: the state of the generator after the last of them.
        is_complete: whether no other random numbers were drawn.
    """

    factors: list[Tensor]
    state: Tensor
    is_complete: bool = True


@final
class RecordedNoise(_OwnNoise):
    """Draws noise as torch does, and stores it for calls that are open."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(self._draw)
        self._device = device
        self._open: list[Noise] = []

    def begin(self) -> None:
        """Open a record, within those that are open."""
        self._open.append(Noise([], random_state(self._device)))

    def end(self) -> Noise:
        """Close the record that was opened last."""
        noise = self._open.pop()
        noise.is_complete &= torch.equal(noise.state, random_state(self._device))
        return noise

    def _draw(self, like: Tensor, p: float) -> Tensor:
        before = random_state(self._device) if self._open else None
        # With ones, dropout draws the same numbers and returns the factors.
        drawn = _dropout(torch.ones_like(like), p)
        for noise in self._open:
            assert before is not None
            noise.is_complete &= torch.equal(noise.state, before)
            noise.state = random_state(self._device)
            noise.factors.append(drawn.detach())
        return drawn


@final
class RepeatedNoise(_OwnNoise):
    """Uses factors that were recorded, or those of one of the samples."""

    def __init__(self, factors: Iterable[Tensor]) -> None:
        recorded = iter(factors)
        # One sample lacks the dimension of samples, which is a reshape.
        super().__init__(lambda like, _: next(recorded).to(like.dtype).reshape(like.shape))
