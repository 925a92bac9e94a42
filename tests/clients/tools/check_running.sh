#!/usr/bin/env bash
# Checks a mounted pool as a power cut would leave it: check_running.sh DAEMON POOL COPY
#
# The daemon is stopped while its pool is copied: what lies there then, with what the device has not been told to flush,
# is one of the states that a power cut can leave. Ends as `onefold pool check` does, and removes the copy.
set -euo pipefail
daemon=$1 pool=$2 copy=$3
trap 'kill -CONT "$daemon"; rm -f "$copy"' EXIT
kill -STOP "$daemon"
cp --sparse=always "$pool" "$copy"
kill -CONT "$daemon"
"$ONEFOLD" pool check --quiet "$copy"
