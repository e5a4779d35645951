# make demo: set up, then the main job. make test: set up, then the whole suite. Both can be given again and again.
PYTHON ?= python3
BIN := .venv/bin
KINDS := conv patchify transpose shared patch-embed token-mix-in token-mix-out channel-mix

.PHONY: demo test test-gpu lint clean

demo: .venv/demo.installed
	@mkdir -p demo
	@set -e; for kind in $(KINDS); do $(BIN)/python cli.py build-prior --kind $$kind --out demo/$$kind.npz --plot demo/$$kind.png; done
	$(BIN)/python cli.py verify

test: .venv/test.installed
	IMLP_REQUIRE=accel,cupy,nvrtc,g++ $(BIN)/python -m pytest

test-gpu: .venv/test.installed
	IMLP_REQUIRE=accel,cupy,gpu $(BIN)/python -m pytest -m gpu

lint: .venv/test.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv demo

.venv/demo.installed: EXTRAS := accel
.venv/test.installed: EXTRAS := accel,cuda12,dev
.venv/%.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "imlp needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@echo "Setting up .venv with '$(EXTRAS)': the first time this downloads PyTorch (a few minutes, about 6 GB)."
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $@
