# Everything that tailtap needs on a Debian machine is installed from here.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

# clang, libbpf and libelf build the eBPF taps; iproute2 builds the lab; the rest is for tests.
APT_RUN := iproute2 python3-venv
APT_BUILD := clang libbpf-dev libelf-dev zlib1g-dev pkg-config
APT_TEST := chromium chromium-driver tshark
RUST_SOURCES := $(shell find crates bpf -name '*.rs' -o -name '*.toml' -o -name '*.c' -o -name '*.h' 2>/dev/null)

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

.PHONY: packages
packages: ## Install the Debian packages that are missing
	@missing=$$(for p in $(APT_RUN) $(APT_BUILD) $(APT_TEST); do \
	    dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'install ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	    $(SUDO) apt-get update -qq; \
	    DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing; \
	fi

$(VENV)/installed: pyproject.toml constraints.txt | packages
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt 'maturin>=1.9,<2'
	$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	    print("\n".join(p["dependencies"] + p["optional-dependencies"]["dev"]))' \
	    | $(BIN)/python -m pip install --quiet --constraint constraints.txt --requirement /dev/stdin
	touch $@

$(VENV)/built: $(VENV)/installed $(RUST_SOURCES) Cargo.lock pyproject.toml
	$(BIN)/maturin develop --release --quiet --skip-install-dependencies 2>/dev/null \
	    || $(BIN)/maturin develop --release
	touch $@

.PHONY: setup
setup: packages $(VENV)/built ## Install what is missing and build; the program is .venv/bin/tailtap
