r"""Plain and guarded training on several ranks when one of them goes bad in the middle of the run.

LeNet in DistributedDataParallel on images, and a tiny GPT-2 sharded by `fully_shard` on text with
AdamW. Every rank has its own share of the data. Faults are those of examples/ddp_guard.py. Runs of
the record are skipped, so the sweep can be stopped and started again. From the project's root:

    python -m examples.guard_under_faults --cases "LeNet, DDP, 4 ranks" --faults scaled-flip
    python -m examples.guard_under_faults --record docs/results/guard_under_faults.jsonl \
        --page docs/results/guard_under_faults.md --figure docs/results/guard_under_faults.svg
"""

import argparse
import multiprocessing
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from examples.ddp_guard import FAULTS, SIGNALS, Fault, digest_of
from examples.run_records import Lines, Run, chosen, show, sweep
from examples.small_models import MODELS, OPTIMIZERS, Data, accuracy, loss_fn
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch._C._distributed_c10d import FileStore
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from holdfast.distributed import guard
from holdfast.seeds import stream

CASES = {
    "LeNet, DDP, 4 ranks": ("lenet", "momentum", 4, 200),
    "LeNet, DDP, 8 ranks": ("lenet", "momentum", 8, 200),
    "tiny GPT-2, FSDP2, 4 ranks": ("gpt-2", "adamw", 4, 200),
    "tiny GPT-2, FSDP2, 8 ranks": ("gpt-2", "adamw", 8, 100),
}
"""The model, the optimizer, the number of ranks and of steps."""

PLAIN, GUARDED, BAD, BATCH, SAMPLE = "plain", "guarded", 1, 16, 512
NONE, *SHOWN = [name for name in FAULTS if name not in (*SIGNALS, "slow")]


