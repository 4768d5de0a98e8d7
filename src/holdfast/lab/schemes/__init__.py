"""How workers send their updates: the exchange, and what it is compared with."""

from holdfast.lab.schemes._byz_ef21 import ByzEf21
from holdfast.lab.schemes._everything import SendEverything
from holdfast.lab.schemes._exchange import Exchange
from holdfast.lab.schemes._norm_filtered import NormFiltered
from holdfast.lab.schemes._rosdhb import Rosdhb
from holdfast.lab.schemes._scatter_mean import ScatterMean
from holdfast.lab.schemes._scheme import Scheme, SchemeRun, Sent, schemes

__all__ = [
    "ByzEf21",
    "Exchange",
    "NormFiltered",
    "Rosdhb",
    "ScatterMean",
    "Scheme",
    "SchemeRun",
    "SendEverything",
    "Sent",
    "schemes",
]
