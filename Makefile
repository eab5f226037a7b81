# Everything sets itself up: a virtual environment in .venv, from the exact versions in requirements.lock.
#
#   make demo    raw text -> vocabulary -> records -> a small pretrained ALBERT, in about seven minutes on two cores
#   make lint    format, lint rules and types
#   make test    lint and tests, two files at a time (TEST_PROCESSES=1: one)
#   make test-fast  lint and the tests that take less than a second each: at most two minutes
#   make test-all  lint and every test: also the rare ones, then test-faults; about 40 minutes
#   make test-faults  kills, failing disks, pairs of processes, damaged and hostile files, random text, memory
#   make slow-tests  runs all tests and writes which are slow to tests/slow_tests.json
#   make format  puts the code into the project's format
#   make bench   speed and memory beside other libraries, at most 40 minutes; make bench-quick: at most 5
#   make accelerator-check  compiles the training steps for a TPU that is not there (installs 0.3 GB beside .venv)
#   make peers   installs what the benchmark compares with, besides TF Model Garden (about 4 GB)
#   make lock    writes requirements.lock from pyproject.toml, with the versions that it has where they fit
#   make clean   removes the environment and the demo's files

SHELL := bash
VENV := .venv
ACCELERATORS := .venv.accelerators
TEST_PROCESSES := 2
PYTHON := $(VENV)/bin/python
PIP = $(PYTHON) -m pip --disable-pip-version-check
PYTEST = $(PYTHON) -m pytest -q --numprocesses=$(TEST_PROCESSES) --dist=loadfile --no-loadscope-reorder
# What test-faults tries in full, and the other targets as a sample.
FAULT_TESTS := tests/training/test_damaged_run.py tests/training/test_workers.py $(wildcard tests/faults/test_*.py) \
	tests/training/test_interruption.py tests/properties
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test test-fast test-all test-faults slow-tests lint format bench bench-quick accelerator-check peers lock setup clean

demo: setup
	@$(PYTHON) demo.py $(DEMO_FLAGS)

test: lint
	@$(PYTEST) -m "not rare" $(TEST_FLAGS)
	@echo "make test leaves out what takes minutes and guards against rare faults: make test-all"

test-fast: lint
	@$(PYTEST) -m "not slow and not rare" $(TEST_FLAGS)

test-all: lint
	@$(PYTEST) $(FAULT_TESTS:%=--ignore=%) $(TEST_FLAGS)
	@$(MAKE) --no-print-directory test-faults

test-faults: setup
	@ALBERT_TEST_FAULTS=all $(PYTHON) -m pytest -q --numprocesses=$(TEST_PROCESSES) --dist=loadgroup \
		--no-loadscope-reorder $(FAULT_TESTS) $(TEST_FLAGS)

slow-tests: setup
	@$(PYTEST) --write_slow_tests $(TEST_FLAGS)

lint: setup
	@$(PYTHON) -m ruff format --check --quiet .
	@$(PYTHON) -m ruff check --quiet .
	@$(PYTHON) -m mypy --no-error-summary

format: setup
	@$(PYTHON) -m ruff format .
	@$(PYTHON) -m ruff check --fix .

bench: setup
	@$(PYTHON) -m lab.benchmarks.run $(BENCH_FLAGS)

bench-quick: setup
	@$(PYTHON) -m lab.benchmarks.run --quick $(BENCH_FLAGS)

accelerator-check: setup $(ACCELERATORS)/ready
	@$(PYTHON) -m lab.tools.accelerators.check $(ACCELERATOR_FLAGS)

$(ACCELERATORS)/ready: lab/tools/accelerators/requirements.txt | setup
	@echo "setting up $(ACCELERATORS)"
	@rm -rf $(ACCELERATORS) && $(PYTHON) -m venv $(ACCELERATORS)
	@$(ACCELERATORS)/bin/python -m pip --disable-pip-version-check install --quiet --requirement $<
	@touch $@

peers: setup
	@grep -o '^[^ ]*==.*[^ \]' requirements.lock > $(VENV)/versions.txt
	@$(PIP) install --quiet --constraint $(VENV)/versions.txt --editable ".[peers]"

lock: setup
	@$(PIP) install --quiet uv
	@$(VENV)/bin/uv pip compile --quiet --universal --no-annotate --generate-hashes \
		--custom-compile-command "make lock" \
		--python-version 3.11 pyproject.toml --extra dev --output-file requirements.lock

clean:
	rm -rf $(VENV) $(ACCELERATORS) demo

setup: $(VENV)/ready

# pip prints a line or two for each package; this shows one for every twenty.
INSTALL_LOCKED = set -o pipefail; \
	PYTHONUNBUFFERED=1 $(PIP) install --require-hashes --requirement requirements.lock
COUNT_PACKAGES = while read -r word _; do case $$word in \
	Collecting | Processing | Requirement) ((++count % 20)) || echo "  $$count of about $$(grep -c == requirements.lock) packages";; \
	Installing) echo "  installing them";; \
	esac; done

# Prints the Python itself, not the one in $(VENV), which may be active and is about to be removed.
define FIND_PYTHON
import ensurepip, sys, venv
if not (3, 11) <= sys.version_info < (3, 14):
    sys.exit(1)
print(sys._base_executable)
endef
export FIND_PYTHON

# The first Python from 3.11 to 3.13 that can make a virtual environment.
$(VENV)/ready: requirements.lock
	@for python in $(USE_PYTHON) python3.11 python3.12 python3.13 python3 python; do \
		found=$$($$python -c "$$FIND_PYTHON" 2>/dev/null) && break; \
	done; \
	if [ -z "$$found" ]; then \
		echo "make: no Python from 3.11 to 3.13 with the venv module is installed;" \
			"install one, or name it: make USE_PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	echo "setting up $(VENV) with $$($$found --version): two minutes or more, 4 GB"; \
	rm -rf $(VENV) && $$found -m venv $(VENV) || exit 1; \
	$(INSTALL_LOCKED) 2> $(VENV)/messages.txt | $(COUNT_PACKAGES) \
		&& $(PIP) install --quiet --no-deps --no-build-isolation --editable . 2>> $(VENV)/messages.txt \
		&& touch $@ && echo "$(VENV) is ready" \
		|| { tail -n 20 $(VENV)/messages.txt >&2; echo "make: $(VENV) could not be set up, see above" >&2; exit 1; }
