# Everything a fresh machine needs: `make test` and `make quickstart` set up what they use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: setup test test-slow test-oldest lint quickstart clean

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

# The same tests with the oldest transformers we claim to work with.
test-oldest:
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/pip install --quiet --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	$(VENV)-oldest/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]' transformers==5.17.0
	$(VENV)-oldest/bin/pytest -m 'not slow'

quickstart: $(READY)
	@echo 'quickstart is not there yet: it needs a pre-trained backbone in the box and the train command.'
	@echo 'What works today: README.md, section "What works today".'
	@exit 1

clean:
	rm -rf $(VENV) $(VENV)-oldest build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
