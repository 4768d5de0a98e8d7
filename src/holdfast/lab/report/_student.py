"""Student's distribution."""

import math


def student_quantile(degrees: int) -> float:
    r"""The :math:`t` with :math:`P(|T| \le t) = 0.95` for `degrees` of freedom, at least 1.

    With :math:`t = \sqrt{\nu}\tan\theta` the probability is a finite sum of powers of :math:`\cos\theta`, increasing in
    :math:`\theta`, which is found by bisection.

    Reference: Abramowitz and Stegun, *Handbook of Mathematical Functions* (1964), equations 26.7.3 and 26.7.4.

    Example:
        >>> round(student_quantile(2), 4)
        4.3027
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):  # halvings, after which both ends are the same float
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < 0.95 else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    r"""The probability of :math:`|T| \le \sqrt{\nu}\tan\theta`."""
    cos, is_odd = math.cos(angle), degrees % 2
    term, total = cos if is_odd else 1.0, 0.0
    for power in range(is_odd, degrees - 1, 2):
        total += term
        term *= cos**2 * (power + 1) / (power + 2)
    share = math.sin(angle) * total
    return 2 / math.pi * (angle + share) if is_odd else share
