#!/usr/bin/env bash
# Formatting and lints. Debian's Rust packages come without a recent clippy: what the toolchain lacks is said, not done.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh
use_rust_toolchain

if cargo fmt --version >/dev/null 2>&1; then
    cargo fmt --all --check
else
    echo "this toolchain has no rustfmt: formatting is not checked"
fi
if cargo clippy --version >/dev/null 2>&1; then
    # In the profile of the tests: the macros and build scripts of their build serve here as well.
    cargo clippy --workspace --all-targets --profile test --locked -- -D warnings
    # With features of the whole workspace: for one package alone, what it depends on would be looked at once more.
    cargo clippy --workspace --profile test --features onefold-pool/explore --test schedules --locked -- -D warnings
    cargo clippy --workspace --profile test --features onefold-pool/lock-times --example lock_times --locked -- -D warnings
else
    echo "this toolchain has no clippy: lints are not checked"
fi
if command -v shellcheck >/dev/null; then
    git ls-files -z '*.sh' | xargs -0 shellcheck -x
else
    echo "no shellcheck here: shell scripts are not checked"
fi
