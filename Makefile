# `make demo` and `make test` do all of the set-up themselves: a virtual environment, the package and what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# torch goes first and alone: its pinned version must be there before anything else asks for "torch".
TORCH := $(shell grep '^torch==' constraints.txt)

# Every core has tests; files stay together as long as there are enough of them.
PYTEST := -m pytest -n auto --dist worksteal

# The oldest supported versions: an environment of 5 GB, since PyPI has torch 2.4 for Linux with CUDA only.
OLDEST := .venv-oldest
OLDEST_PYTHON ?= $(firstword $(shell for python in python3.10 $(HOME)/.pyenv/versions/3.10.*/bin/python; do \
	$$python -c '' 2> /dev/null && echo $$python; done) $(PYTHON))
# What is tested there. Captum's own suites (test_captum_suites.py) are no part of Captum 0.7.
CORE := $(addprefix tests/test_,attribution.py captum_methods.py explainer.py explainer_models.py hetero.py \
	interception.py masked_model.py oracle.py oracle_rules*.py row_rules*.py rules*.py)

# With the kernels of torch-scatter and others, which are built here (half an hour and more). PyG 2.8 takes those of pyg-lib
# in place of some of them.
COMPILED := .venv-compiled
KERNELS := torch-scatter torch-sparse torch-cluster torch-spline-conv

.PHONY: demo test test-fast test-exhaustive test-oldest test-compiled fuzz lint dist docs cost speed clean

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

test: $(VENV)/.installed
	$(BIN)/python $(PYTEST)

test-fast: $(VENV)/.installed
	$(BIN)/python $(PYTEST) -m "not slow and not exhaustive"

test-exhaustive: $(VENV)/.installed
	$(BIN)/python $(PYTEST) -m exhaustive

# Old versions warn of what has become of others, so warnings are no errors there.
test-oldest: $(OLDEST)/.installed
	$(OLDEST)/bin/python $(PYTEST) -o filterwarnings=default --disable-warnings $(CORE)

test-compiled: $(COMPILED)/.installed
	$(COMPILED)/bin/python $(PYTEST) -o filterwarnings=default --disable-warnings $(addprefix tests/,test_extensions.py \
		test_compiled_packages.py test_oracle.py test_attribution.py test_masked_model.py test_edge_identity.py wild)
	$(COMPILED)/bin/python -m tests.fuzz --cases 300

fuzz: $(VENV)/.installed
	$(BIN)/python -m tests.fuzz --cases 10000 --jobs 2
	$(BIN)/python -m tests.fuzz --cases 2000 --extended --jobs 2

lint: $(VENV)/.linters
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Both archives, and a look at what is in them. Hatchling builds here, without an environment that would install torch.
dist: $(VENV)/.installed
	rm -rf dist
	$(BIN)/python -m hatchling build -t sdist -t wheel
	$(BIN)/python -m pytest -n 0 tests/test_wheel.py

docs: $(VENV)/.installed
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build

speed: $(VENV)/.installed
	$(BIN)/python -m benchmarks speed --out docs

cost: $(VENV)/.installed
	$(BIN)/python -m benchmarks.cost

$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet $(TORCH) -c constraints.txt
	touch $@

# The demo needs neither pytest nor Sphinx nor Jupyter.
$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[demo]' -c constraints.txt
	touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[test]' -c constraints.txt
	touch $@

$(OLDEST)/.installed: pyproject.toml constraints-oldest.txt
	$(OLDEST_PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --editable '.[demo]' pytest pytest-xdist -c constraints-oldest.txt
	touch $@

$(COMPILED)/.installed: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(COMPILED)
	$(COMPILED)/bin/python -m pip install --quiet $(TORCH) setuptools wheel -c constraints.txt
	grep -v '^torch-geometric==' constraints.txt > $(COMPILED)/constraints.txt
	$(COMPILED)/bin/python -m pip install --quiet --editable '.[test]' torch-geometric==2.7.0 -c $(COMPILED)/constraints.txt
	FORCE_ONLY_CPU=1 $(COMPILED)/bin/python -m pip install --quiet --no-build-isolation $(KERNELS)
	touch $@

$(VENV)/.linters: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[lint]' -c constraints.txt
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(COMPILED) demo docs/_build
