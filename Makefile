# make demo: set up, then the main job. make test: set up, then the whole suite. Both can be run repeatedly.
PYTHON ?= python3
BIN := .venv/bin
# what the tests must find; CI adds a browser: make test ALSO=chromium
REQUIRE := accel,cupy,nvrtc,cc,g++,lightning,onnx,optuna,ray,sphinx,tensorboard,timm,transformers

.PHONY: coverage demo test test-fast test-bits test-gpu lint docs notebooks clean

demo: .venv/demo.installed
	$(BIN)/python cli.py train --config examples/demo.toml --resume --out runs/demo
	$(BIN)/python cli.py explore --out runs/demo/explore.html
	$(BIN)/python cli.py report runs/demo --out runs/demo/demo.html

test: .venv/test.installed
	IMLP_REQUIRE=$(REQUIRE),$(ALSO) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

# the core, for while you work: specs, both backends and their parity, imlp.nn, one short training
test-fast: .venv/test.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 tests/test_spec.py tests/reference tests/accel/test_stack.py \
	  tests/parity/test_verbs.py tests/parity/test_network_parity.py tests/nn/test_dense.py \
	  tests/nn/test_densify.py tests/train/test_loop.py

# the whole suite, and which lines it runs; what runs in processes that tests start does not count
coverage: .venv/test.installed
	IMLP_REQUIRE=$(REQUIRE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --cov

# the tests that compare bits, as other processors would round: each setting limits the vector units that are used
SETTINGS := MKL_CBWR=COMPATIBLE MKL_CBWR=AVX2 MKL_CBWR=AVX2,STRICT ATEN_CPU_CAPABILITY=default
test-bits: .venv/test.installed
	set -e; for setting in $(SETTINGS); do echo "$$setting"; \
	  env "$$setting" IMLP_REQUIRE=$(REQUIRE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m bits tests; done

test-gpu: .venv/test.installed
	IMLP_REQUIRE=accel,cupy,gpu $(BIN)/python -m pytest -m gpu

lint: .venv/test.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/docs.installed
	$(BIN)/python -m sphinx -qWn --keep-going docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# run the notebooks and keep what they print and draw
notebooks: .venv/test.installed
	$(BIN)/python -m pytest --overwrite notebooks

clean:
	rm -rf .venv

.venv/demo.installed .venv/docs.installed: EXTRAS := accel
.venv/docs.installed: GROUPS := --group docs
.venv/test.installed: EXTRAS := accel,cuda12,onnx,ray,search,tensorboard
.venv/test.installed: GROUPS := --group dev --group docs
.venv/%.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "imlp needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@echo "Setting up .venv with '$(EXTRAS)' $(GROUPS): the first time this downloads PyTorch (a few minutes, about 6 GB)."
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(if $(GROUPS),$(BIN)/python -m pip install --disable-pip-version-check --quiet 'pip>=25.1' # knows dependency groups)
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[$(EXTRAS)]' $(GROUPS)
	@touch $@
