"""Transformers layer by layer: positions, tied weights, attention with dropout, any order."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast.sources import LayerGrams
from tests.sources.cases import gradients_of_losses, matrix

N_WORDS, WIDTH, LENGTH = 19, 8, 5


class Custom(nn.Module):
    """Any forward pass over a few layers."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **members: Any) -> None:
        super().__init__()
        for name, member in members.items():
            setattr(self, name, member)
        self._forward = forward

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def encoder(batch_first: bool, dropout: float = 0.3, **options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        WIDTH, 2, 12, dropout=dropout, batch_first=batch_first, **options
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def model_with(positions: Any, forward: Callable[[Any, Tensor], Tensor]) -> nn.Module:
    return Custom(
        forward,
        words=nn.Embedding(N_WORDS, WIDTH),
        positions=positions,
        body=encoder(batch_first=True),
        out=nn.Linear(WIDTH, 3),
    )


def table_of_positions(shape: tuple[int, ...]) -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        positions = self.positions(torch.arange(LENGTH).expand(shape))
        out: Tensor = self.out(self.body(self.words(x) + positions).mean(1))
        return out

    return model_with(nn.Embedding(LENGTH, WIDTH), forward)


def parameter_of_positions(shape: tuple[int, ...]) -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.body(self.words(x) + self.positions).mean(1))
        return out

    return model_with(nn.Parameter(torch.randn(shape)), forward)


def sequence_first() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.body(self.words(x.T))).mean(0)
        return out

    return Custom(
        forward,
        words=nn.Embedding(N_WORDS, WIDTH),
        body=encoder(batch_first=False),
        out=nn.Linear(WIDTH, 3),
    )


def attention_with_weights() -> nn.Module:
    """With its weights returned, attention flattens samples and heads to one dimension."""

    def forward(self: Any, x: Tensor) -> Tensor:
        words = self.words(x.T)
        out: Tensor = self.out(self.attention(words, words, words)[0]).mean(0)
        return out

    return Custom(
        forward,
        words=nn.Embedding(N_WORDS, WIDTH),
        attention=nn.MultiheadAttention(WIDTH, 2, dropout=0.4),
        out=nn.Linear(WIDTH, 3),
    )


def masked_attention() -> nn.Module:
    """A mask that all samples share, and a module that is called twice."""

    def forward(self: Any, x: Tensor) -> Tensor:
        words, mask = self.words(x), torch.ones(LENGTH, LENGTH).triu(1).bool()
        for _ in range(2):
            words = words + self.attention(words, words, words, attn_mask=mask)[0]
        out: Tensor = self.out(words).mean(1)
        return out

    return Custom(
        forward,
        words=nn.Embedding(N_WORDS, WIDTH),
        attention=nn.MultiheadAttention(WIDTH, 2, dropout=0.4, batch_first=True),
        out=nn.Linear(WIDTH, 3),
    )


def tied() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.body(self.words(x))).mean(1)[:, :3]
        return out

    model: Any = Custom(
        forward,
        words=nn.Embedding(N_WORDS, WIDTH, padding_idx=1),
        body=encoder(batch_first=True, norm_first=True),
        out=nn.Linear(WIDTH, N_WORDS),
    )
    model.out.weight = model.words.weight
    return model  # type: ignore[no-any-return]


def recurrent_sequence_first() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.recurrent(self.norm(self.words(x.T)))[0][-1])
        return out

    return Custom(
        forward,
        words=nn.Embedding(N_WORDS, WIDTH),
        norm=nn.LayerNorm(WIDTH),
        recurrent=nn.LSTM(WIDTH, WIDTH),
        out=nn.Linear(WIDTH, 3),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "table of positions [T]": lambda: table_of_positions((LENGTH,)),
    "table of positions [1, T]": lambda: table_of_positions((1, LENGTH)),
    "parameter of positions [T, e]": lambda: parameter_of_positions((LENGTH, WIDTH)),
    "parameter of positions [1, T, e]": lambda: parameter_of_positions((1, LENGTH, WIDTH)),
    "sequence first": sequence_first,
    "attention with weights": attention_with_weights,
    "masked attention": masked_attention,
    "tied": tied,
    "recurrent, sequence first": recurrent_sequence_first,
}


@pytest.mark.parametrize("n", [4, LENGTH])
@pytest.mark.parametrize("name", MODELS)
def test_rows_have_the_noise_of_one_ordinary_pass(name: str, n: int) -> None:
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(5)
        model = MODELS[name]()
        x, y = torch.randint(0, N_WORDS, (n, LENGTH)), torch.randint(0, 3, (n,))
        source = LayerGrams(model, cross_entropy)
        for seed in (1, 2):  # the second batch is not checked any more
            torch.default_generator.manual_seed(seed)
            rows = source(x, y)
            after = torch.get_rng_state()
            torch.default_generator.manual_seed(seed)
            expected = gradients_of_losses(model, cross_entropy(model(x), y, reduction="none"))
            assert torch.equal(torch.get_rng_state(), after)
            torch.testing.assert_close(matrix(rows), expected, rtol=1e-4, atol=1e-6)
            products = rows.products(torch.empty(0, rows.d)).float()
            torch.testing.assert_close(products, expected @ expected.T, rtol=1e-3, atol=1e-5)
            kept = rows.keep(torch.tensor([3, 1]))
            torch.testing.assert_close(matrix(kept), expected[[3, 1]], rtol=1e-4, atol=1e-6)
            exact = rows.exact_products(torch.empty(0, rows.d), center=None, scale=2.0)
            torch.testing.assert_close(exact.float(), 4 * products, rtol=1e-3, atol=1e-5)
