# Everything a fresh machine needs: `make test` and `make quickstart` set up what they use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: setup test test-slow test-oldest lint docs quickstart fuzz clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Two tests at a time, each on one thread: models this small gain nothing from more.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -m 'not slow' --numprocesses 2

# Official GLUE folders, for the slow test on real data; it is skipped without them.
GLUE ?= glue
test-slow: $(READY)
	OFFRAMP_GLUE=$(abspath $(GLUE)) $(BIN)/pytest -m slow

# The same tests with the oldest transformers we claim to work with.
test-oldest:
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/pip install --quiet --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	$(VENV)-oldest/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]' transformers==5.17.0
	$(VENV)-oldest/bin/pytest -m 'not slow'

# The site, into build/docs: it needs no network, to be built or to be read.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The whole loop on generated reviews: train, calibrate, evaluate, measure. About two minutes on two cores, no network.
# What it needs is less than what the tests need: where nothing is set up yet, only that is.
LIGHT  := $(VENV)/.light
quickstart: $(if $(wildcard $(READY)),$(READY),$(LIGHT))
	$(BIN)/offramp quickstart

$(LIGHT): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[report,onnx]'
	touch $@

# Every reader against strange files, each for so many seconds; what breaks one is left in .fuzz. Needs Linux.
SECONDS ?= 60
fuzz: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[fuzz]'
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.run --seconds $(SECONDS) $(READERS)

clean:
	rm -rf $(VENV) $(VENV)-oldest build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz
