#!/bin/bash
# The first process of a host. It reads from the kernel's command line: host=N (its number), hosts=N (how many there may be).
#
# Brings up the network, the folder /host that all share with the machine they run on, and o2cb, and then waits for orders.
# It does not mount the shared disk: what is tried may want to choose when.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /host /mnt/shared
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
host=$(sed 's/.*\bhost=\([0-9]*\).*/\1/' /proc/cmdline)
hosts=$(sed 's/.*\bhosts=\([0-9]*\).*/\1/' /proc/cmdline)
hostname "host$host"
echo "host$host" >/etc/hostname
modprobe -a virtio_pci virtio_scsi sd_mod virtio_net virtio_rng 9p 9pnet_virtio configfs loop ocfs2 ocfs2_stack_o2cb ocfs2_dlm
mount -t configfs configfs /sys/kernel/config
mount -t debugfs debugfs /sys/kernel/debug
ln -sf /proc/self/mounts /etc/mtab
ip link set lo up
for device in /sys/class/net/e*; do
    ip address add "10.77.0.$host/24" dev "${device##*/}"
    ip link set "${device##*/}" up
done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none host /host

# The cluster's table names all hosts that there may be, running or not.
mkdir -p /etc/ocfs2
{
    printf 'cluster:\n\theartbeat_mode = local\n\tnode_count = %s\n\tname = onefold\n' "$hosts"
    for ((number = 1; number <= hosts; number++)); do
        printf '\nnode:\n\tnumber = %s\n\tcluster = onefold\n\tip_port = 7777\n\tip_address = 10.77.0.%s\n\tname = host%s\n' \
            "$number" "$number" "$number"
    done
} >/etc/ocfs2/cluster.conf
echo o2cb >/sys/fs/ocfs2/cluster_stack
o2cb register-cluster onefold
settings=/sys/kernel/config/cluster/onefold
# A host is dead after (7 - 1) * 2 seconds without a heartbeat, or 10 without a word.
echo 7 >$settings/heartbeat/dead_threshold
echo 10000 >$settings/idle_timeout_ms
echo 2000 >$settings/keepalive_delay_ms
echo 2000 >$settings/reconnect_delay_ms
# A host that fences itself restarts, which ends its QEMU.
echo reset >$settings/fence_method
echo 1 >/proc/sys/kernel/panic
echo 1 >/proc/sys/kernel/panic_on_oops
echo "host $host is up after $(cut -d' ' -f1 /proc/uptime) s" >/dev/console
while :; do
    dropbear -F -E -s -r /etc/dropbear/hostkey -p 22
    sleep 1
done
