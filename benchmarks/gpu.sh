#!/bin/bash
# For a machine with a CUDA device: the tests marked gpu, then the measurements. Nobody has run this yet.
set -eu
cd "$(dirname "$0")/.."
make test-gpu
.venv/bin/python cli.py info
.venv/bin/python cli.py verify --device cuda
.venv/bin/python benchmarks/priors.py --device cuda
.venv/bin/python benchmarks/step.py --device cuda --lanes 1 --lanes 4 --lanes 12
