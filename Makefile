# make run    voice chat on http://127.0.0.1:8000     make check      format, lint, types, import rules
# make robot  a robot that plans, at that address     make train-room train its world model anew, from SEED
# make test   set-up, checks and tests                make test-slow  the tests that take minutes
# make bench  measurements                            make clean      remove what make made
#
# PORT, HOST   where `make run` and `make robot` listen
# WORLD        which world the robot is in: room, or reacher (MuJoCo's arm)
# PYTHON       the Python (3.11 or newer) that the virtual environment is made of
# VENV         the virtual environment
# JOBS         processes that run tests
# TORCH_INDEX  package index to take torch from, for a CPU build where the default index gives a CUDA build

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

PORT ?= 8000
HOST ?= 127.0.0.1
VENV ?= .venv
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name $(NEW_ENOUGH) 2>/dev/null && echo $$name && break; done)
TORCH_INDEX ?=
JOBS ?= 2
WORLD ?= room
SEED ?= 1

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# A stamp for each list of packages: done again only when the list, or pyproject.toml, is newer.
RUNS := $(VENV)/.stamp-run
TESTS := $(VENV)/.stamp-test
BENCH := $(VENV)/.stamp-bench
ROBOT := $(VENV)/.stamp-robot
OPENPI := $(VENV)/openpi/.stamp
NODE := node_modules/.stamp
JS := $(shell find web -name '*.js' -not -path '*/node_modules/*' 2>/dev/null | head -n 1)

.PHONY: help run robot train-room robot-if-any weights weights-if-any check check-web test test-slow bench openpi openpi-if-any clean

help:
	@sed -n '1,11s/^# \{0,1\}//p' Makefile

run: $(RUNS) weights
	@echo "serving voice on http://$(HOST):$(PORT)"
	@exec $(BIN)/mstar serve voice --host $(HOST) --port $(PORT)

robot: $(RUNS) $(if $(filter reacher,$(WORLD)),$(ROBOT))
	@exec $(BIN)/python -m examples.robot --world $(WORLD) --host $(HOST) --port $(PORT)

# Trains from SEED, then fails unless nine of ten goals are reached. About five minutes on a free core.
train-room: $(RUNS)
	$(BIN)/python -m models.worlds train room --seed $(SEED) --folder build/worlds/room-$(SEED) --least 0.9

# What simulates the arm; its tests are skipped without it.
robot-if-any: $(RUNS)
	@$(MAKE) $(ROBOT) || [ "$${REQUIRE_ALL:-}" != 1 ]

PULL := $(BIN)/python -m models.pull voice >/dev/null

weights: $(RUNS)
	@$(PULL)

# Without network, tests that need weights are skipped; REQUIRE_ALL=1 makes that a failure.
weights-if-any: $(RUNS)
	@$(PULL) || [ "$${REQUIRE_ALL:-}" != 1 ]

check: $(TESTS) check-web
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

ifeq ($(JS),)
check-web:
else ifneq ($(shell command -v npm 2>/dev/null),)
check-web: $(NODE)
	npm run --silent check
else
check-web:
	@echo "npm is not there: the pages' types are not checked"; [ "$${REQUIRE_ALL:-}" != 1 ]
endif

test: check weights-if-any openpi-if-any robot-if-any
	$(BIN)/pytest -n $(JOBS) --dist loadfile

test-slow: $(TESTS) weights
	$(BIN)/pytest -m slow

bench: $(BENCH) weights
	$(BIN)/python -m tests.bench

# On a machine with a CUDA device: see docs/gpu.md.
bench-gpu: $(TESTS)
	$(BIN)/python -m tests.gpu

clean:
	rm -rf $(VENV) node_modules build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(or $(PYTHON),false) $(NEW_ENOUGH) || { echo "error: Python 3.11 or newer is needed, and $(or $(PYTHON),python3)" \
		"is $$($(or $(PYTHON),python3) --version 2>&1 | head -n 1); name one with PYTHON=…"; exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "error: $(PYTHON) made no virtual environment (Debian: apt-get install python3-venv)"; exit 1; }

$(RUNS): requirements/run.txt pyproject.toml | $(BIN)/python
	$(PIP) install --upgrade "$$(grep '^pip==' requirements/pip.txt)"
	$(if $(TORCH_INDEX),$(PIP) install --no-deps --index-url $(TORCH_INDEX) "$$(grep '^torch==' requirements/run.txt)")
	$(PIP) install -r requirements/run.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(TESTS): requirements/test.txt $(RUNS)
	$(PIP) install -r requirements/test.txt
	@touch $@

$(BENCH): requirements/bench.txt $(TESTS)
	$(PIP) install -r requirements/bench.txt
	@touch $@

$(ROBOT): requirements/robot.txt $(RUNS)
	$(PIP) install -r requirements/robot.txt
	@touch $@

# A robot's client in an environment of its own.
openpi: $(OPENPI)

openpi-if-any: $(RUNS)
	@$(MAKE) openpi || [ "$${REQUIRE_ALL:-}" != 1 ]

$(OPENPI): requirements/openpi.txt $(RUNS)
	$(BIN)/python -m venv $(VENV)/openpi
	$(VENV)/openpi/bin/python -m pip --disable-pip-version-check --no-input install --no-deps -r requirements/openpi.txt
	@touch $@

$(NODE): package-lock.json
	npm ci --no-fund --no-audit
	@touch $@
