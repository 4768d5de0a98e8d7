"""Flower without a network: clients run in this process, one after the other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import final

from flwr.app import Context, Error, Message, RecordDict
from flwr.app.user_config import UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from holdfast.checks import failure

FAILED = 2
"""Flower's code for an exception in a client app."""


@final
class LocalGrid(Grid):
    """A grid that runs a client app in this process, for tests and experiments.

    Strategy and client app are real; only the transport is missing. Each client keeps its state
    between messages. A client that raises an exception replies with an error.

    Args:
        app: the client app, or one per node.
        nodes: the configuration of each node, by its id.
        door: changes the list of replies before the server gets it, to simulate attackers that know
            the replies of others, or a network that loses messages.

    Example:
        >>> app = ClientApp()
        >>> @app.train()
        ... def train(message: Message, context: Context) -> Message:
        ...     return Message(message.content, reply_to=message)
        >>> grid = LocalGrid(app, {7: {"partition-id": 0}})
        >>> [reply] = grid.send_and_receive([Message(RecordDict(), 7, "train")])
        >>> reply.metadata.src_node_id
        7
    """

    def __init__(
        self,
        app: ClientApp | Mapping[int, ClientApp],
        nodes: Mapping[int, UserConfig],
        *,
        door: Callable[[list[Message]], list[Message]] | None = None,
    ) -> None:
        self._apps = {node: app if isinstance(app, ClientApp) else app[node] for node in nodes}
        self.contexts = {
            node: Context(1, node, dict(config), RecordDict(), {}) for node, config in nodes.items()
        }
        # Flower's runtimes say who this process is, and messages ask for it.
        if vars(TaskIdentity)["_run_id"] is None:
            TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self._door = door
        self._replies: dict[str, Message] = {}
        self._n_sent = 0

    def set_run(self, run: Run) -> None:
        raise failure("set_run", "not be called: there is no run of Flower's", run)

    @property
    def run(self) -> Run:
        raise failure("run", "not be asked for: there is no run of Flower's", "a grid without")

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Sequence[int]:
        return list(self._apps)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        numbers = []
        for message in messages:
            self._n_sent += 1
            numbers.append(f"message-{self._n_sent}")
            # As the SuperLink does, which has no setter for it either.
            message.metadata.__dict__["_message_id"] = numbers[-1]
            self._replies[numbers[-1]] = self._reply(message)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = [self._replies.pop(number) for number in message_ids if number in self._replies]
        return replies if self._door is None else self._door(replies)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))

    def _reply(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        try:
            return self._apps[node](message, self.contexts[node])
        except Exception as error:  # as Flower does: the client has failed, not the server
            return Message(Error(FAILED, f"{type(error).__name__}: {error}"), reply_to=message)
