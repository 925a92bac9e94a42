#!/bin/bash
# The first process of the guest: does what run.sh wrote into /host, and switches the guest off.
#
# /host is a folder of the machine that it runs on: `onefold`, the source tree's `tests` and `packaging`, test programs in
# `programs/`, `settings`. The results go to /host/status. Pools lie on a disk of ext4 at /work.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 USER=root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ln -sf /proc/self/fd /dev/fd
mkdir -p /dev/pts /dev/shm /host /work
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
ln -sf /proc/self/mounts /etc/mtab
hostname guest
modprobe -a virtio_pci virtio_blk virtio_rng 9p 9pnet_virtio fuse ext4 xfs loop
# As systemd does it: unmounts by force need it.
mount -t fusectl fusectl /sys/fs/fuse/connections
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none host /host

switch_off() {
    echo "$1" >/host/status
    sync
    echo o >/proc/sysrq-trigger
    sleep 60
}

{ mke2fs -q -t ext4 /dev/vda && mount /dev/vda /work; } || switch_off 'no disk'
cp -r /host/{onefold,tests,packaging,programs} /work/
# shellcheck source=/dev/null
source /host/settings
echo "the guest is up after $(cut -d' ' -f1 /proc/uptime) s, Linux $(uname -r)"

# A program that even `kill -9` does not end would keep the guest for ever: tells where its threads wait, and gives up.
watch_program() {
    sleep $((PROGRAM_SECONDS + 60))
    echo "$1 does not end; what its threads wait for:"
    dmesg --clear
    echo w >/proc/sysrq-trigger
    dmesg --notime | grep -v '^ *$'
    switch_off 1
}

failed=0
export TMPDIR=/work/tmp ONEFOLD=/work/onefold CARGO_TARGET_DIR=/work/target PATIENCE JOBS
mkdir -p "$TMPDIR"
cd /work || switch_off 'no folder'
if [[ -n $CASES ]]; then
    # shellcheck disable=SC2086 # A list of names.
    TMPDIR=/work/clients tests/clients/run.sh $CASES | tee /tmp/cases
    ((PIPESTATUS[0] == 0)) || failed=1
    # What cases need is here. One that was skipped has shown nothing.
    ! grep -q '^skip' /tmp/cases || failed=1
fi
for program in programs/*; do
    [[ -x $program ]] || continue
    echo "== ${program##*/}"
    watch_program "${program##*/}" &
    watch=$!
    # shellcheck disable=SC2086 # Names of tests, if any.
    timeout --kill-after=10 "$PROGRAM_SECONDS" "$program" $ARGUMENTS --test-threads="$JOBS" 2>&1 | grep -v '^$' || true
    ((PIPESTATUS[0] == 0)) || failed=1
    kill "$watch"
done
dmesg --level=emerg,alert,crit,err,warn | tail -n 40 >/host/kernel.log
switch_off "$failed"
