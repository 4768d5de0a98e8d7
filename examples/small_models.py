"""Small models on real data, and loops that train them: shared by the experiments of this folder.

Everything comes with the project or with Python: images are the embedded slice of Fashion-MNIST,
text is source code of Python's standard library. Batches, initial parameters and schedules depend
only on the seed, so runs with different rules see the same batches.
"""

import importlib
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from holdfast import RobustStep
from holdfast.aggregators import Aggregator
from holdfast.geometry import DenseRows
from holdfast.lab.data import load
from holdfast.lab.models import lenet, mlp
from holdfast.optim import RobustOptimizer
from holdfast.robust_step import StepResult
from holdfast.seeds import stream
from holdfast.sources import MicroBatches

TRAINING_MODULES = ("_pydecimal", "argparse", "difflib", "doctest", "inspect", "pickle", "tarfile")
TEST_MODULES = ("subprocess", "textwrap")
LENGTH, N_CHARACTERS = 32, 97  # characters of a sequence; ASCII 32 to 126, line feed, all others


@dataclass(frozen=True)
class Data:
    """Inputs and targets for training and for testing."""

    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor


@cache
def images() -> Data:
    """6,000 training and 2,000 test images of Fashion-MNIST, normalized, with their classes."""
    data = load("fashion-mnist-slice")
    train, test = (data.normalize(part.scaled()) for part in (data.train, data.test))
    return Data(train, data.train.labels, test, data.test.labels)


@cache
def text() -> Data:
    """Sequences of 32 characters, with the next character after each as target.

    Source code of modules of the running Python's standard library; other modules are for testing.
    Another release of Python has slightly different text.
    """
    return Data(*sequences(TRAINING_MODULES), *sequences(TEST_MODULES))


def sequences(modules: Iterable[str]) -> tuple[Tensor, Tensor]:
    """[N, 32] characters and [N, 32] the characters that follow them."""
    source = "".join(inspect.getsource(importlib.import_module(name)) for name in modules)
    codes = torch.tensor([ord(character) for character in source])
    is_printable = (codes >= 32) & (codes <= 126)
    tokens = torch.where(is_printable, codes - 32, torch.where(codes == 10, 95, 96))
    n = (len(tokens) - 1) // LENGTH
    return tokens[: n * LENGTH].view(n, LENGTH), tokens[1 : n * LENGTH + 1].view(n, LENGTH)


def batch_norm_cnn() -> nn.Sequential:
    """Two convolutions with batch normalization and a linear layer: 9,122 parameters."""
    layers: list[nn.Module] = []
    for n_in, n_out in ((1, 8), (8, 16)):
        convolution = nn.Conv2d(n_in, n_out, 3, stride=2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(n_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(784, 10))


class Encoder(nn.Module):
    """A Transformer encoder that reads an image as 28 rows of pixels: 19,242 parameters."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Linear(28, width)
        self.positions = nn.Parameter(0.02 * torch.randn(28, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        # The fused kernels of attention have no rule for vmap, which then warns and loops.
        with sdpa_kernel(SDPBackend.MATH):
            features = self.layers(self.embedding(images.flatten(1, 2)) + self.positions)
        logits: Tensor = self.head(features.mean(1))
        return logits


class TinyGPT2(nn.Module):
    """`transformers.GPT2LMHeadModel` with random weights, 2 layers of width 64: 108,352 parameters.

    Without dropout, so that the mean of the rows is the gradient of the batch.
    """

    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel  # slow, and not needed by the others

        config = GPT2Config(
            vocab_size=N_CHARACTERS,
            n_positions=LENGTH,
            n_embd=64,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
        )
        self.inner = GPT2LMHeadModel(config)
        self.inner.set_attn_implementation("eager")  # works under vmap

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.inner(input_ids=tokens, use_cache=False).logits
        return logits


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Data]]] = {
    "lenet": (lenet, images),
    "mlp": (mlp, images),
    "batch-norm-cnn": (batch_norm_cnn, images),
    "encoder": (Encoder, images),
    "gpt-2": (TinyGPT2, text),
}
"""How each model is built, and its data."""

OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "sgd": lambda model: SGD(model.parameters(), lr=0.1),
    "momentum": lambda model: SGD(model.parameters(), lr=0.05, momentum=0.9),
    "adam": lambda model: Adam(model.parameters(), lr=0.005),
    "adamw": lambda model: AdamW(model.parameters(), lr=0.005),
}


def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of classes [b, C], or of next characters [b, LENGTH, C]."""
    return cross_entropy(outputs.movedim(-1, 1), targets)


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training from a seed: `n_steps` batches of `n_rows` times `row_size` samples.

    The learning rate rises during the first tenth and falls to zero along a cosine.
    """

    model: str
    optimizer: str
    seed: int
    n_steps: int
    n_rows: int
    row_size: int = 8

    def plain(self) -> float:
        """Test accuracy in percent of an ordinary loop with `loss.backward()`."""
        model, data = self._model(), self._data()
        optimizer = OPTIMIZERS[self.optimizer](model)
        schedule = LambdaLR(optimizer, self._rate)
        for batch in self._batches(data):
            optimizer.zero_grad()
            loss_fn(model(data.inputs[batch]), data.targets[batch]).backward()
            optimizer.step()
            schedule.step()
        return accuracy(model, data)

    def robust(
        self,
        rule: Aggregator | RobustStep | str,
        *,
        sent: Callable[[DenseRows], DenseRows] = lambda rows: rows,
        watch: Callable[[DenseRows, StepResult], None] | None = None,
    ) -> float:
        """Test accuracy in percent of a loop with a rule or a step.

        Args:
            rule: the rule or the step.
            sent: what the rule sees in place of the rows.
            watch: called after every step with the rows that the rule saw and its result.
        """
        model, data = self._model(), self._data()
        optimizer = RobustOptimizer(OPTIMIZERS[self.optimizer](model), rule)
        schedule = LambdaLR(optimizer, self._rate)
        source = MicroBatches(model, loss_fn, n_rows=self.n_rows)
        for batch in self._batches(data):
            rows = sent(source(data.inputs[batch], data.targets[batch]))
            optimizer.zero_grad()
            optimizer.step(rows)
            schedule.step()
            if watch is not None and optimizer.result is not None:
                watch(rows, optimizer.result)
        return accuracy(model, data)

    def _model(self) -> nn.Module:
        build, _ = MODELS[self.model]
        # Layers draw their parameters from the global generator, which is left as it was.
        with torch.random.fork_rng([]):
            torch.set_rng_state(stream(self.seed, "parameters").get_state())
            return build()

    def _data(self) -> Data:
        return MODELS[self.model][1]()

    def _rate(self, t: int) -> float:
        """The learning rate of step t, as a share of the full one."""
        warmup = min(1.0, (t + 1) / (0.1 * self.n_steps))
        return warmup * 0.5 * (1 + math.cos(math.pi * t / self.n_steps))

    def _batches(self, data: Data) -> Iterable[Tensor]:
        generator, size = stream(self.seed, "batches"), self.n_rows * self.row_size
        for _ in range(self.n_steps):
            yield torch.randint(0, len(data.targets), (size,), generator=generator)


@torch.no_grad()
def accuracy(model: nn.Module, data: Data) -> float:
    """The share of right classes, or of right next characters, on the test data, in percent."""
    model.eval()
    parts = zip(data.test_inputs.split(500), data.test_targets.split(500), strict=True)
    n_right = sum(int((model(inputs).argmax(-1) == targets).sum()) for inputs, targets in parts)
    model.train()
    return 100 * n_right / data.test_targets.numel()
