#!/usr/bin/env bash
# Several nodes: run the same command on each of them. The node HEAD only hosts the meeting point.
#
#   HEAD=node-1:29500 NODES=2 bash examples/guard_nodes.sh examples/ddp_guard.py --checkpoint a.pt
#
# The checkpoint must be on a file system that all nodes share.
set -euo pipefail

: "${HEAD:?must be HOST:PORT of one of the nodes}"
: "${NODES:?must be the number of nodes}"

exec torchrun \
  --nnodes "$NODES" \
  --nproc-per-node "${RANKS:-8}" \
  --max-restarts "${RESTARTS:-3}" \
  --rdzv-backend c10d \
  --rdzv-endpoint "$HEAD" \
  --rdzv-id "${RUN:-guard}" \
  "$@"
