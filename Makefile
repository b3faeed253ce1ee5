# One machine, end to end: `make up`. Every target installs what it needs into .venv first.
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin

.PHONY: install up test test-all check format bench pins docs clean
.DEFAULT_GOAL := install

.venv/.run: requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "spazio needs Python 3.11 or newer with its venv module (Debian: apt-get install python3-venv); or name one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@echo '$(CURDIR)' > .venv/lib/$$(ls .venv/lib | grep ^python | head -n 1)/site-packages/spazio.pth
	@printf '#!%s\nimport sys\nfrom spazio.__main__ import main\nsys.exit(main())\n' '$(CURDIR)/$(BIN)/python' > $(BIN)/spazio && chmod +x $(BIN)/spazio
	@touch $@

.venv/.dev: requirements-dev.txt .venv/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

install: .venv/.run
up: .venv/.run
	@exec $(BIN)/spazio up
test: .venv/.dev
	$(BIN)/python -m pytest -q -m "not slow"
test-all: test
	$(BIN)/python -m pytest -q -m slow
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
docs: .venv/.run
	$(BIN)/spazio schema --out docs
pins:
	uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --extra all pyproject.toml -o requirements.txt
	uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --extra all --group dev pyproject.toml -o requirements-dev.txt
clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
