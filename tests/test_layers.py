"""The architecture: a package imports only from below, core needs torch alone, every file is small."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "holdfast"

LAYERS = [
    {"errors", "_typing", "seeds"},
    {"_checks"},
    {"_compile", "_registry"},
    {"geometry", "records"},
    {"aggregators", "layout", "memory", "selectors"},
    {"robust_step", "sources", "threats"},
    {"optim"},
    {"lab", "report"},
    {"cli"},
    {"__main__"},
]
"""From the ground up. Neighbours in one layer do not know each other."""

EXTRAS = {
    "records": {"safetensors"},
    "lab": {"PIL", "platformdirs"},
    "report": {"jinja2", "matplotlib"},
    "cli": {"rich", "typer"},
}
"""What rooms may import besides torch; pyproject.toml says why."""

FILES = sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    """The package or top-level module that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names += [f"{node.module}.{alias.name}" if node.module == "holdfast" else str(node.module) for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("holdfast.")}


def test_every_room_has_a_layer() -> None:
    assert {room(path) for path in FILES} - {"__init__"} == set().union(*LAYERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    home = room(path)
    if home == "__init__":
        return
    level = next(i for i, layer in enumerate(LAYERS) if home in layer)
    below = set().union(*LAYERS[:level])
    assert imported_rooms(path) - {home} <= below, f"{home} may import only {sorted(below)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_hold_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 250


def test_the_import_graph_has_no_cycle() -> None:
    graph = {
        path: {
            target
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("holdfast.")
            for target in [SOURCE.parent / (str(node.module).replace(".", "/") + ".py")]
            if target in FILES
        }
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_core_needs_torch_alone_and_extras_stay_in_their_rooms(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [str(node.module)]
        else:
            continue
        roots = {module.split(".")[0] for module in modules}
        assert roots <= {"torch", "holdfast"} | EXTRAS.get(room(path), set()) | sys.stdlib_module_names


def test_importing_draws_no_random_number_and_starts_no_compiler() -> None:
    code = (
        "import sys, torch\n"
        "before = torch.get_rng_state()\n"
        "import holdfast.aggregators\n"
        "assert torch.equal(before, torch.get_rng_state())\n"
        "assert 'torch._inductor.compile_fx' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
