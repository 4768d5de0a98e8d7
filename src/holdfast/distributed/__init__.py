"""Training on many ranks with a robust rule instead of the all-reduce."""

from holdfast.distributed._attach import guard
from holdfast.distributed._exchange import Exchange
from holdfast.distributed._guard import Guard
from holdfast.distributed._launch import init_process_group
from holdfast.distributed._rank_rows import RankRows
from holdfast.distributed._ranks import Ranks
from holdfast.distributed._roll_call import Member
from holdfast.distributed._torchft import RobustManager

__all__ = [
    "Exchange",
    "Guard",
    "Member",
    "RankRows",
    "Ranks",
    "RobustManager",
    "guard",
    "init_process_group",
]
