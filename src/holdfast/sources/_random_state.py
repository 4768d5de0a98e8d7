"""The state of the global generator of a device."""

import torch
from torch import Tensor


def random_state(device: torch.device) -> Tensor:
    """A copy of the state."""
    if device.type == "cpu":
        return torch.get_rng_state()
    state: Tensor = torch.get_device_module(device).get_rng_state(device)
    return state


def set_random_state(device: torch.device, state: Tensor) -> None:
    """Go back to a state."""
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)
