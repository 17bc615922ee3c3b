# Everything here works in a fresh clone with Python 3.11, gcc, git and make.
# Another interpreter: make PYTHON=python3.12. Another torch: make TORCH='torch==2.9.0'.

PYTHON ?= python3.11
TORCH ?= torch==2.13.0
TORCHVISION ?= torchvision==0.28.0
JOBS ?= 2
# How many generated scripts `make equivalence` compares with their rewrites.
N ?= 500
# What `make bench` reads, and with what; see benchmarks/check_speed.py --help.
TREE ?=
BENCH ?=

BIN := .venv/bin
SITE := .docs-env
STAMP := .venv/.installed

.DEFAULT_GOAL := test
.PHONY: .venv demo test coverage test-frameworks test-gpu equivalence lint format docs snapshots bench clean distclean

.venv: $(STAMP)

# torch first, at a version of our choice: a plain `torch` in an extra takes the newest
# build with all of CUDA. torchvision, for tests of what its transforms become, would ask
# for that build as well; tests skip a torchvision that does not suit the torch.
$(STAMP): pyproject.toml gpulint/__init__.py
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet '$(TORCH)'
	$(BIN)/python -m pip install --quiet --editable '.[runtime,dev]'
	$(BIN)/python -m pip install --quiet --no-deps '$(TORCHVISION)' pillow
	touch $@

demo: $(STAMP)
	$(BIN)/python benchmarks/demo.py

# Tests start hundreds of processes, for which the modules are compiled but once, whatever
# the environment says.
test: export PYTHONDONTWRITEBYTECODE =
test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS)

# The same, with what of the code they run: that takes three times as long.
coverage: export PYTHONDONTWRITEBYTECODE =
coverage: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --cov

# What needs TensorFlow and its kin, each in an environment of its own (gigabytes) under
# .frameworks: make test-frameworks FRAMEWORKS=tensorflow
FRAMEWORKS ?=
test-frameworks:
	$(PYTHON) tests/frameworks/run.py $(FRAMEWORKS)

# What only a GPU shows, with the Python and the torch that the machine has for it:
# make test-gpu GPU_PYTHON=python3
GPU_PYTHON ?= $(BIN)/python
test-gpu:
	PYTHONPATH=tests:. $(GPU_PYTHON) -m pytest -p no:cacheprovider tests/gpu
	PYTHONPATH=tests:. $(GPU_PYTHON) -m equivalence --scripts $(N) --jobs $(JOBS) --real-gpu

equivalence: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m equivalence --scripts $(N) --jobs $(JOBS)

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The rule reference, and the site from it and the README; its tools stay out of .venv.
docs: $(SITE)/.installed
	$(SITE)/bin/gpulint rules --markdown > docs/rules.md.new
	mv docs/rules.md.new docs/rules.md
	rm -rf build/docs site
	$(SITE)/bin/python docs/build.py build/docs
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict --quiet \
	    --config-file build/docs/mkdocs.yml

$(SITE)/.installed: pyproject.toml
	test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --editable '.[docs]'
	touch $@

snapshots: $(STAMP)
	$(BIN)/python tests/regenerate.py

bench: $(STAMP)
	$(BIN)/python benchmarks/check_speed.py $(BENCH) $(TREE)

clean:
	rm -rf build dist site .coverage .coverage.* coverage.xml htmlcov
	rm -rf .mypy_cache .pytest_cache .ruff_cache .gpulint_cache
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .docs-env .bench-envs .frameworks
