"""Client mods that keep a memory in Flower's client state."""

from collections.abc import Callable

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from torch import Tensor

from holdfast.exchange import WorkerMemory, WorkerMomentum
from holdfast.federated._exchange_messages import (
    KEY,
    Contribution,
    Instruction,
    packed_tiles,
    unpacked_tiles,
)
from holdfast.federated._model_arrays import ModelArrays, Numbers, numbers_of
from holdfast.geometry import Block
from holdfast.layout import Layout

ClientCall = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, ClientCall], Message]

MOMENTUM, MEMORY, PENDING = "holdfast.momentum", "holdfast.memory", "holdfast.pending"
"""Records of the client's state."""


def worker_momentum(beta: float = 0.9) -> Mod:
    r"""A mod that sends the momentum of a client's updates, for any strategy.

    :math:`m \leftarrow \beta m + (1 - \beta) u` with the update u (the client's model minus the
    global one), first u; the client sends the global model plus m. Averaging over time shrinks the
    spread of honest clients, but not a constant lie, so that rules of
    :class:`~holdfast.federated.RobustStrategy` see attacks that hide in it. The momentum is kept in
    `context.state`, as one array of the model's size. Integer arrays are sent unchanged.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp(mods=[worker_momentum(beta=0.9)])
    """
    WorkerMomentum(beta=beta)  # refuses a wrong beta here, not in the first round

    def mod(message: Message, context: Context, call_next: ClientCall) -> Message:
        if not _is_training(message):
            return call_next(message, context)
        model = ModelArrays(_arrays_of(message)[1])
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        key, record = _arrays_of(reply)
        arrays = model.checked(record, list(model.values))
        momentum = WorkerMomentum(beta=beta)
        if MOMENTUM in context.state:
            saved = numbers_of(context.state.array_records[MOMENTUM]["momentum"])
            momentum.load_state_dict({"momentum": torch.tensor(saved)})
        sent = momentum(model.rows([arrays]))[0]
        state = momentum.state_dict()["momentum"]
        context.state[MOMENTUM] = ArrayRecord({"momentum": Array(state.numpy())})
        reply.content[key] = model.moved(sent, arrays)
        return reply

    return mod


def worker_memory() -> Mod:
    """The mod for clients of an :class:`~holdfast.federated.ExchangeStrategy`.

    Adds the client's update to its memory, sends the values on the block that the server chose, and
    keeps the rest in `context.state`: one array of the model's size. Sent values are kept until the
    server acknowledges them. An update that is not finite, or 100 times as long as usual, is left
    out; see :class:`~holdfast.exchange.WorkerMemory`. Messages of other strategies pass unchanged.

    Put it first in a list of mods: the first mod is the last to process a reply, and must see the
    client's whole model.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp(mods=[worker_memory()])
    """

    def mod(message: Message, context: Context, call_next: ClientCall) -> Message:
        if not _is_training(message) or KEY not in message.content:
            return call_next(message, context)
        instruction = Instruction.of(message.content[KEY])
        others = {name: record for name, record in message.content.items() if name != KEY}
        message.content = RecordDict(others)
        model = ModelArrays(_arrays_of(message)[1], apart=instruction.apart)
        memory = _memory(model, instruction, context)
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        key, record = _arrays_of(reply)
        arrays = model.checked(record, list(model.values))
        memory.add([tensor[0] for tensor in model.rows([arrays]).tensors])
        block = instruction.block(model)
        report = memory.report()
        report[block.tiles] = 0  # the server compares what is left
        sent = Contribution(instruction.round, memory.payload(block), report, arrays)
        _keep(memory, instruction.round, block.tiles, context)
        reply.content[key] = sent.record(model, block)
        return reply

    return mod


def _is_training(message: Message) -> bool:
    return message.metadata.message_type.split(".")[0] == MessageType.TRAIN


def _arrays_of(message: Message) -> tuple[str, ArrayRecord]:
    """The only record of arrays in a message, and its name."""
    (found,) = message.content.array_records.items()
    return found


def _memory(model: ModelArrays, instruction: Instruction, context: Context) -> WorkerMemory:
    """The memory of this client, without what the server has acknowledged."""
    parameters = [
        (name, torch.tensor(model.values[name].reshape(-1), requires_grad=True))
        for name in model.columns
    ]
    memory = WorkerMemory(
        Layout(parameters), tile=instruction.tile, beta=instruction.beta, wire=instruction.wire
    )
    if MEMORY in context.state:
        saved = context.state.array_records[MEMORY]
        pending = context.state.config_records[PENDING]
        state = {name: torch.tensor(numbers_of(array)) for name, array in saved.items()}
        memory.load_state_dict(
            {"memory": state, "recent": pending["recent"], "n_left_out": pending["n-left-out"]}
        )
        if pending["round"] == instruction.acknowledged:
            block = Block(memory.tiling, unpacked_tiles(pending["tiles"]))  # type: ignore[arg-type]
            memory.sent(block, memory.payload(block))
    return memory


def _keep(memory: WorkerMemory, number: int, tiles: Tensor, context: Context) -> None:
    """Write the memory to the client's state, with the block that is not acknowledged yet."""
    state = memory.state_dict()
    arrays: dict[str, Numbers] = {name: part.numpy() for name, part in state["memory"].items()}
    context.state[MEMORY] = ArrayRecord({name: Array(np.asarray(v)) for name, v in arrays.items()})
    context.state[PENDING] = ConfigRecord(
        {
            "round": number,
            "tiles": packed_tiles(tiles),
            "recent": state["recent"],
            "n-left-out": state["n_left_out"],
        }
    )
