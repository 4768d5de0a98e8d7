"""GPT-2, BERT and Llama of the transformers library, with random weights, and padded batches."""

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
from tests.sources.cases import gradients_of_losses, matrix

N_WORDS = 19


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
