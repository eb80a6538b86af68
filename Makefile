# `make demo` and `make test` do all their set-up themselves; they need Python 3.11 or 3.12 and nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
UV_VERSION := 0.13.9
BIN := .venv/bin
STAMP := .venv/.synced

export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test check bench faults protos clean
.DEFAULT_GOAL := help

help:  ## Show the targets.
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## Make .venv with the locked packages and the command .venv/bin/peerledger.

$(STAMP): pyproject.toml uv.lock
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"
	UV_PROJECT_ENVIRONMENT=.venv $(BIN)/uv sync --quiet --frozen --inexact --python $(BIN)/python
	touch $(STAMP)

demo: setup  ## A network of two organisations at work: conflicts, checkpoints, pruning, verification. KEEP=1 leaves it running.
	$(BIN)/peerledger demo $(if $(filter-out 0,$(KEEP)),--keep)

check: setup  ## Format, lint, types and import contracts.
	$(BIN)/ruff format --check ledger tests bench
	$(BIN)/ruff check ledger tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: check  ## Everything but what is marked slow.
	$(BIN)/pytest -m "not slow and not cluster and not faults" -n 2 --dist loadfile -q
	$(BIN)/pytest -m "(cluster or faults) and not slow" -q

bench: setup  ## The commit path against the bare signature checks; writes build/bench.json.
	$(BIN)/python -m bench

faults: setup  ## Fail every system call of a peer's life in turn, cut its power at every step; writes the table of docs/faults.md.
	$(BIN)/python -m tests.faults.campaign
	$(BIN)/pytest -m "faults and slow" -q

protos: setup  ## Generate ledger/wire/ledger_v1 from protos/.
	$(BIN)/python -m grpc_tools.protoc -Iledger/wire/ledger_v1=protos/ledger/v1 --python_out=. --grpc_python_out=. protos/ledger/v1/*.proto

clean:  ## Remove what make made.
	rm -rf .venv build
