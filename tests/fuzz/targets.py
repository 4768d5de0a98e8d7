"""All targets, with the number of executions of a long run."""

from tests.fuzz import command, parsers, readers
from tests.fuzz.harness import Target

TARGETS: dict[Target, int] = {
    parsers.names: 450_000,
    parsers.options: 150_000,
    parsers.configurations: 100_000,
    readers.records: 50_000,
    readers.documents: 100_000,
    readers.checkpoints: 30_000,
    readers.models_of_checkpoints: 10_000,
    readers.resumed_checkpoints: 1_000,
    readers.idx_files: 60_000,
    readers.cifar_batches: 30_000,
    readers.png_packages: 30_000,
    command.commands: 10_000,
}
