"""Ranks that know the protocol and lie in it, beyond their own rows."""

from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from holdfast.distributed import Exchange
from holdfast.distributed._collectives import Channel
from holdfast.distributed._replicas import checksum
from holdfast.distributed._testimony import DIGEST, HEAD
from holdfast.errors import RanksDifferError
from holdfast.seeds import stream
from tests.distributed.cases import Known, guarded_model
from tests.distributed.workers import Workers

EXCHANGE: Any = {"send": 0.5, "tile": 4, "rule": "geometric-median"}


def forge(model: nn.Module) -> None:
    """Change two parameters such that the checksum stays as it is."""
    parameters = [p.detach() for p in model.parameters()]
    before = checksum(parameters)
    bits = max(parameters, key=Tensor.numel).view(-1).view(torch.int32)
    bits[0] += 3 * 2**22  # counts once
    bits[1] -= 2**22  # counts three times
    assert checksum(parameters) == before


def flat(model: nn.Module) -> Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()]).clone()


def one_step(kind: str, model: nn.Module) -> None:
    """A step that moves nothing and compares the parameters of all ranks."""
    if kind == "exchange":
        sgd = torch.optim.SGD(model.parameters(), lr=0.0)
        exchange = Exchange(model, sgd, **EXCHANGE, check_every=1)
        spoil(model)
        model(torch.zeros(194)).backward()
        exchange.step()
        return
    model, _, optimizer = guarded_model(
        kind, "geometric-median", model, mode="gathered", check_every=1, on_mismatch="copy"
    )
    spoil(model)
    model(torch.zeros(194)).backward()
    optimizer.step()


def spoil(model: nn.Module) -> None:
    """Rank 3 has an accident, and rank 0 has been waiting for one."""
    if dist.get_rank() == 0:
        forge(model)
    if dist.get_rank() == 3:
        with torch.no_grad():
            next(model.parameters()).view(-1)[0] += 1.0


def with_forged_parameters(kind: str) -> tuple[Tensor, Tensor]:
    model = Known()
    before = flat(model)
    one_step(kind, model)
    return before, flat(model)


KINDS = ["ddp", "plain", "exchange"]


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_with_a_forged_checksum_are_not_copied(workers: Workers, kind: str) -> None:
    for before, after in workers.run(with_forged_parameters, kind):
        assert after.equal(before)


def with_others_handed_out() -> tuple[str, Tensor, Tensor]:
    """Rank 0 has the parameters of the majority, and hands out others."""
    options: Any = {"mode": "gathered", "check_every": 1, "on_mismatch": "copy"}
    model, _, optimizer = guarded_model("plain", "geometric-median", Known(), **options)
    message, original = "", dist.broadcast

    def lying(tensor: Tensor, *args: Any, **options: Any) -> Any:
        return original(torch.full_like(tensor, 7.0), *args, **options)

    if dist.get_rank() == 3:
        with torch.no_grad():
            next(model.parameters()).view(-1)[0] += 1.0
    before = flat(model)
    model(torch.zeros(194)).backward()
    with mock.patch.object(dist, "broadcast", lying if dist.get_rank() == 0 else original):
        try:
            optimizer.step()
        except RanksDifferError as error:
            message = str(error)
    return message, before, flat(model)


def test_other_parameters_than_those_of_the_majority_are_not_copied(workers: Workers) -> None:
    for rank, (message, before, after) in enumerate(workers.run(with_others_handed_out)):
        assert after.equal(before)
        if rank:  # the liar sees what it has
            assert message.startswith("rank 0 (")
            assert message.endswith(") sent other parameters than it has.")


