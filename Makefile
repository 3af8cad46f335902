# Everything that tailtap needs on a Debian machine is installed from here.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DIST ?= dist
# How many tests run side by side: they wait for other programs a third of their time, in the lab half.
WORKERS ?= $(shell echo $$(($$(nproc) + 1)))
# Where Python tests write: they make so many small files that a disk costs them most of their time. In
# memory, where it has 4 GB of room and files there may be programs.
TESTS_FOLDER ?= $(shell test "$$(df --output=avail /dev/shm 2> /dev/null | tail -n 1)" -gt 4000000 \
    && ! grep -q '^[^ ]* /dev/shm .*noexec' /proc/mounts && echo /dev/shm || echo $${TMPDIR:-/tmp})
# What the Rust tests are built with: that of the module (release) serves where both are built.
RUST_PROFILE ?= test
# How long each fuzz target runs. The sanitizers are for nightly toolchains only; without one,
# stable will do: nearly all of the code is safe Rust, checked for panics, hangs and memory.
FUZZ_SECONDS ?= 600
FUZZ_SANITIZER ?= none
# How many damaged files each reader in Python gets, and the number of the first: each is a case that
# can be tried again.
FUZZ_CASES ?= 10000
FUZZ_FIRST ?= 0
# Where those files are: in memory, as each case writes a folder and removes it.
FUZZ_FOLDER ?= /dev/shm
FUZZ_TARGETS := $(patsubst fuzz/fuzz_targets/%.rs,%,$(wildcard fuzz/fuzz_targets/*.rs))
FUZZ := PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cargo fuzz
# The locks are whole: pip has nothing to resolve.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps
LOCK := $(VENV)/lock/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
    --generate-hashes --no-header --no-annotate --no-emit-index-url
# As root when we are not: with our own path, and without leaving caches that only root can remove.
SUDO := $(if $(filter 0,$(shell id -u)),env,sudo env PYTHONDONTWRITEBYTECODE=1) \
    "PATH=$(PATH)" DEBIAN_FRONTEND=noninteractive

# What the lab runs by default, and what the build compiles with.
APT_RUN := iproute2 ethtool kmod python3-venv libpcap0.8
APT_BUILD := clang llvm libelf-dev zlib1g-dev linux-libc-dev pkg-config
# What builds libelf, and the kernel's headers for the other architecture.
APT_WHEEL := autoconf automake autopoint libtool gettext flex bison gawk make linux-libc-dev-arm64-cross
# What tests the wheels: roots of other systems, programs and a machine of the other architecture.
APT_SYSTEMS := mmdebstrap qemu-user-static qemu-system-arm
# What other platforms and the counters run; `tailtap doctor` names the packages of each.
APT_PLATFORMS := linux-perf lxc crun runc podman catatonit mmdebstrap qemu-system-x86 libvirt-daemon cpio
# Servers and clients of examples, and the tool of NAT; `tailtap doctor` names them.
APT_EXAMPLES := dnsmasq-base dnsperf nginx-light wrk nftables
# What the tests compare with and look at.
# libbpf-dev: the recorder that the stamps are compared with; zsh, fish: what they complete;
# mandoc, bsdextrautils: they show manual pages; strace: which files a command opens; nghttp2-client: HTTP/2 with several streams; ipmitool: a client of management controllers; hwloc-nox: the other reader of topologies; wireguard-tools, ppp: tunnels that are observed; e2fsprogs: a guest's disk; procps: sysctl.
APT_TEST := chromium chromium-driver dnsmasq-base openssl tshark postgresql r-cran-evd netsniff-ng lua5.1 libbpf-dev gcc libc6-dev zsh fish hwloc-nox wireguard-tools ppp e2fsprogs procps ipmitool libvirt-clients ipxe-qemu grub-pc-bin grub-common mandoc bsdextrautils nghttp2-client strace
# What `make bench` compares with.
APT_DPDK := dpdk-dev librte-net-af-packet23 librte-net-af-xdp23 librte-mempool-ring23 \
    librte-net-e1000-23
APT_BENCH := $(APT_DPDK) tcpdump wireshark-common tshark bpftrace linux-perf
# The forwarders that are programs of others, and what builds DPDK's examples.
APT_FORWARDERS := $(APT_DPDK) libdpdk-dev suricata openvswitch-switch openvswitch-switch-dpdk gcc libc6-dev
RUST_SOURCES := $(shell find crates bpf -name '*.rs' -o -name '*.toml' -o -name '*.c' -o -name '*.h')

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) \
	    | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

# Installs the packages in $(1) that are missing.
define install
	@missing=$$(for p in $(1); do \
	    dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'install ok installed' \
	        || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	    echo "installing" $$missing; \
	    $(SUDO) apt-get update -qq; \
	    $(SUDO) apt-get install -y -qq --no-install-recommends \
	        $$missing </dev/null >/dev/null; \
	fi
endef

.PHONY: packages-build
packages-build:
	$(call install,$(APT_RUN) $(APT_BUILD))

.PHONY: packages
packages: packages-build ## Install the Debian packages of the tests and of all platforms that are missing
	$(call install,$(APT_PLATFORMS) $(APT_EXAMPLES) $(APT_TEST) $(APT_MORE))

$(VENV)/installed: requirements.lock | packages-build
	@echo "installing Python packages into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --requirement requirements.lock
	@touch $@

# The tools of tests, and what optional parts need.
$(VENV)/complete: requirements-dev.lock | $(VENV)/installed
	@echo "installing the tools of the tests into $(VENV)"
	@$(PIP) --requirement requirements-dev.lock
	@touch $@

.PHONY: lock
lock: | $(VENV)/installed ## Lock the newest Python packages, each with its hashes
	@$(PYTHON) -m venv $(VENV)/lock
	@$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	@$(LOCK) --upgrade --extra dev --output-file requirements-dev.lock
	@$(LOCK) --extra build --constraints requirements-dev.lock --output-file requirements.lock

$(VENV)/built: $(VENV)/installed $(RUST_SOURCES) Cargo.lock pyproject.toml
	@echo "building tailtap (a few minutes the first time)"
	@$(BIN)/maturin develop --release --locked --quiet > $(VENV)/build.log 2>&1 \
	    || { cat $(VENV)/build.log; exit 1; }
	@touch $@

.PHONY: setup
setup: packages-build $(VENV)/built ## Install what is missing and build .venv/bin/tailtap

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
forwarders: $(BIN)/dpdk-l3fwd ## Install DPDK, Suricata and Open vSwitch, and build DPDK's examples into .venv/bin

# A QEMU with igb cards: the machine's own, or that of the release's backports, which is unpacked and
# not installed. It emulates cards for tests; guests of tailtap run in the machine's own.
$(VENV)/emulator/made: scripts/emulator.sh | $(BIN)/dpdk-l3fwd
	@echo "getting an emulator of network cards"
	@APT_OPTIONS="$(APT_OWN)" sh scripts/emulator.sh $(@D)
	@touch $@

.PHONY: emulator
emulator: $(VENV)/emulator/made ## Get a QEMU that emulates the network cards of tests

# A kernel of Debian's that has what its own stable release's lacks, for guests of tests.
$(VENV)/newer-kernel/made: scripts/newer-kernel.sh | $(VENV)/installed
	@echo "getting a newer kernel for guests of tests"
	@sh scripts/newer-kernel.sh $(abspath $(@D))
	@touch $@

.PHONY: newer-kernel
newer-kernel: $(VENV)/newer-kernel/made ## Get the kernel of tests that need a newer one

$(VENV)/other-systems/made: scripts/other-systems.sh | $(VENV)/installed
	$(call install,$(APT_SYSTEMS))
	@echo "making the roots of Debian 11, and of Debian 12 for aarch64 (ten minutes)"
	@$(SUDO) bash scripts/other-systems.sh $(abspath $(@D))
	@$(SUDO) touch $@

.PHONY: other-systems
other-systems: $(VENV)/other-systems/made ## Make the roots of other systems that tests install wheels in

.PHONY: demo
demo: setup ## Measure a small lab on this machine and write its report
	@$(SUDO) rm -rf demo
	@# The report says which runs are invalid (3), as on a machine whose time is taken.
	@$(SUDO) $(BIN)/tailtap run examples/quickstart.yaml --out demo || test $$? -eq 3
	@$(SUDO) $(BIN)/tailtap report demo

.PHONY: fresh-demo
fresh-demo: ## Type the README's first commands on a fresh Debian 12, and say what that takes
	$(call install,mmdebstrap)
	@$(SUDO) bash scripts/fresh-demo.sh

# Tests start hundreds of interpreters, some in guests, which cannot write what they compile.
.PHONY: compiled
compiled: packages setup $(VENV)/complete
	@$(BIN)/python -m compileall -q python tests/support

.PHONY: lint-format
lint-format:
	@cargo fmt --all --check
	@cargo fmt --manifest-path fuzz/Cargo.toml --check

# The lints and tests of Rust share one build, which needs nothing of Python.
.PHONY: lint-rust
lint-rust: packages lint-format ## Check the format and style of the Rust sources
	@cargo clippy --quiet --locked --workspace --all-targets -- -D warnings

.PHONY: lint-python
lint-python: setup $(VENV)/complete ## Check the format, style and types of the Python sources
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/lint-imports --no-cache > $(VENV)/lint.log || { cat $(VENV)/lint.log; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/python -m mypy.stubtest --concise tailtap._core

.PHONY: lint
lint: lint-rust lint-python ## Check format, style and types

.PHONY: test-rust
test-rust: packages ## Run the Rust tests
	@# Examples in comments would be tests, too: there are none, and to look for them takes a third build.
	@cargo test --quiet --locked --profile $(RUST_PROFILE) --workspace --tests

.PHONY: test-python
test-python: compiled ## Run the Python tests that need no root, side by side
	@folder=$$(mktemp -d $(TESTS_FOLDER)/tt-XXXX); chmod 755 "$$folder"; trap 'rm -rf "$$folder"' EXIT; \
	TMPDIR=$$folder $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal \
	    --ignore tests/lab --ignore tests/package

.PHONY: simulate
simulate: compiled ## Try seeds of a machine whose truth is known: SEEDS=FIRST:END, TRIALS, WITHOUT, SCALE
	@TMPDIR=$(TESTS_FOLDER) PYTHONPATH=tests/support:. $(BIN)/python -m tests.simulation $(SEEDS) --trials $(TRIALS) \
	    --without $(WITHOUT) $(if $(SCALE),--scale $(SCALE))

.PHONY: test-package
test-package: setup $(VENV)/complete ## Build the wheel and test it in a fresh environment
	@$(BIN)/python -m pytest tests/package

LAB := -m pytest -p no:cacheprovider tests/lab
IN_CI := not slow and not nested

# Runs the lab tests that $(1) selects, with the options $(2). What fails while other tests run is run
# once more when these have ended: they may have taken its time. A test that fails by itself fails.
define beside_others
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	again="$(BIN)/python -m pytest -o cache_dir=$$folder tests/lab -m '$(IN_CI) and $(1)'"; \
	$(SUDO) sh -c "$$again $(2)" || { test $$? -eq 1; echo "Once more, by itself, what failed:"; \
	    $(SUDO) sh -c "$$again --last-failed --last-failed-no-failures none"; }
endef

.PHONY: test-lab-together
test-lab-together: compiled forwarders ## Run the tests that need root and judge no times, side by side
	$(call beside_others,not alone and not apart,--numprocesses $(WORKERS) --dist loadfile \
	    --no-loadscope-reorder)

.PHONY: test-lab-apart
test-lab-apart: compiled forwarders ## Run the tests that need root and no other such test beside them
	$(call beside_others,apart)

.PHONY: test-lab-alone
test-lab-alone: compiled forwarders ## Run the tests that need root and judge times (run nothing else)
	@$(SUDO) $(BIN)/python $(LAB) -m "$(IN_CI) and alone"

.PHONY: test-lab
test-lab: ## Run the tests that need root (run nothing else)
	@$(MAKE) --no-print-directory test-lab-together
	@$(MAKE) --no-print-directory test-lab-apart
	@$(MAKE) --no-print-directory test-lab-alone

.PHONY: test
test: lint test-rust test-python test-package test-lab ## Run every check and the tests that CI runs

.PHONY: test-slow
test-slow: compiled forwarders emulator newer-kernel other-systems ## Run the slow tests that CI leaves out, except test-nested
	@$(SUDO) $(BIN)/python -m pytest -p no:cacheprovider -m slow tests

.PHONY: test-nested
test-nested: compiled emulator ## Test cards and virtual functions passed through to a nested virtual machine (30 minutes)
	@$(SUDO) $(BIN)/python -m pytest -p no:cacheprovider -m nested tests/lab

.PHONY: test-all
test-all: test test-slow test-nested ## Run every check and every test

.PHONY: size
size: setup $(VENV)/complete ## Print how large the program is: statements, lines, words, and what commands load
	@$(BIN)/python scripts/size.py

.PHONY: format
format: setup $(VENV)/complete ## Format all sources
	@cargo fmt --all
	@cargo fmt --manifest-path fuzz/Cargo.toml
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

.PHONY: docs
docs: setup $(VENV)/complete ## Write the references of commands, experiment files, kinds and records from the program
	@$(BIN)/python -m tailtap.cli.reference > docs/reference/commands.md
	@$(BIN)/python -c "from tailtap.records.warnings import page; print(page(), end='')" > docs/reference/warnings.md
	@$(BIN)/python -m tailtap.experiment.reference > docs/reference/experiment.md
	@$(BIN)/python -m tailtap.experiment.json_schema > docs/reference/experiment.schema.json
	@$(BIN)/python -m tailtap.cli.kinds > docs/reference/kinds.md
	@$(BIN)/python -m tailtap.host.tuning.page > docs/reference/host.md
	@$(BIN)/python -m tailtap.records.schemas > docs/reference/records.md
	@$(BIN)/python scripts/licences.py > docs/reference/licences.md

.PHONY: docs-image
docs-image: packages demo ## Draw docs/images/report.png, the first screen of the demo's report
	@chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,1300 \
	    --virtual-time-budget=10000 --screenshot=docs/images/report.png \
	    "file://$(CURDIR)/demo/report/index.html" > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log; exit 1; }

MANUAL := tailtap.data/data/share/man/man1

.PHONY: man
man: setup ## Write the manual pages, which a wheel that is built then contains, into tailtap.data
	@$(BIN)/python -m tailtap.cli.reference $(MANUAL)

SCHEMAS := tailtap.data/data/share/tailtap/schemas

.PHONY: schemas
schemas: setup ## Write the JSON Schemas of all records, which a wheel that is built then contains, into tailtap.data
	@$(BIN)/python -m tailtap.records.schemas $(SCHEMAS)

.PHONY: docs-published
docs-published: setup $(VENV)/complete ## Write docs/explanation/published.md from the published result trees in TREES
	@$(BIN)/python -m benches.published $(TREES)

.PHONY: docs-papers
docs-papers: setup $(VENV)/complete ## Write docs/explanation/papers, with the figures of finished experiments in RESULTS
	@$(BIN)/python -m benches.papers $(RESULTS)

WHEEL_TARGETS ?= x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu

.PHONY: wheel
wheel: man schemas $(VENV)/complete ## Build wheels for glibc 2.28 and newer into dist/, x86-64 and aarch64 (WHEEL_TARGETS)
	$(call install,$(APT_WHEEL))
	@rustup target add $(WHEEL_TARGETS) 2> /dev/null || true
	@for target in $(WHEEL_TARGETS); do \
	    PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin build --release --locked --quiet --zig \
	        --compatibility manylinux_2_28 --target $$target --features vendored --out $(DIST) \
	        > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log; exit 1; }; \
	done
	@ls -1 $(DIST)/*.whl

.PHONY: wheel-here
wheel-here: man schemas ## Build a wheel for this machine and those with the same libraries
	@$(BIN)/maturin build --release --locked --quiet --compatibility linux --out $(DIST) \
	    > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log; exit 1; }
	@ls -1 $(DIST)/*.whl

BENCH := PYTHONPATH=tests/support $(BIN)/python -m benches

.PHONY: bench
bench: APT_MORE = $(APT_BENCH)
bench: packages setup $(VENV)/complete forwarders ## Compare speed with other tools, and measure single packets (30 minutes)
	@$(BENCH).evaluate
	@echo
	@$(BENCH).explain
	@echo
	@$(BENCH).transactions
	@echo
	@$(BENCH).cluster
	@echo
	@$(SUDO) $(BENCH).lab
	@echo
	@$(SUDO) $(BENCH).generate
	@echo
	@$(SUDO) $(BENCH).taps
	@echo
	@$(SUDO) $(BENCH).observing
	@echo
	@$(SUDO) $(BENCH).waiting
	@echo
	@$(SUDO) $(BENCH).tracing
	@echo
	@$(SUDO) $(BENCH).platforms
	@echo
	@$(SUDO) $(BENCH).lines
	@echo
	@$(SUDO) $(BENCH).single

.PHONY: bench-gate
bench-gate: compiled ## Count how often the gate is wrong of real runs, and what it sees (GATE_MINUTES, 25)
	@$(SUDO) env PYTHONPATH=tests/support $(BIN)/python -m benches.gating $(GATE_MINUTES)

.PHONY: bench-long
bench-long: packages setup $(VENV)/complete ## Measure time and memory up to 200 million pairs (10 minutes, 7 GB of disk)
	@$(BENCH).long

.PHONY: soak
SOAK_SECONDS ?= 86400
SOAK_RATE ?= 100000
soak: compiled ## Observe with a flight recorder for SOAK_SECONDS, and print what it takes (a day)
	@$(SUDO) env PYTHONPATH=tests/support $(BIN)/python -m benches.soak $(SOAK_SECONDS) $(SOAK_RATE)

.PHONY: bench-model
bench-model: packages setup $(VENV)/complete ## Simulate how far the tail model can be trusted, and time it (15 minutes)
	@$(BENCH).model
	@$(BENCH).coverage

$(BIN)/cargo-fuzz: | $(VENV)/installed
	@echo "installing cargo-fuzz into $(VENV)"
	@cargo install --quiet --locked --root $(VENV) cargo-fuzz

.PHONY: fuzz
fuzz: fuzz-python fuzz-rust ## Fuzz every reader of files

.PHONY: fuzz-python
fuzz-python: compiled ## Try FUZZ_CASES damaged files of ours on each reader, and count what came of them
	@PYTHONPATH=tests/support:. FUZZ_CASES=$(FUZZ_CASES) FUZZ_FIRST=$(FUZZ_FIRST) \
	    TMPDIR=$(FUZZ_FOLDER) $(BIN)/python -m tests.fuzz

.PHONY: fuzz-rust
fuzz-rust: $(BIN)/cargo-fuzz ## Fuzz every reader of captures for FUZZ_SECONDS; stop at the first finding
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
	@PYTHONPATH=tests/support:. $(BIN)/python fuzz/seeds.py
	@for target in $(FUZZ_TARGETS); do \
	    mkdir -p fuzz/work/$$target; \
	    $(FUZZ) run --sanitizer $(FUZZ_SANITIZER) $$target \
	        fuzz/corpus/$$target fuzz/work/$$target -- -merge=1 -use_counters=0 \
	        > fuzz/work/$$target.log 2>&1 || { tail -n 60 fuzz/work/$$target.log; exit 1; }; \
	done

.PHONY: clean
clean: ## Remove what was built (not what was measured)
	@if [ -e $(VENV)/other-systems ]; then $(SUDO) rm -rf $(VENV)/other-systems; fi
	@rm -rf target fuzz/target dist tailtap.data/data/share/man tailtap.data/data/share/tailtap $(VENV)
