# Two commands do everything on a fresh machine: `make certify` and `make test`. Each sets up .venv by itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The pinned torch is a CPU build where the package index offers one; leave it alone if a torch is there already.
TORCH ?= torch==2.13.0
JOBS ?= 2
# One thread for each worker: results of a threaded sum may differ from run to run, and the workers share the cores.
export OMP_NUM_THREADS ?= 1

.PHONY: certify test test-checker lint proofs vectors bench clean

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet -e ".[test,lint]"
	touch $@

certify: $(STAMP)  ## certify torch's own attention on this machine
	$(BIN)/certify run torch-sdpa:math torch-sdpa:flash --dtype float32 --dtype bfloat16

test: $(STAMP)  ## all tests but the long campaigns
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow and not lean"

test-checker: $(STAMP)  ## does the checker of the proofs reject what it must? Several runs of Lean
	$(BIN)/python -m pytest tests/lean -m lean

lint: $(STAMP)  ## style, types, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

proofs:  ## compile the Lean development: with lake where it is found, else with the npm build of Lean
	$(PYTHON) tools/lean/check.py

vectors:  ## let Lean write the exact vectors again
	$(PYTHON) tools/lean/vectors.py

bench: $(STAMP)  ## measurements, side by side
	$(BIN)/python bench/oracle.py
	$(BIN)/python bench/soundness.py

clean:
	rm -rf $(VENV) .attnspec cert build *.egg-info
