"""What commands do where options are not given; nothing here loads torch."""

DEFAULT_ROWS = 32
DEFAULT_RULE = "radius-filter"
DEFAULT_STEPS = 300
DEFAULT_OPTIMIZER = "sgd(momentum=0.9)"
WORKERS_OPTIMIZER = "sgd"
"""Of `train --workers`: without local steps, an update is one of plain SGD."""

ATTACKS = ("scaled-flip", "little-is-enough", "huddle")

ATTACK_WORKERS = {"workers": 20, "optimizer": "sgd(lr=0.05)", "steps": 400}
METHODS = ("mean", "geometric-median", "radius-filter", "exchange")
"""Of `attack`: rules for workers who send everything, and a scheme with its own rule."""

ATTACK_ROWS = {"optimizer": "sgd(lr=0.05, momentum=0.9)", "steps": 60}
RULES = ("mean", "coordinate-median", "geometric-median", "radius-filter", "bgmd")
"""Of `attack --rows`: rules for rows of one batch."""
