# `make run` and `make test` set everything up by themselves on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup lab run reproduce results test test-slow package-test lowest-test fuzz check docs format bench clean

setup: $(VENV)/.installed

lab: $(VENV)/.lab

# torch first and by exact version: a looser range may pull gigabytes of CUDA libraries.
$(VENV)/.torch:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	@touch $@

# What the command needs, and no more: seconds after torch, where all tools take minutes.
$(VENV)/.lab: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[lab]'
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Peers without their dependencies: byzfl asks for torchvision, which it needs for data sets only.
$(VENV)/.peers: $(VENV)/.installed benchmarks/peers.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/peers.txt
	@touch $@

# The mean over some 50 steps is tested: under attack the last model swings.
run: $(VENV)/.lab
	@$(BIN)/holdfast attack --average 0.98

# Table 2 with a quarter of the paper's batch and 600 steps: hours on two cores. Ctrl-C stops it, the same again goes on.
reproduce: $(VENV)/.lab
	$(BIN)/holdfast reproduce table2 --size quick; code=$$?; $(BIN)/holdfast report runs && exit $$code

# The committed results from the committed records, byte for byte.
results: setup
	$(BIN)/holdfast report docs/results/paper/records.jsonl --notes docs/results/paper/notes --title "The paper's experiments" --output docs/results/paper --format svg

# One more than cores: a third of the time tests wait for processes that they start.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

# Tests start hundreds of processes, which should not each compile the source anew.
test test-slow: export PYTHONDONTWRITEBYTECODE =

# With the peers, so that adapters and agreement are tested with the real libraries.
test: $(VENV)/.peers
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal --durations 20 --ignore tests/slow --ignore tests/package

# Real runs under torchrun, with ranks that go bad, are killed, or are stopped; one at a time.
test-slow: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/slow --durations 20

# Wheel and sdist in environments with torch and one extra each; needs the network.
package-test: setup
	$(BIN)/pytest tests/package/test_package.py --durations 0

# The oldest releases that pyproject.toml allows, in an environment of their own; needs the network.
lowest-test: setup
	$(BIN)/pytest tests/package/test_lowest.py --durations 0

# A million wrong texts, files and commands: about half an hour.
fuzz: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --record docs/benchmarks/fuzz.json

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The site, from the repository alone; a warning, a dead link among them, is an error.
docs: setup
	rm -rf build/site build/doctrees
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site -d build/doctrees . build/site
	@echo "build/site/index.html"

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.peers
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
