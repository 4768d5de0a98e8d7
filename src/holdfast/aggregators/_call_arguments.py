"""What a call may bring beside the rows, as sets of argument names."""

NOTHING: frozenset[str] = frozenset()
ROW_WEIGHTS = frozenset({"row_weights"})
REFERENCE = frozenset({"reference"})
SCORE = frozenset({"score"})
GENERATOR = frozenset({"generator"})
