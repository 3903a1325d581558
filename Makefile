PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
FRAMEWORKS := .venv-frameworks/.installed
BROWSER := .venv/.browser
MILVUS := .venv/.milvus
# uv and Node.js trust the certificates of the system, as pip does: a proxy's own may be the only ones that help.
export UV_SYSTEM_CERTS := 1
export NODE_EXTRA_CA_CERTS ?= $(wildcard /etc/ssl/certs/ca-certificates.crt)
OBJECTS := $(foreach name,agents crewai semantic_kernel,.venv-objects/$(name)/.installed)

.PHONY: setup run test test-all release docs format lock

setup: $(STAMP)

# $(call pass,PYTHON,TESTS,OPTIONS): run tests. What fails beside hundreds of processes on two cores is run once more by itself,
# and both runs stay in the output; a test that fails again fails the target.
pass = $(1)/python -m pytest $(2) $(3) || $(1)/python -m pytest $(2) --last-failed --last-failed-no-failures none

$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

run: setup
	@echo "The commands are in $(BIN): $(CURDIR)/$(BIN)/shortlist --help"
	$(BIN)/shortlist serve --http 127.0.0.1:8765

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(call pass,$(BIN),tests,-n auto --dist loadfile)

# Tests of the gateway and the dashboard that touch storage: `make test` runs them on files, `make test-all` on PostgreSQL.
STORING := tests/gateway/test_audit.py tests/gateway/test_workspaces.py tests/web/test_records.py tests/web/test_review.py

# Conformance, foreign clients, frameworks and a browser: slow, and each installs what it needs beside the rest. The browser's
# driver keeps an event loop of its own while it is open, so its tests have a process of theirs.
test-all: setup $(FRAMEWORKS) $(BROWSER) $(MILVUS) $(OBJECTS)
	$(BIN)/python -m tests_all.browser.chromium
	$(BIN)/python -m tests_all.bubblewrap
	$(BIN)/python -m pytest --capture=no tests_all/test_isolation.py
	$(call pass,$(BIN),tests_all --ignore tests_all/browser --ignore tests_all/test_isolation.py)
	SHORTLIST_TEST_STORE=postgres $(BIN)/python -m tests.storage.postgres $(BIN)/python -m pytest tests/storage $(STORING)
	$(call pass,$(BIN),tests_all/browser)
	.venv-frameworks/bin/python -m pytest tests/frameworks tests/library tests/objects/test_known.py
	.venv-objects/agents/bin/python -m pytest tests/objects/test_agents.py
	.venv-objects/crewai/bin/python -m pytest tests/objects/test_crewai.py
	.venv-objects/semantic_kernel/bin/python -m pytest tests/objects/test_semantic_kernel.py

$(FRAMEWORKS): requirements-frameworks.lock pyproject.toml
	test -x .venv-frameworks/bin/python || $(PYTHON) -m venv .venv-frameworks
	.venv-frameworks/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements-frameworks.lock
	.venv-frameworks/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(FRAMEWORKS)

# Frameworks whose tool objects are read, in environments of their own: they do not agree on each other's versions.
.venv-objects/%/.installed: tests/objects/%.lock pyproject.toml | setup
	$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python .venv-objects/$*
	$(BIN)/uv pip install --quiet --python .venv-objects/$*/bin/python --requirement tests/objects/$*.lock
	$(BIN)/uv pip install --quiet --python .venv-objects/$*/bin/python --no-deps --no-build-isolation --editable .
	touch $@

$(BROWSER): $(STAMP) tests_all/browser/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement tests_all/browser/requirements.txt
	touch $(BROWSER)

$(MILVUS): $(STAMP) tests_all/milvus.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement tests_all/milvus.txt
	touch $(MILVUS)

# Wheels, sdists, SBOMs and checksums in dist/; the wheels are tried in empty environments.
release: setup
	$(BIN)/python -m release

# Pages that are generated from the code, and the documentation as a site in dist/site with every link checked.
docs: setup
	$(BIN)/python -m shortlist.config.reference
	$(BIN)/python -m release.site

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Resolve the versions again for every platform and Python that we support.
lock: setup
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --group dev pyproject.toml --output-file requirements.lock
