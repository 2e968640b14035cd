# `make check` is what CI runs. PYTHON: the interpreter of the virtual environment.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)

.PHONY: check lint types test slow lowest format golden clean

check: lint types test

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -n auto -m "not slow and not interpreted"
	NUMBA_DISABLE_JIT=1 $(PYTHON) -m pytest -n 2 -m interpreted tests/model

slow:
	$(PYTHON) -m pytest -m "slow or interpreted"

lowest:  # tests with the oldest versions that pyproject.toml allows
	python3 -m venv .venv-lowest && .venv-lowest/bin/pip install -q uv
	.venv-lowest/bin/uv pip install -q --python .venv-lowest/bin/python --resolution lowest-direct -e '.[dev]'
	$(MAKE) test PYTHON=.venv-lowest/bin/python

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

golden:
	$(PYTHON) -m pytest --refresh-golden

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
