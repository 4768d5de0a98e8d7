"""A rule that is called with vectors only, as in other libraries."""

from typing import Any

import torch

from holdfast.aggregators import Aggregator, as_rule
from holdfast.checks import check_generator, failure


def bare_rule(
    rule: Aggregator | str, generator: torch.Generator | None
) -> tuple[Aggregator, dict[str, Any]]:
    """The rule and the keywords of its calls; it must need neither a reference nor a score."""
    found = as_rule(rule)
    if found.needs - {"generator"}:
        wanted = " and ".join(sorted(found.needs - {"generator"}))
        raise failure("rule", "need only the vectors", f"{found}, which needs a {wanted}")
    if generator is not None:
        check_generator(generator)
    elif "generator" in found.needs:
        raise failure("generator", f"be given for {found}", None)
    return found, {"generator": generator} if "generator" in found.takes else {}
