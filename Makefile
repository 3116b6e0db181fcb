# `make demo` and `make test` do all of the set-up themselves: a virtual environment, the package and what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# torch goes first and alone: its pinned version must be there before anything else asks for "torch".
TORCH := $(shell grep '^torch==' constraints.txt)

.PHONY: demo test lint docs cost speed clean

demo: $(VENV)/.installed
	$(BIN)/python -m captum_goat.demo

test: $(VENV)/.installed
	$(BIN)/python -m pytest

lint: $(VENV)/.linters
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build

speed: $(VENV)/.installed
	$(BIN)/python -m captum_goat.benchmark speed --out docs

cost: $(VENV)/.installed
	$(BIN)/python -m captum_goat.benchmark.cost

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet $(TORCH) -c constraints.txt
	$(BIN)/python -m pip install --quiet --editable '.[test]' -c constraints.txt
	touch $@

$(VENV)/.linters: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[lint]' -c constraints.txt
	touch $@

clean:
	rm -rf $(VENV) demo docs/_build
