# Everything that tailtap needs on a Debian machine is installed from here.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DIST ?= dist
# How many Python tests run side by side: they wait for other programs a third of their time.
WORKERS ?= $(shell echo $$(($$(nproc) + 1)))
# How long each fuzz target runs. The sanitizers are for nightly toolchains only; without one,
# stable will do: nearly all of the code is safe Rust, checked for panics, hangs and memory.
FUZZ_SECONDS ?= 600
FUZZ_SANITIZER ?= none
FUZZ_TARGETS := $(patsubst fuzz/fuzz_targets/%.rs,%,$(wildcard fuzz/fuzz_targets/*.rs))
FUZZ := PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cargo fuzz
# As root when we are not: with our own path, and without leaving caches that only root can remove.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo) \
    env "PATH=$(PATH)" PYTHONDONTWRITEBYTECODE=1 DEBIAN_FRONTEND=noninteractive

# What the lab runs, what the build compiles with, what the tests compare with and look at.
APT_RUN := iproute2 ethtool linux-perf lxc crun runc podman mmdebstrap python3-venv \
    qemu-system-x86 libvirt-daemon kmod cpio
APT_BUILD := clang llvm libelf-dev zlib1g-dev linux-libc-dev pkg-config
# libbpf-dev: the recorder that the stamps are compared with; zsh, fish: what they complete;
# ipmitool: a client of management controllers; hwloc-nox: the other reader of topologies; e2fsprogs: a guest's disk; procps: sysctl.
APT_TEST := chromium chromium-driver tshark postgresql r-cran-evd netsniff-ng lua5.1 libbpf-dev gcc libc6-dev zsh fish hwloc-nox e2fsprogs procps ipmitool libvirt-clients ipxe-qemu grub-pc-bin grub-common
# What `make bench` compares with.
APT_DPDK := dpdk-dev librte-net-af-packet23 librte-net-af-xdp23 librte-mempool-ring23 \
    librte-net-e1000-23
APT_BENCH := $(APT_DPDK) tcpdump wireshark-common
# The forwarders that are programs of others, and what builds DPDK's examples.
APT_FORWARDERS := $(APT_DPDK) libdpdk-dev suricata gcc libc6-dev
RUST_SOURCES := $(shell find crates bpf -name '*.rs' -o -name '*.toml' -o -name '*.c' -o -name '*.h')

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) \
	    | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

.PHONY: packages
packages: ## Install the Debian packages that are missing
	@missing=$$(for p in $(APT_RUN) $(APT_BUILD) $(APT_TEST) $(APT_MORE); do \
	    dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'install ok installed' \
	        || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	    echo "installing" $$missing; \
	    $(SUDO) apt-get update -qq; \
	    $(SUDO) apt-get install -y -qq --no-install-recommends \
	        $$missing </dev/null >/dev/null; \
	fi

$(VENV)/installed: pyproject.toml constraints.txt | packages
	@echo "installing Python packages into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	    print("\n".join(p["dependencies"] + p["optional-dependencies"]["dev"]))' \
	    > $(VENV)/requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --requirement $(VENV)/requirements.txt
	@touch $@

$(VENV)/built: $(VENV)/installed $(RUST_SOURCES) Cargo.lock pyproject.toml
	@echo "building tailtap (a few minutes the first time)"
	@$(BIN)/maturin develop --release --locked --quiet > $(VENV)/build.log 2>&1 \
	    || { cat $(VENV)/build.log; exit 1; }
	@touch $@

.PHONY: setup
setup: packages $(VENV)/built ## Install what is missing and build .venv/bin/tailtap

# What `make forwarders` needs of apt beyond the machine's own lists; /etc/apt stays as it is.
APT_FOLDER := $(abspath $(VENV))/apt
APT_OWN := -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$(APT_FOLDER)/sources \
    -o Dir::Etc::preferences=$(APT_FOLDER)/preferences -o Dir::State::lists=$(APT_FOLDER)/lists \
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false

$(BIN)/dpdk-l3fwd: scripts/build-forwarders.sh scripts/debian-sources.sh | $(VENV)/installed
	@sh scripts/debian-sources.sh $(APT_FOLDER)
	@$(SUDO) apt-get $(APT_OWN) update
	@missing=$$(for p in $(APT_FORWARDERS); do \
	    dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'install ok installed' \
	        || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	    echo "installing" $$missing; \
	    $(SUDO) apt-get $(APT_OWN) install -y --no-install-recommends \
	        $$missing </dev/null >/dev/null; \
	fi
	@echo "building DPDK's examples into $(BIN)"
	@sh scripts/build-forwarders.sh $(abspath $(BIN)) $(APT_FOLDER)
	@touch $@

.PHONY: forwarders
forwarders: $(BIN)/dpdk-l3fwd ## Install DPDK and Suricata, and build DPDK's examples into .venv/bin

# A QEMU with igb cards: the machine's own, or that of the release's backports, which is unpacked and
# not installed. It emulates cards for tests; guests of tailtap run in the machine's own.
$(VENV)/emulator/made: scripts/emulator.sh | $(BIN)/dpdk-l3fwd
	@echo "getting an emulator of network cards"
	@APT_OPTIONS="$(APT_OWN)" sh scripts/emulator.sh $(@D)
	@touch $@

.PHONY: emulator
emulator: $(VENV)/emulator/made ## Get a QEMU that emulates the network cards of tests

.PHONY: demo
demo: setup ## Measure a small lab on this machine and write its report
	@$(SUDO) rm -rf demo
	@$(SUDO) $(BIN)/tailtap run examples/quickstart.yaml --out demo
	@$(SUDO) $(BIN)/tailtap report demo

# Tests start hundreds of interpreters, some in guests, which cannot write what they compile.
.PHONY: compiled
compiled: setup
	@$(BIN)/python -m compileall -q python

# The lints and tests of Rust share one build, which needs nothing of Python.
.PHONY: lint-rust
lint-rust: packages ## Check the format and style of the Rust sources
	@cargo fmt --all --check
	@cargo fmt --manifest-path fuzz/Cargo.toml --check
	@cargo clippy --quiet --locked --workspace --all-targets -- -D warnings

.PHONY: lint-python
lint-python: setup ## Check the format, style and types of the Python sources
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/python -m mypy.stubtest --concise tailtap._core

.PHONY: lint
lint: lint-rust lint-python ## Check format, style and types

.PHONY: test-rust
test-rust: packages ## Run the Rust tests
	@cargo test --quiet --locked --workspace

.PHONY: test-python
test-python: compiled ## Run the Python tests that need no root, side by side
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal \
	    --ignore tests/lab --ignore tests/package

.PHONY: test-package
test-package: setup ## Build the wheel and test it in a fresh environment
	@$(BIN)/python -m pytest tests/package

LAB := -m pytest -p no:cacheprovider tests/lab
IN_CI := not slow and not nested

.PHONY: test-lab-together
test-lab-together: compiled forwarders emulator ## Run the tests that need root and measure nothing, side by side
	@$(SUDO) $(BIN)/python $(LAB) -m "$(IN_CI) and not alone" --numprocesses $(shell nproc) \
	    --dist loadfile --no-loadscope-reorder

.PHONY: test-lab-alone
test-lab-alone: compiled forwarders ## Run the tests that need root and measure (run nothing else)
	@$(SUDO) $(BIN)/python $(LAB) -m "$(IN_CI) and alone"

.PHONY: test-lab
test-lab: ## Run the tests that need root (run nothing else)
	@$(MAKE) --no-print-directory test-lab-together
	@$(MAKE) --no-print-directory test-lab-alone

.PHONY: test
test: lint test-rust test-python test-package test-lab ## Run every check and the tests that CI runs

.PHONY: test-slow
test-slow: compiled forwarders emulator ## Run the slow tests that CI leaves out, except test-nested
	@$(SUDO) $(BIN)/python -m pytest -p no:cacheprovider -m slow tests

.PHONY: test-nested
test-nested: compiled emulator ## Test cards and virtual functions passed through to a nested virtual machine (20 minutes)
	@$(SUDO) $(BIN)/python -m pytest -p no:cacheprovider -m nested tests/lab

.PHONY: test-all
test-all: test test-slow test-nested ## Run every check and every test

.PHONY: format
format: setup ## Format all sources
	@cargo fmt --all
	@cargo fmt --manifest-path fuzz/Cargo.toml
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

.PHONY: docs
docs: setup ## Write the references of commands, experiment files and kinds from the program
	@$(BIN)/python -m tailtap.cli.reference > docs/commands.md
	@$(BIN)/python -m tailtap.results.warnings.page > docs/warnings.md
	@$(BIN)/python -m tailtap.experiment.reference > docs/experiment.md
	@$(BIN)/python -m tailtap.experiment.json_schema > docs/experiment.schema.json
	@$(BIN)/python -m tailtap.cli.kinds > docs/kinds.md
	@$(BIN)/python -m tailtap.machine.tuning.page > docs/host.md

.PHONY: docs-published
docs-published: setup ## Write docs/published.md from the published result trees in TREES
	@$(BIN)/python -m benches.published $(TREES)

.PHONY: wheel
wheel: setup ## Build a wheel into dist/ that contains the libraries it needs
	@rm -rf $(VENV)/wheel
	@$(BIN)/maturin build --release --locked --quiet --auditwheel skip --out $(VENV)/wheel \
	    > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log; exit 1; }
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --plat manylinux_2_36_x86_64 \
	    --wheel-dir $(DIST) $(VENV)/wheel/*.whl > $(VENV)/build.log 2>&1 \
	    || { cat $(VENV)/build.log; exit 1; }
	@ls -1 $(DIST)/*.whl

BENCH := PYTHONPATH=tests/support $(BIN)/python -m benches

.PHONY: bench
bench: APT_MORE = $(APT_BENCH)
bench: setup forwarders ## Compare speed with other tools, and measure single packets (25 minutes)
	@$(BENCH).evaluate
	@echo
	@$(BENCH).explain
	@echo
	@$(BENCH).cluster
	@echo
	@$(SUDO) $(BENCH).lab
	@echo
	@$(SUDO) $(BENCH).generate
	@echo
	@$(SUDO) $(BENCH).taps
	@echo
	@$(SUDO) $(BENCH).tracing
	@echo
	@$(SUDO) $(BENCH).platforms
	@echo
	@$(SUDO) $(BENCH).lines
	@echo
	@$(SUDO) $(BENCH).single

.PHONY: bench-long
bench-long: setup ## Measure time and memory up to 200 million pairs (10 minutes, 7 GB of disk)
	@$(BENCH).long

.PHONY: bench-model
bench-model: setup ## Simulate how far the tail model can be trusted, and time it (15 minutes)
	@$(BENCH).model
	@$(BENCH).coverage

$(BIN)/cargo-fuzz: | $(VENV)/installed
	@echo "installing cargo-fuzz into $(VENV)"
	@cargo install --quiet --locked --root $(VENV) cargo-fuzz

.PHONY: fuzz
fuzz: $(BIN)/cargo-fuzz ## Fuzz every reader for FUZZ_SECONDS; stop at the first finding
	@for target in $(FUZZ_TARGETS); do \
	    echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
	    mkdir -p fuzz/work/$$target; \
	    $(FUZZ) run --sanitizer $(FUZZ_SANITIZER) $$target \
	        fuzz/work/$$target fuzz/corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) \
	        -rss_limit_mb=1024 -timeout=10 -print_final_stats=1 > fuzz/work/$$target.log 2>&1 \
	        || { tail -n 60 fuzz/work/$$target.log; exit 1; }; \
	    grep -E 'DONE|^stat::' fuzz/work/$$target.log; \
	done

.PHONY: fuzz-corpus
fuzz-corpus: $(BIN)/cargo-fuzz ## Add the inputs that reached new code to the corpus
	@PYTHONPATH=tests/support $(BIN)/python fuzz/seeds.py
	@for target in $(FUZZ_TARGETS); do \
	    mkdir -p fuzz/work/$$target; \
	    $(FUZZ) run --sanitizer $(FUZZ_SANITIZER) $$target \
	        fuzz/corpus/$$target fuzz/work/$$target -- -merge=1 -use_counters=0 \
	        > fuzz/work/$$target.log 2>&1 || { tail -n 60 fuzz/work/$$target.log; exit 1; }; \
	done

.PHONY: clean
clean: ## Remove what was built (not what was measured)
	@rm -rf target fuzz/target dist $(VENV)
