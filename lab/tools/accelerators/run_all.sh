#!/bin/sh
# Compiles every program of lab/benchmarks/results/2026-11-22/accelerators.md. A program of two layers takes about 10
# seconds on one core (25 or more with dropout), a whole model two minutes or more. After a stop, run it again to continue.
# Environments: `make accelerator-check` makes .venv.accelerators; the help of `check` says how to make .venv.gpu.
set -e
check="python -m lab.tools.accelerators.check --output_file=results.jsonl --python=.venv.accelerators/bin/python"
tpus=--chips=v3,v4,v5e,v5p,v6e
v1=albert-base-v1,albert-large-v1,albert-xlarge-v1,albert-xxlarge-v1
v2=albert-base-v2,albert-large-v2,albert-xlarge-v2,albert-xxlarge-v2
eight="--batches=8 --recomputation=true"
whole="--num_layers=0 --least_effort=false"
$check $eight $tpus --models=$v1,$v2 --replicas=1,4 --rows=single,packed
$check --chips=v3,v4,v5p,v6e --recomputation=true
$check --tasks=classification,span,evaluation --recomputation=false
$check $whole --batches=32,128
$check $whole $tpus --recomputation=false
$check $whole --models=albert-large-v2 --batches=32,64 --recomputation=true
$check $whole --models=albert-xlarge-v2,albert-xxlarge-v2 --batches=16,32 --recomputation=true
$check --num_layers=0 --models=albert-xxlarge-v2 --batches=48,64 --recomputation=true
$check $eight --models=$v1,$v2 --rows=single,packed --chips=h100 --python=.venv.gpu/bin/python
$check --chips=h100 --python=.venv.gpu/bin/python
