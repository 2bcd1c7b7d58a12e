# `make demo` and `make test` do everything on a machine with Python 3.10+ and make: they set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO := .venv/.demo
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
export OMP_NUM_THREADS ?= 1
# lint, types and tests run side by side
MAKEFLAGS += --jobs=3
# The tests start a hundred processes, which would each compile all modules.
unexport PYTHONDONTWRITEBYTECODE

# the golden record: `make golden ARGS="dynamo --only swin"`, `make golden ARGS="trace --accept"`
ARGS ?=
# `make durations FILES=tests/formulas`
FILES ?=

.PHONY: demo check test test-all checked tested all-tested golden durations lint types bench bench-operators bench-models bench-files bench-verdicts diagnosis coverage docs clean

# Three exports, plain and with the kit: the first result a few seconds after the environment is made. What the demo
# needs alone is installed, unless the whole environment is there already.
demo: $(if $(wildcard $(READY)),,$(DEMO))
	$(BIN)/python examples/demo.py

$(DEMO): setup.cfg pyproject.toml constraints.txt
	@echo "making .venv with torch, onnx and onnxruntime: one to three minutes, mostly torch's download"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[verify]' vit-pytorch
	touch $(DEMO)

# After every change, before a commit, before a release: tests/tiers.py says what each runs.
check: lint types checked
test: lint types tested
test-all: lint types all-tested

checked: $(READY)
	$(PYTEST) -m "sample or not slow and not exports" --no-exports

tested: $(READY)
	$(PYTEST) -m "not slow"

all-tested: $(READY)
	$(PYTEST) --anew


# The table that decides which cases `make test` leaves to `make test-all`; the tests of FILES alone, or all.
durations: $(READY)
	$(PYTEST) --durations-into tests/durations.txt $(FILES)

# What the kit makes of every proof, against tests/golden: two minutes for those under the TorchScript exporter.
golden: $(READY)
	$(BIN)/python -m benchmarks.golden $(ARGS)

# Primitives, einops and positions. The tables of this and of what follows are committed under benchmarks/results.
bench: $(READY)
	$(BIN)/python -m benchmarks.primitives
	$(BIN)/python -m benchmarks.planning
	$(BIN)/python -m benchmarks.einops_nodes
	$(BIN)/python -m benchmarks.einops_latency
	$(BIN)/python -m benchmarks.positions --out benchmarks/results/positions.md
	$(BIN)/python -m benchmarks.overhead

# What exporting and proving cost, and whether the verdict can be trusted: hundreds of exports.
bench-verdicts: $(READY)
	$(BIN)/python -m benchmarks.export_times
	$(BIN)/python -m benchmarks.attempts_cost
	$(BIN)/python -m benchmarks.verification
	$(BIN)/python -m benchmarks.verdicts trace
	$(BIN)/python -m benchmarks.verdicts dynamo

# Every operator of torch's own tests under the TorchScript exporter: an hour, in parts; what is measured is kept.
bench-operators: $(READY)
	$(BIN)/python -m pip install --quiet expecttest  # torch's tests import it
	$(BIN)/python -m benchmarks.operators --exporter trace

# Whole models at real width, plain and with the kit; half an hour the first time, exports are kept.
bench-models: $(READY)
	$(BIN)/python -m benchmarks.whole_models
	$(BIN)/python -m benchmarks.whole_peers

# What becomes of the files: tools that people run next on them, and other runtimes (each that is installed).
bench-files: $(READY)
	$(BIN)/python -m benchmarks.file_tools
	$(BIN)/python -m benchmarks.elsewhere benchmarks/.exports/elsewhere

# Models whose culprit is known, of this project and of libraries; then a sample that doctor was not made with: half an
# hour.
diagnosis: $(READY)
	$(BIN)/python -m benchmarks.diagnosis
	$(BIN)/python -m benchmarks.diagnosis --held-out

# benchmarks/requirements-models.txt says how to install the libraries of the families outside transformers and timm.
coverage: $(READY)
	$(BIN)/python -m benchmarks.coverage
	$(BIN)/python -m benchmarks.families

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.branch_points

types: $(READY)
	$(BIN)/mypy

# The pages under site/: docstrings, and a catalogue page for each patch. The browser test needs Debian's chromium
# (apt-get install chromium); without it, it is skipped.
docs: $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	PYTHONPATH=. $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf .venv

$(READY): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,models,dev]'
	touch $(READY)
