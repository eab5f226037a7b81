# Everything sets itself up: a virtual environment in .venv, from the exact versions in requirements.lock.
#
#   make demo    raw text -> vocabulary -> records -> a small pretrained ALBERT, in about four minutes
#   make test    lint and the tests to run before each commit (TEST_PROCESSES=1: one file at a time)
#   make test-all  lint and every test
#   make test-cluster  data preparation on a Dask cluster and Beam's job service, which it installs beside .venv
#   make lint    format, lint rules and types
#   make format  puts the code into the project's format
#   make bench   speed and memory, at most 40 minutes; BENCH_FLAGS=--quick: at most 5
#   make bench-cluster  time of data preparation on each engine, in the environment of test-cluster; BENCH_FLAGS=--write
#                writes the table of docs/results/speed.md
#   make runtime  an environment for ONNX exports in .venv.runtime: predict, search and serve without TensorFlow, 150 MB
#   make test-runtime  its tests: exports of every task
#   make accelerator-check  compiles the training steps for a TPU that is not there (installs 0.3 GB beside .venv)
#   make real-weights  scores of all-MiniLM-L6-v2 in every form, which it downloads (83 MB); DATA=folder with glue/STS-B
#   make peers   installs what the benchmark compares with, besides TF Model Garden (about 4 GB)
#   make lock    writes requirements.lock from pyproject.toml, with the versions that it has where they fit
#   make clean   removes the environments and the demo's files

SHELL := bash
VENV := .venv
ACCELERATORS := .venv.accelerators
CLUSTER := .venv.cluster
REAL_WEIGHTS := .venv.real-weights
RUNTIME := .venv.runtime
TEST_PROCESSES := 2
PYTHON := $(VENV)/bin/python
# The uv of the machine, or the one that the environment gets.
UV = $(or $(shell command -v uv),$(VENV)/bin/uv)
# A process that dies fails its test and is not replaced: xdist would wait for ever for the rest of its file.
PYTEST = $(PYTHON) -m pytest -q --numprocesses=$(TEST_PROCESSES) --dist=loadfile --no-loadscope-reorder --max-worker-restart=0
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test test-all test-cluster bench-cluster test-runtime runtime lint format bench accelerator-check real-weights peers lock setup clean

demo: setup
	@$(PYTHON) demo.py $(DEMO_FLAGS)

test: lint
	@$(PYTEST) -m "not slow" $(TEST_FLAGS)

# The slow tests run in processes of their own: those of all other tests hold some gigabytes by then.
test-all: test
	@$(PYTEST) -m slow $(TEST_FLAGS)

test-cluster: $(CLUSTER)/ready
	@$(CLUSTER)/bin/python -m pytest -q tests/data_prep/engines $(TEST_FLAGS)

bench-cluster: $(CLUSTER)/ready
	@$(CLUSTER)/bin/python -m lab.benchmarks.engines $(BENCH_FLAGS)

test-runtime: setup runtime
	@RUNTIME_PYTHON=$(RUNTIME)/bin/python $(PYTHON) -m pytest -q tests/serving/test_runtime.py $(TEST_FLAGS)

runtime: $(RUNTIME)/ready

$(RUNTIME)/ready: requirements-runtime.lock | setup
	@rm -rf $(RUNTIME) && $(PYTHON) -m venv --without-pip $(RUNTIME)
	@$(UV) pip install --quiet --python $(RUNTIME)/bin/python --require-hashes --requirement $<
	@$(UV) pip install --quiet --python $(RUNTIME)/bin/python --no-deps --editable .
	@touch $@ && echo "$(RUNTIME) is ready"

lint: setup
	@$(PYTHON) -m ruff format --check --quiet .
	@$(PYTHON) -m ruff check --quiet .
	@$(PYTHON) -m mypy --no-error-summary

format: setup
	@$(PYTHON) -m ruff format .
	@$(PYTHON) -m ruff check --fix .

bench: setup
	@$(PYTHON) -m lab.benchmarks.run $(BENCH_FLAGS)

accelerator-check: setup $(ACCELERATORS)/ready
	@$(PYTHON) -m lab.tools.accelerators.check $(ACCELERATOR_FLAGS)

$(ACCELERATORS)/ready: lab/tools/accelerators/requirements.txt | setup
	@rm -rf $(ACCELERATORS) && $(PYTHON) -m venv $(ACCELERATORS)
	@$(UV) pip install --quiet --python $(ACCELERATORS)/bin/python --requirement $<
	@touch $@

$(CLUSTER)/ready: pyproject.toml | setup
	@rm -rf $(CLUSTER) && $(PYTHON) -m venv $(CLUSTER)
	@$(UV) pip install --quiet --python $(CLUSTER)/bin/python --editable ".[beam,dask,dev]"
	@touch $@

real-weights: setup
	@$(PYTHON) -m lab.real_weights --data_dir=$(or $(DATA),$(ALBERT_TEST_DATA)) \
		--package_dir=$(REAL_WEIGHTS) $(REAL_WEIGHTS_FLAGS)

peers: setup
	@grep -o '^[^ ]*==.*[^ \]' requirements.lock > $(VENV)/versions.txt
	@$(UV) pip install --quiet --python $(PYTHON) --constraint $(VENV)/versions.txt --editable ".[peers]"

# backports-strenum 1.3 rejects Python 3.11 and newer, an upper bound that uv does not look at.
lock: setup
	@$(UV) pip compile --quiet --universal --constraint <(echo "backports-strenum<1.3") --no-annotate \
		--generate-hashes --custom-compile-command "make lock" --python-version 3.11 \
		pyproject.toml --extra dev --output-file requirements.lock
	@$(UV) pip compile --quiet --universal --constraint <(sed -n 's/ \\$$//p' requirements.lock | grep '^[^ ]*==') --no-annotate \
		--generate-hashes --custom-compile-command "make lock" --python-version 3.11 \
		--group pyproject.toml:runtime --output-file requirements-runtime.lock

clean:
	rm -rf $(VENV) $(ACCELERATORS) $(CLUSTER) $(REAL_WEIGHTS) $(RUNTIME) demo

setup: $(VENV)/ready

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
	echo "setting up $(VENV) with $$($$found --version): a minute or two, 4 GB"; \
	rm -rf $(VENV) && $$found -m venv $(VENV)
	@command -v $(UV) >/dev/null || $(PYTHON) -m pip --disable-pip-version-check install --quiet uv
	@$(UV) pip install --quiet --python $(PYTHON) --require-hashes --requirement requirements.lock
	@$(UV) pip install --quiet --python $(PYTHON) --no-deps --no-build-isolation --editable .
	@touch $@ && echo "$(VENV) is ready"