def with_two_checksums() -> tuple[str, Tensor, int]:
    """Rank 3 sends rank 1 another checksum than the others, after a round that was made."""
    model, original, message = Known(), Channel.send, ""
    exchange = Exchange(model, torch.optim.SGD(model.parameters(), lr=0.5), **EXCHANGE)
    exchange._check_every = 1
    sizes: list[int] = []

    def send(self: Channel, message: Tensor) -> Tensor:
        sizes.append(self.size)
        if dist.get_rank() == 3 and self.size == 16:
            message = message.repeat(dist.get_world_size(), 1)
            message[1, 0] += 1
        return original(self, message)

    with mock.patch.object(Channel, "send", send):
        model(torch.ones(194)).backward()
        try:
            exchange.step()
        except RanksDifferError as error:
            message = str(error)
    assert sizes.count(16) == 1
    return message, flat(model), exchange.agreed.round


def test_two_checksums_are_noticed_by_all_ranks(workers: Workers) -> None:
    """Rank 1 alone would begin to copy parameters, while the others begin the next round."""
    found = workers.run(with_two_checksums)
    for message, parameters, n_rounds in found:
        assert message.startswith("the parameters were not compared: rank 3 (")
        assert "sent rank 1 (" in message
        assert n_rounds == 1
        assert parameters.equal(found[0][1])


DIRECTION = HEAD.size + DIGEST * 5
"""Where the digest of the direction begins, behind those of four senders and of the block."""


def with_a_false_testimony(
    batches: Tensor, to: list[int], place: int
) -> tuple[list[str], list[Tensor], int]:
    """In the second round, rank 1 changes a byte of what it says to some ranks."""
    model, original, seen, messages = Known(), Channel.send, [], []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    exchange = Exchange(model, optimizer, **EXCHANGE)
    n_calls = 0

    def send(self: Channel, message: Tensor) -> Tensor:
        nonlocal n_calls
        n_calls += 1
        if dist.get_rank() == 1 and n_calls == 6:  # reports, values, testimonies
            message = message.repeat(dist.get_world_size(), 1)
            message[to, place] += 1
        return original(self, message)

    with mock.patch.object(Channel, "send", send):
        for batch in batches:
            model.zero_grad()
            model(batch[dist.get_rank()]).backward()
            try:
                exchange.step()
            except RanksDifferError as error:
                messages.append(str(error))
            seen.append(flat(model))
    return messages, seen, exchange.agreed.round


def test_two_testimonies_stop_the_training_and_split_nothing(workers: Workers) -> None:
    batches = torch.randn(3, 4, 194, generator=stream(0, "batches"))
    found = workers.run(with_a_false_testimony, batches, [2], DIRECTION)
    messages, seen, n_rounds = found[2]
    assert "rank 1 (" in messages[0]
    assert messages[0].endswith(") computed another direction from the same values.")
    assert seen[1].equal(seen[0])
    assert n_rounds == 1
    for messages, seen, n_rounds in (found[0], found[3]):
        assert not seen[1].equal(seen[0])
        assert seen[1].equal(found[0][1][1])
        assert n_rounds == 2
        assert len(messages) == 1  # of the next round
    for messages, seen, _ in (found[0], found[2], found[3]):
        assert "rank 2 (" in messages[-1]  # who did not make the round, although it is honest
        assert messages[-1].endswith(") sent the number of another round.")
        assert seen[2].equal(seen[1])


def test_a_false_accusation_stops_a_round_and_names_both(workers: Workers) -> None:
    batches = torch.randn(3, 4, 194, generator=stream(0, "batches"))
    of_rank_3 = HEAD.size + DIGEST * 3
    found = workers.run(with_a_false_testimony, batches, [0, 1, 2, 3], of_rank_3)
    for messages, seen, n_rounds in found:
        assert messages == found[0][0]
        assert len(messages) == 1
        assert "rank 3 (" in messages[0]
        assert "sent rank 1 (" in messages[0]
        assert messages[0].endswith(" other values than the others, or these report it wrongly.")
        assert seen[1].equal(seen[0])
        assert n_rounds == 2  # the third step makes it again
        assert seen[2].equal(found[0][1][2])
