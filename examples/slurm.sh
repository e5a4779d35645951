#!/bin/bash
# A sweep on Slurm: Ray starts on every node of the job; the sweep is started on the first node and uses all of them.
#
#   sbatch --nodes=4 examples/slurm.sh sweep --alpha 0,1e-4..1:13log --seeds 5 --data cifar10 --out /shared/sweep
#
# To resume, submit the same line again (or let Slurm requeue the job): finished runs are skipped. Submit it from the
# repository, after activating the environment with imlp and Ray; all nodes must see the file system of both.
#SBATCH --job-name=imlp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
set -eu

cpus=${SLURM_CPUS_PER_TASK:-1}
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
on() { exec srun --overlap --nodes=1 --ntasks=1 --cpus-per-task="$cpus" --nodelist="$@"; }

# Only those who know the token may use the cluster. It is valid as long as the job runs; srun passes it to the nodes.
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN

ip=$(on "${nodes[0]}" hostname --ip-address)
ip=${ip%% *}
port=$((20000 + ${SLURM_JOB_ID:-0} % 10000))
address=$ip:$port
started=()
trap 'kill "${started[@]}" 2> /dev/null || true; wait' EXIT

# Waits until this many nodes have joined.
joined() {
    python - "$address" "$1" << 'EOF'
import sys
import time

import ray

address, number = sys.argv[1], int(sys.argv[2])
end, there = time.monotonic() + 300, 0
while there < number:
    if time.monotonic() > end:
        sys.exit(f"after 5 minutes only {there} of {number} nodes have joined Ray at {address}")
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
        there = sum(node["Alive"] for node in ray.nodes())
        ray.shutdown()
    except ConnectionError:
        time.sleep(1)
EOF
}

common=(--num-cpus="$cpus" --block)
[ -z "${SLURM_GPUS_ON_NODE:-}" ] || common+=(--num-gpus="$SLURM_GPUS_ON_NODE")
on "${nodes[0]}" ray start --head --node-ip-address="$ip" --port="$port" --include-dashboard=false "${common[@]}" &
started+=($!)
joined 1
for node in "${nodes[@]:1}"; do
    on "$node" ray start --address="$address" "${common[@]}" &
    started+=($!)
done
joined "${#nodes[@]}"

# On a signal from Slurm (the time is up, or the job is preempted) every run saves its state and stops.
python cli.py "$@" --engine ray --address "$address" &
sweep=$!
trap 'kill -TERM "$sweep"' TERM
code=0
while kill -0 "$sweep" 2> /dev/null; do # a signal interrupts wait
    wait "$sweep" && code=0 || code=$?
done
exit "$code"
