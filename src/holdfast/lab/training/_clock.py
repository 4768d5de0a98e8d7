"""Where the time of a step goes."""

import time
from typing import final

import torch


@final
class Clock:
    """Seconds since the last lap, by the name of what was done in them; what a device still has to do is waited for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Count the time since the last lap as `part`."""
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)
        now = time.perf_counter()
        self.seconds[part] = round(self.seconds.get(part, 0.0) + now - self._last, 6)
        self._last = now
