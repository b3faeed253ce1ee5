# One machine, end to end: `make up`. Every target installs what it needs into .venv first.
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin

KUBE := tests/e2e/kubernetes/tools
KUBE_VERSION = $(shell awk '$$1 == "k8s.io/kubernetes" {print $$2}' $(KUBE)/go.mod)
KUBE_STAMP = -X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION) -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBE_VERSION)))
GO_BUILD := @command -v go >/dev/null || { echo 'kube-tools needs Go 1.26.3 or newer (https://go.dev/dl)' >&2; exit 2; }; set -x; CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS='-mod=readonly -trimpath -buildvcs=false' GOGC=400 nice go build -C $(KUBE) -ldflags '-s -w $(KUBE_STAMP)'

.PHONY: install up test test-all test-slow test-slow-computing test-slow-others check format bench evaluate evaluate-truth peers audit release-check site pins docs digests kube-tools clean
.DEFAULT_GOAL := install

# A path with a space cannot stand after `#!`, so sh starts Python, as in scripts that pip makes.
.venv/.run: requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "spazio needs Python 3.11 or newer with its venv module (Debian: apt-get install python3-venv); or name one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@echo '$(CURDIR)' > .venv/lib/$$(ls .venv/lib | grep ^python | head -n 1)/site-packages/spazio.pth
	@printf '%s\n' '#!/bin/sh' "'''exec' \"$(CURDIR)/$(BIN)/python\" \"\$$0\" \"\$$@\"" "' '''" 'import sys' 'from spazio.__main__ import main' 'sys.exit(main())' > $(BIN)/spazio && chmod +x $(BIN)/spazio && ln -sf spazio $(BIN)/kubectl-spazio
	@touch $@

.venv/.dev: requirements-dev.txt .venv/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

# What spazio is compared with, in an environment of its own, so that ours stays as it is. bytewax has no later wheels.
PEERS_PYTHON ?= $(shell for p in python3.12 python3.11; do $$p -c 'import venv, ensurepip' 2>/dev/null && echo $$p && break; done)
.venv-peers/.run: requirements-peers.txt
	@test -n "$(PEERS_PYTHON)" || { echo 'peers needs Python 3.11 or 3.12 with its venv module; or name one: make PEERS_PYTHON=... peers' >&2; exit 2; }
	@test -x .venv-peers/bin/python || $(PEERS_PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-peers.txt
	@touch $@

# Tools of the audit, in an environment of their own.
.venv-audit/.run: requirements-audit.txt
	@test -n "$(PYTHON)" || { echo 'audit needs Python 3.11 or newer with its venv module; or name one: make PYTHON=... audit' >&2; exit 2; }
	@test -x .venv-audit/bin/python || $(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-audit.txt
	@touch $@

# What builds the pages of the documentation, in an environment of its own.
.venv-site/.run: requirements-site.txt
	@test -n "$(PYTHON)" || { echo 'site needs Python 3.11 or newer with its venv module; or name one: make PYTHON=... site' >&2; exit 2; }
	@test -x .venv-site/bin/python || $(PYTHON) -m venv .venv-site
	.venv-site/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-site.txt
	@touch $@

install: .venv/.run
up: .venv/.run
	@exec $(BIN)/spazio up
# Tests start hundreds of processes: bytecode is kept, whatever the shell says.
# Files go to the processes in the order of their folders, in which end-to-end tests, the longest, come first. By default those
# with the fewest tests come last, and they take minutes.
BY_FILE := --dist loadfile --no-loadscope-reorder
# A test that hangs fails, with the stack of each thread, instead of holding up the run for ever: longer than any takes.
# The run ends with it, because pytest-xdist may wait for ever for a process that replaces another. A coroutine fails alone.
END_AFTER := --max-worker-restart 0 -o faulthandler_exit_on_timeout=true -o faulthandler_timeout
SLOW = $(BIN)/python -m pytest -q $(BY_FILE) -m "slow and not (alone or paired)"
test test-slow: export PYTHONDONTWRITEBYTECODE :=
test: .venv/.dev
	$(BIN)/python -m pytest -q -n 3 $(BY_FILE) $(END_AFTER)=120 -m "not slow"
test-all: test
	@$(MAKE) test-slow
test-slow: .venv/.dev
	@$(MAKE) -j 2 test-slow-computing test-slow-others
	$(BIN)/python -m pytest -q -n 2 $(BY_FILE) $(END_AFTER)=900 -m "slow and paired" tests/e2e
	$(BIN)/python -m pytest -q $(END_AFTER)=900 -m "slow and alone" tests/e2e
# These only compute. They take what the others, which mostly wait, leave of the machine.
COMPUTING := tests/unit/processors tests/unit/spazio/backtest tests/unit/spazio/simulation tests/unit/benchmarks
test-slow-computing: .venv/.dev
	nice -n 19 $(SLOW) -n 2 $(END_AFTER)=1800 $(COMPUTING)
test-slow-others: .venv/.dev
	$(SLOW) -n 3 $(END_AFTER)=900 tests $(addprefix --ignore=,$(COMPUTING))
check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
bench: .venv/.dev
	$(BIN)/python -m benchmarks.agent
# Continues where it was interrupted. OPENB=folder adds the placement of the openb lists.
evaluate: .venv/.dev
	$(BIN)/python -m benchmarks.evaluation $(if $(OPENB),--openb $(OPENB))

evaluate-truth: .venv/.run
	$(BIN)/spazio truth
peers: .venv-peers/.run
	.venv-peers/bin/python -m benchmarks.peers
audit: .venv/.dev .venv-audit/.run
	$(BIN)/python .ci/audit.py
release-check: .venv/.dev
	$(BIN)/python .ci/release.py
docs: .venv/.run
	$(BIN)/spazio schema --out docs
site: .venv-site/.run
	.venv-site/bin/python .ci/site.py
# Images of others by version and digest, as their registries have them now; needs docker.
digests:
	deploy/digests.sh
pins:
	uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --extra all pyproject.toml -o requirements.txt
	uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --extra all --group dev pyproject.toml -o requirements-dev.txt
	uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate pyproject.toml -o requirements-agent.txt
	uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --group pyproject.toml:audit -o requirements-audit.txt
	uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --group pyproject.toml:site -o requirements-site.txt
	uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --extra processors --group peers --constraint requirements.txt pyproject.toml -o requirements-peers.txt
kube-tools: .tools/kube/.built
.tools/kube/.built: $(KUBE)/go.mod $(KUBE)/go.sum
	$(GO_BUILD) -o '$(CURDIR)/.tools/kube/etcd' go.etcd.io/etcd/server/v3
	$(GO_BUILD) -o '$(CURDIR)/.tools/kube/karpenter' sigs.k8s.io/karpenter/kwok
	$(GO_BUILD) -o '$(CURDIR)/.tools/kube/' $$(go -C $(KUBE) list tool | grep -v -e ^go.etcd.io/etcd/server/ -e ^sigs.k8s.io/karpenter/)
	@folder=$$(go -C $(KUBE) list -m -f '{{.Dir}}' sigs.k8s.io/karpenter) && install -m 644 -D -t .tools/kube/karpenter-crds $$folder/pkg/apis/crds/*.yaml $$folder/kwok/apis/crds/*.yaml
	@touch $@
clean:
	rm -rf .venv .venv-audit .venv-peers .venv-site build .tools wheelhouse .mypy_cache .pytest_cache .ruff_cache .hypothesis
