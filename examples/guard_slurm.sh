#!/usr/bin/env bash
#SBATCH --job-name=guard
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --requeue
#
# One torchrun per node, which starts the ranks of the node:
#
#   sbatch examples/guard_slurm.sh examples/ddp_guard.py --checkpoint /shared/a.pt
#
# To keep a node out that the guard has named: sbatch --exclude=NODE examples/guard_slurm.sh ...
set -euo pipefail

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

srun --kill-on-bad-exit=1 torchrun \
  --nnodes "$SLURM_NNODES" \
  --nproc-per-node "${SLURM_GPUS_ON_NODE:-8}" \
  --max-restarts 3 \
  --rdzv-backend c10d \
  --rdzv-endpoint "$head:${PORT:-29500}" \
  --rdzv-id "$SLURM_JOB_ID" \
  "$@"
