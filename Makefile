# `make run` and `make test` set everything up by themselves on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup run reproduce results test test-slow check format bench clean

setup: $(VENV)/.installed

# torch first and by exact version: a looser range may pull gigabytes of CUDA libraries.
$(VENV)/.torch:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# The peers alone: byzfl would ask for torchvision, which it needs for its data sets, not for its rules.
$(VENV)/.peers: $(VENV)/.installed benchmarks/peers.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/peers.txt
	@touch $@

run: setup
	@$(BIN)/holdfast attack

# Table 2 with a quarter of the paper's batch and 600 steps: hours on two cores. Ctrl-C stops it, the same again goes on.
reproduce: setup
	$(BIN)/holdfast reproduce table2 --size quick; code=$$?; $(BIN)/holdfast report runs && exit $$code

# The committed results from the committed records, byte for byte.
results: setup
	$(BIN)/holdfast report docs/results/paper/records.jsonl --notes docs/results/paper/notes --title "The paper's experiments" --output docs/results/paper --format svg

test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist worksteal --durations 20 --ignore tests/slow

# Real runs under torchrun, with ranks that go bad, are killed, or are stopped; one at a time.
test-slow: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/slow --durations 20

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.peers
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
