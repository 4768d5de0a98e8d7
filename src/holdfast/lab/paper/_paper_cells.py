"""The paper's tables: percentage and half-width of its interval, None for an empty cell."""

from holdfast.lab.paper._comparison import (
    ADDITIVE,
    BACKDOOR,
    BGMD,
    BIT_FLIP,
    CLEAN_ROW,
    CMD,
    FEATURE_NOISE,
    GMD,
    IMPULSE,
    SGD,
)

Cell = tuple[float, float] | None


def _row(sgd: Cell, cmd: Cell, bgmd: Cell, gmd: Cell) -> dict[str, Cell]:
    """In the order of the paper's columns."""
    return {SGD: sgd, CMD: cmd, BGMD: bgmd, GMD: gmd}


PAPER_CELLS: dict[str, dict[tuple[str, float], dict[str, Cell]]] = {
    "table2": {
        (CLEAN_ROW, 0.0): _row((89.39, 0.28), (83.82, 0.26), (89.25, 0.19), (88.98, 0.3)),
        (BIT_FLIP, 0.2): _row(None, (84.20, 0.02), (88.42, 0.16), (88.07, 0.05)),
        (BIT_FLIP, 0.4): _row(None, (82.33, 1.60), (85.67, 0.09), (85.57, 0.09)),
        (ADDITIVE, 0.2): _row(None, (72.55, 0.16), (87.87, 0.33), (87.24, 0.16)),
        (ADDITIVE, 0.4): _row(None, (41.04, 1.13), (88.29, 0.01), (83.89, 0.08)),
        (FEATURE_NOISE, 0.2): _row(None, (82.38, 0.13), (86.76, 0.03), (86.63, 0.04)),
        (FEATURE_NOISE, 0.4): _row(None, (78.54, 0.65), (82.27, 0.06), (81.23, 0.03)),
        (IMPULSE, 0.2): _row((79.18, 6.47), (82.59, 0.60), (86.91, 0.36), (86.23, 0.03)),
        # BGmD repeats CmD in the paper.
        (IMPULSE, 0.4): _row(None, (78.03, 0.73), (78.03, 0.73), (81.41, 0.12)),
        (BACKDOOR, 0.2): _row((86.99, 0.02), (76.38, 0.13), (88.97, 0.10), (88.26, 0.04)),
        (BACKDOOR, 0.4): _row((73.01, 0.68), (60.85, 1.24), (84.69, 0.31), (81.32, 0.16)),
    },
    "table3": {
        (CLEAN_ROW, 0.0): _row((99.27, 0.01), (98.83, 0.02), (99.09, 0.05), (99.24, 0.02)),
        (BIT_FLIP, 0.2): _row((9.51, 1.77), (98.79, 0.01), (99.06, 0.02), (98.98, 0.01)),
        (BIT_FLIP, 0.4): _row((9.60, 2.04), (93.69, 0.09), (97.89, 0.05), (98.11, 0.12)),
        (ADDITIVE, 0.2): _row((9.68, 0.11), (94.26, 0.03), (98.61, 0.01), (98.69, 0.01)),
        (ADDITIVE, 0.4): _row((9.74, 0.12), (91.86, 0.03), (97.78, 0.27), (92.78, 0.04)),
    },
    "table4": {
        (CLEAN_ROW, 0.0): _row((82.29, 1.32), (85.50, 1.43), (84.82, 0.76), (85.65, 0.48)),
        (BIT_FLIP, 0.2): _row(None, (80.87, 0.21), (84.56, 0.06), (88.07, 0.05)),
        (BIT_FLIP, 0.4): _row(None, (77.41, 1.04), (82.66, 0.31), (80.81, 0.01)),
        (ADDITIVE, 0.2): _row((20.7, 1.56), (54.75, 0.38), (83.84, 0.12), (82.40, 0.90)),
        (ADDITIVE, 0.4): _row(None, (23.35, 6.13), (82.79, 0.68), (79.46, 0.24)),
    },
}