def measured(run: Run) -> Run:
    """Train on as many processes as the case has ranks; what rank 0 measured."""
    model, optimizer, n_ranks, n_steps = CASES[run["case"]]
    settings = run | {"model": model, "optimizer": optimizer, "steps": run["steps"] or n_steps}
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("fork")  # torch is imported only once
        ranks = [
            context.Process(target=train, args=(rank, n_ranks, settings, folder))
            for rank in range(n_ranks)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        found: Run = torch.load(Path(folder) / "found.pt")
    return found


def train(rank: int, n_ranks: int, run: Run, folder: str) -> None:
    """One rank of a training; rank 0 saves what it measured."""
    torch.set_num_threads(1)
    store = FileStore(str(Path(folder) / "store"), n_ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=n_ranks)
    build, load = MODELS[run["model"]]
    data = load()
    torch.set_rng_state(stream(run["seed"], "parameters").get_state())
    model = parallel(build(), is_sharded="FSDP2" in run["case"])
    optimizer = OPTIMIZERS[run["optimizer"]](model)
    watch = None
    if run["way"] == GUARDED:
        watch = guard(model, check_every=10, on_mismatch="copy")
    fault = Fault(run["fault"] if rank == BAD else NONE, model)
    curve = []
    for step, batch in enumerate(batches(data, rank, n_ranks, run)):
        inputs, targets = data.inputs[batch], data.targets[batch]
        if step >= run["steps"] // 2:
            inputs, targets = struck(fault, inputs, targets)
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * (1 - step / run["steps"])
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
        if (step + 1) % 10 == 0:
            curve.append(round(measured_accuracy(model, data, SAMPLE), 2))
    digests: list[str] = [""] * n_ranks
    dist.all_gather_object(digests, digest_of(model))
    found: dict[str, Any] = {"accuracy": round(measured_accuracy(model, data), 2), "curve": curve}
    found["equal"] = len(set(digests)) == 1
    if watch is not None:
        found["rejected"] = watch.counts.tolist()
        found["suspects"] = {suspect.row: suspect.reason for suspect in watch.suspects()}
    if rank == 0:
        torch.save(found, Path(folder) / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


def parallel(model: nn.Module, *, is_sharded: bool) -> nn.Module:
    """The model in DistributedDataParallel, or with its blocks and the rest sharded."""
    if not is_sharded:
        return DistributedDataParallel(model)
    for module in model.modules():
        if type(module).__name__ == "GPT2Block":
            fully_shard(module)
    fully_shard(model)
    return model


def batches(data: Data, rank: int, n_ranks: int, run: Run) -> Iterable[Tensor]:
    """Indices of the batches of a rank, which has every n-th sample of the data."""
    own = torch.arange(rank, len(data.targets), n_ranks)
    generator = stream(run["seed"], "batches", rank)
    for _ in range(run["steps"]):
        yield own[torch.randint(len(own), (BATCH,), generator=generator)]


def struck(fault: Fault, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The batch after the fault, which knows images; characters are drawn at random."""
    if inputs.is_floating_point():
        return fault.strike(inputs, targets)
    _, wrong = fault.strike(torch.zeros(1), targets)
    return (inputs, targets) if wrong is targets else (torch.randint_like(inputs, 97), wrong)


def measured_accuracy(model: nn.Module, data: Data, n: int | None = None) -> float:
    """Test accuracy in percent, on the first n samples; all ranks take part."""
    some = Data(data.inputs, data.targets, data.test_inputs[:n], data.test_targets[:n])
    return accuracy(model, some)


def summary(done: list[Run]) -> Lines:
    """One line per case and fault: the plain run and the guarded run, and whom it named."""
    lines = [["case", "fault from mid-run", PLAIN, GUARDED, "rejected per rank", "suspects"]]
    lines[0].append("ranks bit-equal")
    for case in CASES:
        for fault in (NONE, *SHOWN):
            same = chosen(done, case=case, fault=fault)
            guarded = chosen(same, way=GUARDED)
            if not guarded:
                continue
            cells = [f"{run['accuracy']:.1f}" for run in chosen(same, way=PLAIN)]
            run = guarded[0]
            suspects = ", ".join(map(str, run["suspects"])) or "none"
            lines.append([case, fault, *(cells or [""]), f"{run['accuracy']:.1f}"])
            counts = " ".join(map(str, run["rejected"]))
            lines[-1] += [counts, suspects, "yes" if run["equal"] else "no"]
    return lines


def draw(done: list[Run], path: Path) -> None:
    """Accuracy against steps for one fault, plain and guarded, beside the clean run."""
    cases = [case for case in CASES if "4 ranks" in case]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axes, case in zip(figure.subplots(1, len(cases)), cases, strict=True):
        n_steps = CASES[case][3]
        lines = [(PLAIN, NONE, "plain, nothing wrong", "0.6", "-")]
        lines += [(PLAIN, "scaled-flip", "plain, rank 1 times -100", "C3", "-")]
        lines += [(GUARDED, "scaled-flip", "guarded, rank 1 times -100", "C0", "-")]
        for way, fault, label, color, style in lines:
            for run in chosen(done, case=case, way=way, fault=fault):
                steps = range(10, 10 * len(run["curve"]) + 1, 10)
                axes.plot(steps, run["curve"], style, color=color, label=label, linewidth=2)
        axes.axvline(n_steps // 2, color="0.8", linewidth=1, zorder=0)
        axes.set(title=case, xlabel="step", ylabel="test accuracy, %", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Read the arguments, run, show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(CASES)
    parser.add_argument("--cases", nargs="+", choices=names, default=names, metavar="CASE")
    parser.add_argument("--faults", nargs="+", choices=SHOWN, default=SHOWN, metavar="FAULT")
    parser.add_argument("--steps", type=int, help="for all cases")
    record = Path("guard_under_faults.jsonl")
    parser.add_argument("--record", type=Path, default=record, help="file to append runs to")
    parser.add_argument("--page", type=Path, help="file whose tables are rewritten")
    parser.add_argument("--figure", type=Path, help="file to draw to")
    given = parser.parse_args()
    runs = [
        {"case": case, "fault": fault, "way": way, "seed": 0, "steps": given.steps}
        for case in given.cases
        for fault in (NONE, *given.faults)
        for way in (PLAIN, GUARDED)
    ]
    try:
        done = sweep(runs, given.record, measured)
    except KeyboardInterrupt:
        raise SystemExit(f"Stopped; the same command resumes from {given.record}.") from None
    done = [run for run in done if run["steps"] == given.steps]
    show({"Accuracy in percent": summary(done)}, given.page)
    if given.figure is not None:
        draw(done, given.figure)


if __name__ == "__main__":
    main()
