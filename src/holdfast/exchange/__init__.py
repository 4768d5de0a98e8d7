"""The exchange: workers send a block that all agreed on and keep the rest in a memory."""

from holdfast.exchange._agreed_block import AgreedBlock
from holdfast.exchange._local_steps import LocalSteps
from holdfast.exchange._outer_step import OuterStep
from holdfast.exchange._payload import Payload, Wire, message_size
from holdfast.exchange._round import Round, Worker
from holdfast.exchange._worker_memory import WorkerMemory
from holdfast.exchange._worker_momentum import WorkerMomentum

__all__ = [
    "AgreedBlock",
    "LocalSteps",
    "OuterStep",
    "Payload",
    "Round",
    "Wire",
    "Worker",
    "WorkerMemory",
    "WorkerMomentum",
    "message_size",
]
