"""What a node does with the server's messages."""

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from holdfast.federated import worker_memory, worker_momentum
from holdfast.seeds import stream
from holdfast.threats import attacks

from .settings import Settings, is_made_alone, one_row
from .task import LocalTraining, data_set, evaluate, from_vector, initial_model, to_vector

VALUES = "holdfast.exchange.values"
"""The array that holds a client's values on the block of an exchange, as bytes of float32."""


def settings_of(message: Message) -> Settings:
    """The settings of the run, which the server sends with every message."""
    sent = config_of(message)
    return Settings.read({key: sent[key] for key in Settings().config() if key in sent})


def config_of(message: Message) -> ConfigRecord:
    """The configuration that came with the message."""
    return message.content.config_records["config"]


def client_of(context: Context) -> int:
    """The number of this client."""
    return int(context.node_config["partition-id"])


def is_bad(message: Message, context: Context, settings: Settings) -> bool:
    """Whether this client is bad in this round."""
    server_round = int(config_of(message)["server-round"])  # type: ignore[arg-type]
    return bool(settings.bad_clients(server_round)[client_of(context)])


def lie(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A mod that replaces what a bad client sends, after all that honest clients do.

    The server says which clients are bad in an experiment; a node started with
    `--node-config 'attack="scaled-flip"'` is bad on its own account, in all rounds.
    """
    settings = settings_of(message)
    own = str(context.node_config.get("attack", ""))
    text = own or (settings.attack if is_bad(message, context, settings) else "")
    model = message.content.array_records["arrays"]
    reply = call_next(message, context)
    if not text or not is_made_alone(attack := attacks.parse(text)) or not reply.has_content():
        return reply
    server_round = int(config_of(message)["server-round"])  # type: ignore[arg-type]
    generator = stream(settings.seed, "attack", client_of(context), server_round)
    record = reply.content.array_records["arrays"]
    if VALUES in record:
        values = torch.tensor(record[VALUES].numpy()).view(torch.float32)
        sent = attack(*one_row(values), generator=generator)[0]
        record[VALUES] = Array(sent.view(torch.uint8).numpy())
    else:
        start = to_vector(model)
        sent = attack(*one_row(to_vector(record) - start), generator=generator)[0]
        reply.content["arrays"] = from_vector(start + sent, like=record)
    return reply


def remember(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A mod that keeps worker momentum, or what was not sent, if the run asks for it."""
    settings = settings_of(message)
    if settings.send < 1:
        return worker_memory()(message, context, call_next)
    if settings.momentum:
        return worker_momentum(settings.momentum)(message, context, call_next)
    return call_next(message, context)


app = ClientApp(mods=[lie, remember])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the server's model on the client's own images."""
    settings, config = settings_of(message), config_of(message)
    model = initial_model(settings)
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    training = LocalTraining(
        settings=settings,
        client=client_of(context),
        server_round=int(config["server-round"]),  # type: ignore[arg-type]
        is_corrupt=bool(settings.corruption) and is_bad(message, context, settings),
        proximal=float(config.get("proximal-mu", 0.0)),  # type: ignore[arg-type]
    )
    loss = training.run(model)
    content = RecordDict()
    content["arrays"] = ArrayRecord(model.state_dict())
    content["metrics"] = MetricRecord(
        {
            "num-examples": len(training.share),
            "train-loss": loss,
            # Only for attacks at the server's door; the strategies do not read it.
            "partition-id": client_of(context),
        }
    )
    return Message(content, reply_to=message)


@app.evaluate()
def test(message: Message, context: Context) -> Message:
    """Evaluate the server's model on the client's part of the test images."""
    settings = settings_of(message)
    model = initial_model(settings)
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    n_test = len(data_set(settings.data).test)
    own = torch.arange(client_of(context), n_test, settings.n_clients)
    accuracy, loss = evaluate(settings, model, own)
    metrics = MetricRecord({"num-examples": len(own), "accuracy": accuracy, "loss": loss})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
