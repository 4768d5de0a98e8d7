"""The app from Python, in Flower's simulation: `python -m robust_app.simulation n-rounds=5`."""

import ast
import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from .client_app import app as client_app
from .server_app import run
from .settings import Settings


def simulate(settings: Settings, *, n_cpus: int = 1) -> dict[int, float]:
    """The accuracy after each round.

    Args:
        settings: those of the run.
        n_cpus: cores for each client that runs; the others of the machine run more clients.
    """
    accuracies: dict[int, float] = {}
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        accuracies.update(run(grid, settings))

    run_simulation(
        server_app,
        client_app,
        num_supernodes=settings.n_clients,
        backend_config={"client_resources": {"num_cpus": n_cpus, "num_gpus": 0.0}},
    )
    return accuracies


def main(arguments: list[str]) -> None:
    """Read `key=value` arguments, values as in Python or plain text, and simulate."""
    config = {}
    for argument in arguments:
        key, _, text = argument.partition("=")
        try:
            config[key] = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            config[key] = text
    for server_round, accuracy in simulate(Settings.read(config)).items():
        print(f"round {server_round}: accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
