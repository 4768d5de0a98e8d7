"""The architecture: imports point down, the library needs torch only, every file is small.

`python -m tests.test_layers` prints the rooms with their files and lines, as CONTRIBUTING.md shows.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "holdfast"
FILES = sorted(SOURCE.rglob("*.py"))

LIBRARY = [
    {"errors", "_typing", "seeds"},
    {"checks"},
    {"_compile", "registry"},
    {"geometry"},
    {"layout", "selectors"},
    {"aggregators"},
    {"monitor", "robust_step", "sources", "threats"},
    {"exchange", "optim"},
    {"adapters", "distributed", "federated", "testing"},
]
"""From the ground up. Neighbors in one layer do not import each other."""

LAB = [
    {
        *("lab/data", "lab/models", "lab/optimizers", "lab/partitions", "lab/records"),
        *("lab/schedules", "lab/schemes"),
    },
    {"lab/own_models"},
    {"lab/config"},
    {"lab/training"},
    {"lab/report", "lab/sweep"},
    {"lab/paper"},
    {"lab/cli"},
]
"""The lab stands on the library, which never imports it."""

LAYERS = [*LIBRARY, *LAB, {"__main__"}]

EXTRAS = {
    "adapters": {"torchjd"},
    "federated": {"flwr", "numpy"},
    "lab/data": {"PIL", "filelock", "platformdirs"},
    "lab/report": {"jinja2", "markdown_it", "matplotlib"},
    "lab/cli": {"click", "platformdirs", "rich", "typer"},
    "lab/paper": {"PIL"},
}
"""What a room may import besides torch; pyproject.toml gives the reasons."""

MOST_LINES = 300


def room(parts: tuple[str, ...]) -> str:
    """The package or module that a path or a dotted name belongs to; the lab has rooms of its own."""
    names = [part.removesuffix(".py") for part in parts]
    inside_lab = names[0] == "lab" and len(names) > 1 and names[1] != "__init__"
    return "/".join(names[:2]) if inside_lab else names[0]


def home(path: Path) -> str:
    return room(path.relative_to(SOURCE).parts)


def imports(path: Path) -> Iterator[str]:
    """Every imported name, with its module: `holdfast.checks.failure`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports must be absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path: Path) -> Iterator[tuple[str, ...]]:
    """The imports from this package, as paths below it: `("lab", "records", "Record")`."""
    for name in imports(path):
        if name.startswith("holdfast."):
            yield tuple(name.split(".")[1:])


def room_sizes() -> list[tuple[str, int, int]]:
    """Name, number of files and number of lines of every room."""
    homes = [home(path) for path in FILES]
    lines = [len(path.read_text().splitlines()) for path in FILES]
    return [
        (name, homes.count(name), sum(n for at, n in zip(homes, lines, strict=True) if at == name))
        for name in sorted(set(homes))
    ]


def test_every_room_has_a_layer() -> None:
    assert {home(path) for path in FILES} - {"__init__", "lab"} == set().union(*LAYERS)


def test_imports_point_down() -> None:
    wrong = []
    for path in FILES:
        if home(path) in ("__init__", "lab"):  # what a package publishes comes from anywhere in it
            continue
        level = next(i for i, layer in enumerate(LAYERS) if home(path) in layer)
        allowed = set().union(*LAYERS[:level]) | {home(path)}
        wrong += [
            f"{path.relative_to(SOURCE)} imports {'.'.join(name)}"
            for name in own_imports(path)
            if room(name) not in allowed and name != ("__version__",)
        ]
    assert not wrong


def test_the_library_does_not_import_the_lab_which_uses_public_names_only() -> None:
    wrong = []
    for path in FILES:
        in_lab = home(path).startswith("lab")
        for name in own_imports(path):
            reaches_up = name[0] == "lab" and not in_lab and home(path) != "__main__"
            is_private = any(part.startswith("_") and part != "__version__" for part in name)
            if reaches_up or (is_private and in_lab and room(name) != home(path)):
                wrong.append(f"{path.relative_to(SOURCE)} imports {'.'.join(name)}")
    assert not wrong


def test_the_library_needs_torch_only_and_extras_stay_in_their_rooms() -> None:
    wrong = []
    for path in FILES:
        known = {"torch", "holdfast"} | EXTRAS.get(home(path), set()) | sys.stdlib_module_names
        roots = {name.split(".")[0] for name in imports(path)}
        wrong += [f"{path.relative_to(SOURCE)} imports {root}" for root in roots - known]
    assert not wrong


def test_files_are_small() -> None:
    lengths = {path.relative_to(SOURCE): len(path.read_text().splitlines()) for path in FILES}
    assert not {path: length for path, length in lengths.items() if length > MOST_LINES}


def test_the_import_graph_has_no_cycle() -> None:
    modules = {tuple(p.relative_to(SOURCE).with_suffix("").parts): p for p in FILES}
    graph = {
        path: {modules[name[:-1]] for name in own_imports(path) if name[:-1] in modules}
        for path in FILES
    }
    done: set[Path] = set()

    def visit(path: Path, trail: tuple[Path, ...]) -> None:
        assert path not in trail, f"cycle: {[step.name for step in (*trail, path)]}"
        if path not in done:
            for target in graph[path]:
                visit(target, (*trail, path))
            done.add(path)

    for path in FILES:
        visit(path, ())


def test_contributing_lists_every_room() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert [name for name, _, _ in room_sizes() if f"| `{name}` |" not in text] == []


def test_importing_draws_no_random_number_and_starts_no_compiler() -> None:
    code = (
        "import sys, torch\n"
        "before = torch.get_rng_state()\n"
        "import holdfast.aggregators\n"
        "assert torch.equal(before, torch.get_rng_state())\n"
        "assert 'torch._inductor.compile_fx' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    sys.stdout.write("| room | files | lines |\n|---|---|---|\n")
    for name, n_files, n_lines in room_sizes():
        sys.stdout.write(f"| `{name}` | {n_files} | {n_lines} |\n")
