"""The command `holdfast` with one more data set, whose files a server on this machine can hold.

The environment's TINY_MIRROR is its official mirror.
"""

import os
from dataclasses import replace

from holdfast.lab import data
from holdfast.lab.config import _config
from holdfast.lab.data import _data_sets
from tests.lab.data.tiny import TINY

if __name__ == "__main__":
    tiny = (
        replace(TINY, mirrors=(os.environ["TINY_MIRROR"],)) if "TINY_MIRROR" in os.environ else TINY
    )
    data.data_sets = _config.data_sets = _data_sets.data_sets = {  # type: ignore[misc, attr-defined]
        **_data_sets.data_sets,
        "tiny": tiny,
    }
    from holdfast.lab.cli import main

    main()
