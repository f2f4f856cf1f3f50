# Everything a fresh machine needs: `make test` and `make quickstart` set up what they use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: setup test test-slow lint quickstart clean

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

test: lint
	$(BIN)/pytest -m 'not slow'

test-slow: $(READY)
	$(BIN)/pytest -m slow || [ $$? -eq 5 ]  # 5: no test is that slow yet

quickstart: $(READY)
	@echo 'quickstart is not there yet: it needs a pre-trained backbone in the box and the train command.'
	@echo 'What works today: README.md, section "What works today".'
	@exit 1

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
