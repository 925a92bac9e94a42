#!/usr/bin/env bash
# The POSIX cases at length, under each kind of mount. FSX_OPERATIONS, FSX_SEEDS and STRESS_SECONDS change how long: as
# they are here, about an hour and a half on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/lib.sh

scripts/install-deps.sh build test suites
use_rust_toolchain
step "building"
cargo build --release --locked

export FSX_OPERATIONS=${FSX_OPERATIONS:-50000} FSX_SEEDS=${FSX_SEEDS:-4} STRESS_SECONDS=${STRESS_SECONDS:-300}
export PATIENCE=${PATIENCE:-30}
# 64M is the least memory that a pool takes.
for flags in '--memory 256M' '--memory 256M --writeback-cache' '--memory 256M --verify value' '--memory 64M'; do
    step "mounted with $flags"
    cases=(pjdfstest permissions times listing handles nfs model fsx stress-ng)
    # It asks for what the writeback cache takes away: docs/posix.md says what.
    [[ $flags == *--writeback-cache* ]] || cases+=(posix)
    MOUNT_FLAGS=$flags tests/clients/run.sh "${cases[@]}"
done
