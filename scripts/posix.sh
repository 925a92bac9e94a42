#!/usr/bin/env bash
# The POSIX cases at length, under each kind of mount.
#
#   FSX_OPERATIONS, FSX_SEEDS, STRESS_SECONDS  how long: as they are here, about an hour and a half on two cores
#   POSIX_SECONDS=n  makes these three so small that all of it takes about so long
#   POSIX_SEED=n     what fsx, stress-ng and the model draw from (1)
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/lib.sh

scripts/install-deps.sh build test suites
use_rust_toolchain
step "building"
[[ -n ${ONEFOLD-} ]] || cargo build --release --locked

# Share of the usual length, in thousandths: 70 minutes of it are fsx and stress-ng, the rest is as long whatever is asked.
thousandths=1000
if [[ -n ${POSIX_SECONDS-} ]]; then
    thousandths=$(((POSIX_SECONDS - 1200) * 1000 / 4200))
    thousandths=$((thousandths < 20 ? 20 : thousandths))
fi
export FSX_OPERATIONS=${FSX_OPERATIONS:-$((50 * thousandths))} FSX_SEEDS=${FSX_SEEDS:-4}
export STRESS_SECONDS=${STRESS_SECONDS:-$((300 * thousandths / 1000))}
export PATIENCE=${PATIENCE:-30} POSIX_SEED=${POSIX_SEED:-1}
# 64M is the least memory that a pool takes.
for flags in '--memory 256M' '--memory 256M --writeback-cache' '--memory 256M --verify value' '--memory 64M'; do
    step "mounted with $flags"
    cases=(pjdfstest permissions times listing handles nfs model fsx stress-ng)
    # It asks for what the writeback cache takes away: docs/posix.md says what.
    [[ $flags == *--writeback-cache* ]] || cases+=(posix)
    MOUNT_FLAGS=$flags tests/clients/run.sh "${cases[@]}"
done
