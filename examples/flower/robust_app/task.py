"""Images, models, and the training that a client does in a round."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast.lab.data import DataSet, load
from holdfast.lab.models import models
from holdfast.lab.optimizers import optimizers
from holdfast.lab.partitions import partitions
from holdfast.lab.schedules import schedules
from holdfast.seeds import stream
from holdfast.threats import corruptions

from .settings import Settings

EVALUATION_BATCH = 1000


@lru_cache(maxsize=1)
def data_set(name: str) -> DataSet:
    """The data set, read once per process."""
    return load(name)


def initial_model(settings: Settings) -> nn.Module:
    """The model of the first round, the same wherever it is made."""
    shape = data_set(settings.data).shape
    return models[settings.model](shape=shape, generator=stream(settings.seed, "model"))


def shares(settings: Settings) -> list[Tensor]:
    """The indices of every client's training images."""
    labels = data_set(settings.data).train.labels
    generator = stream(settings.seed, "partition")
    partition = partitions.parse(settings.partition)
    if partition.is_fixed:
        return partition.divide(labels, settings.n_clients, generator=generator)
    order = torch.randperm(len(labels), generator=generator)
    return list(order.tensor_split(settings.n_clients))


def to_vector(arrays: ArrayRecord) -> Tensor:
    """All floating numbers of a model's arrays as one vector [d]."""
    tensors = arrays.to_torch_state_dict().values()
    return torch.cat([tensor.flatten() for tensor in tensors if tensor.is_floating_point()])


def from_vector(vector: Tensor, like: ArrayRecord) -> ArrayRecord:
    """The arrays `like` a model's, with these floating numbers [d]."""
    state, start = like.to_torch_state_dict(), 0
    for name, tensor in state.items():
        if tensor.is_floating_point():
            values = vector[start : start + tensor.numel()]
            state[name], start = values.reshape(tensor.shape).to(tensor.dtype), start + len(values)
    return ArrayRecord(state)


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """What a client does in a round.

    Args:
        settings: those of the run.
        client: its number.
        server_round: the number of the round, from 1.
        is_corrupt: whether it corrupts its images.
        proximal: weight of the squared distance from the global model (FedProx).
    """

    settings: Settings
    client: int
    server_round: int
    is_corrupt: bool = False
    proximal: float = 0.0

    @property
    def share(self) -> Tensor:
        """The indices of the client's images."""
        return shares(self.settings)[self.client]

    def batches(self) -> list[Tensor]:
        """The indices of the images in each step."""
        settings, share = self.settings, self.share
        generator = stream(settings.seed, "batches", self.client, self.server_round)
        if settings.local_steps:
            n = settings.local_steps * settings.batch_size
            drawn = share[torch.randint(len(share), (n,), generator=generator)]
            return list(drawn.split(settings.batch_size))
        orders = [
            share[torch.randperm(len(share), generator=generator)]
            for _ in range(settings.local_epochs)
        ]
        return [batch for order in orders for batch in order.split(settings.batch_size)]

    def learning_rate_factor(self) -> float:
        """The schedule's factor, by the epochs of all clients up to this round."""
        settings = self.settings
        per_round = float(settings.local_epochs)
        if settings.local_steps:
            n_seen = settings.local_steps * settings.batch_size * settings.n_clients
            per_round = n_seen / len(data_set(settings.data).train)
        schedule = schedules.parse(settings.schedule)
        return schedule.factor((self.server_round - 1) * per_round, settings.n_rounds * per_round)

    def run(self, model: nn.Module) -> float:
        """Train the model in place; returns the mean loss."""
        settings, data = self.settings, data_set(self.settings.data)
        optimizer = optimizers.parse(settings.optimizer).build(model.parameters())
        for group in optimizer.param_groups:
            group["lr"] *= self.learning_rate_factor()
        start = [parameter.detach().clone() for parameter in model.parameters()]
        generator = stream(settings.seed, "corruption", self.client, self.server_round)
        dropout_seed = stream(settings.seed, "dropout", self.client, self.server_round)
        model.train()
        total, batches = 0.0, self.batches()
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(dropout_seed.initial_seed())
            for indices in batches:
                x, y = data.train.batch(indices)
                if self.is_corrupt:
                    everything = torch.ones(len(y), dtype=torch.bool)
                    corruption = corruptions.parse(settings.corruption)
                    x, y = corruption(x, y, everything, generator=generator)
                loss = cross_entropy(model(data.normalize(x)), y)
                total += float(loss.detach())
                if self.proximal:
                    pairs = zip(model.parameters(), start, strict=True)
                    loss = loss + self.proximal / 2 * sum((p - q).square().sum() for p, q in pairs)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return total / len(batches)


@torch.no_grad()
def evaluate(settings: Settings, model: nn.Module, indices: Tensor) -> tuple[float, float]:
    """Accuracy and loss on the test images at `indices`."""
    data = data_set(settings.data)
    model.eval()
    n_right, loss = 0, 0.0
    for batch in indices.split(EVALUATION_BATCH):
        x, y = data.test.batch(batch)
        scores = model(data.normalize(x))
        n_right += int((scores.argmax(1) == y).sum())
        loss += float(cross_entropy(scores, y, reduction="sum"))
    return n_right / len(indices), loss / len(indices)
