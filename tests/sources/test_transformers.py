"""Transformers layer by layer: positions, tied weights, attention with dropout, any order."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from holdfast import Layout
from holdfast.sources import LayerGrams, MicroBatches, PerSample
from holdfast.sources.layers import Recomputed
from tests.sources.cases import matrix

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


def gradients_of_losses(model: nn.Module, losses: Tensor) -> Tensor:
    """[n, d] the gradient of each loss, from one graph: all rows have the noise of one pass."""
    layout = Layout(model)
    return torch.stack(
        [
            layout.flatten(
                [
                    torch.zeros_like(p) if g is None else g
                    for p, g in zip(
                        layout.parameters,
                        torch.autograd.grad(
                            loss, layout.parameters, retain_graph=True, allow_unused=True
                        ),
                        strict=True,
                    )
                ]
            )
            for loss in losses
        ]
    )


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


def gpt2(dropout: float = 0.0) -> nn.Module:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=N_WORDS,
            n_positions=8,
            n_embd=8,
            n_layer=2,
            n_head=2,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
        )
    )


def bert_options(dropout: float) -> Any:
    options = BertConfig(
        vocab_size=N_WORDS,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=8,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    options.num_labels = 3
    return options


def llama(dropout: float = 0.0) -> nn.Module:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=N_WORDS,
            hidden_size=8,
            intermediate_size=12,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=8,
            attention_dropout=dropout,
        )
    )


PRETRAINED: dict[str, Callable[[float], nn.Module]] = {
    "GPT-2": gpt2,
    "Llama": llama,
    "BERT for masked words": lambda dropout: BertForMaskedLM(bert_options(dropout)),
    "BERT for classes": lambda dropout: BertForSequenceClassification(bert_options(dropout)),
}


def losses_of(output: Any, targets: Tensor) -> Tensor:
    """[n] the mean loss of the words of each sample, or the loss of its class."""
    logits = output.logits
    if logits.ndim == 2:
        return cross_entropy(logits, targets[:, 0] % 3, reduction="none")
    return cross_entropy(logits.mT, targets, reduction="none").mean(1)


@pytest.mark.parametrize("name", PRETRAINED)
def test_models_of_the_transformers_library(name: str) -> None:
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(3)
        words = torch.randint(0, N_WORDS, (4, 6))
        targets = torch.randint(0, N_WORDS, (4, 6))
        inputs = {"input_ids": words, "attention_mask": torch.ones_like(words)}
        inputs["attention_mask"][1, 4:] = 0
        model = PRETRAINED[name](0.0)
        losses = losses_of(model(**inputs), targets)
        expected = gradients_of_losses(model, losses)
        rows = LayerGrams(model, losses_of)(inputs, targets)
        torch.testing.assert_close(matrix(rows), expected, rtol=1e-4, atol=1e-6)
        model = PRETRAINED[name](0.3)
        source = LayerGrams(model, losses_of)
        for seed in (1, 2):
            torch.default_generator.manual_seed(seed)
            rows = source(inputs, targets)
            torch.default_generator.manual_seed(seed)
            expected = gradients_of_losses(model, losses_of(model(**inputs), targets))
            torch.testing.assert_close(matrix(rows), expected, rtol=1e-4, atol=1e-6)
            products = rows.products(torch.empty(0, rows.d)).float()
            torch.testing.assert_close(products, expected @ expected.T, rtol=1e-3, atol=1e-5)


def test_only_the_norms_of_llama_are_run_again() -> None:
    words = torch.randint(0, N_WORDS, (4, 6))
    for build in PRETRAINED.values():
        rows = LayerGrams(build(0.3), losses_of)({"input_ids": words}, words)
        again = [layer for layer in rows._layers if isinstance(layer, Recomputed)]
        assert all(type(layer.module).__name__ == "LlamaRMSNorm" for layer in again)


def padded_batch() -> tuple[dict[str, Tensor], Tensor]:
    """Eight sequences of two to six words, and how many words each one predicts."""
    words = torch.randint(0, N_WORDS, (8, 6))
    lengths = torch.tensor([6, 2, 3, 6, 2, 5, 4, 2])
    is_word = torch.arange(6) < lengths[:, None]
    return {"input_ids": words, "labels": words.where(is_word, -100)}, lengths - 1


def predicted_words(inputs: Any, _: Any) -> Tensor:
    found: Tensor = (inputs["labels"][:, 1:] != -100).sum(1)
    return found


def loss_of(output: Any) -> Tensor:
    found: Tensor = output.loss
    return found


@pytest.mark.parametrize(
    "make",
    [
        lambda model: MicroBatches(model, loss_of, n_rows=4, terms=predicted_words),
        lambda model: PerSample(model, loss_of, terms=predicted_words),
        lambda model: LayerGrams(model, loss_of, terms=predicted_words),
    ],
)
def test_the_weighted_mean_of_rows_is_the_gradient_of_a_padded_batch(
    make: Callable[[nn.Module], Any],
) -> None:
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(3)
        model, (inputs, n_terms) = gpt2(), padded_batch()
    model(**inputs).loss.backward()
    ordinary = Layout(model).flatten([p.grad for p in model.parameters() if p.grad is not None])
    source = make(model)
    rows = source(inputs)
    assert source.row_weights is not None
    expected = n_terms.view(rows.n, -1).sum(1) / n_terms.sum()
    torch.testing.assert_close(source.row_weights.float(), expected)
    mean = rows.combine(source.row_weights)
    torch.testing.assert_close(mean, ordinary, rtol=1e-4, atol=1e-6)
    plain = rows.combine(torch.full((rows.n,), 1 / rows.n))
    assert float((plain - ordinary).norm()) > 0.1 * float(ordinary.norm())
    # Each row is the gradient of its own mean loss.
    samples = source.samples_of(1)
    one = {key: value[samples] for key, value in inputs.items()}
    model.zero_grad()
    model(**one).loss.backward()
    alone = Layout(model).flatten([p.grad for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(matrix(rows)[1], alone, rtol=1e-4, atol=1e-6)
