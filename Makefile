PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup run test format lock

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

run: setup
	$(BIN)/shortlist serve --http 127.0.0.1:8765

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Resolve the versions again for every platform and Python that we support.
lock: setup
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --group dev pyproject.toml --output-file requirements.lock
