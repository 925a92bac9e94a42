#!/usr/bin/env bash
# One node of Ceph with its object gateway, on loopback only: ceph.sh start | stop
#
#     CEPH_HOME=folder  all it has (target/ceph unless given); `stop` removes it
#     CEPH_GB=n         memory for objects, in GiB (4)
#     CEPH_PORT=n       port of the gateway (17481); the monitor takes the one after it
#
# `start` prints address, access key and secret, one a line. Objects lie in memory. Nothing of the system's own Ceph is
# read or written, and no systemd is needed.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
readonly home=${CEPH_HOME:-$here/../../target/ceph}
readonly port=${CEPH_PORT:-17481}
readonly key=onefoldkey secret=onefoldsecretonefold
export CEPH_CONF=$home/ceph.conf

# A monitor calls a disk that is nearly full unhealthy, so the limits are low. The gateway of version 16 cannot do
# without keys.
write_configuration() {
    cat >"$CEPH_CONF" <<CONF
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon_host = v2:127.0.0.1:$((port + 1))
mon_initial_members = a
public_network = 127.0.0.0/8
public_addr = 127.0.0.1
ms_bind_ipv6 = false
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
keyring = $home/keyring
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
mon_data_avail_warn = 1
mon_data_avail_crit = 1
osd_memory_target = 939524096
run_dir = $home/run
pid_file = $home/run/\$name.pid
log_file = $home/log/\$name.log
crash_dir = $home/crash
setuser =
setgroup =
[mon]
admin_socket = $home/run/\$name.asok
[mgr]
admin_socket = $home/run/\$name.asok
[mon.a]
mon_data = $home/mon.a
[mgr.x]
mgr_data = $home/mgr.x
mgr_modules =
[osd]
admin_socket = $home/run/\$name.asok
osd_data = $home/osd.0
osd_objectstore = memstore
memstore_device_bytes = ${CEPH_GB:-4}G
[client.rgw.a]
rgw_data = $home/rgw.a
rgw_frontends = beast endpoint=127.0.0.1:$port
rgw_thread_pool_size = 32
rgw_dns_name = 127.0.0.1
CONF
}

write_keys() {
    local tool=(ceph-authtool "$home/keyring" --gen-key)
    "${tool[@]}" --create-keyring -n mon. --cap mon 'allow *'
    "${tool[@]}" -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
    "${tool[@]}" -n mgr.x --cap mon 'allow profile mgr' --cap osd 'allow *'
    "${tool[@]}" -n osd.0 --cap mon 'allow profile osd' --cap mgr 'allow profile osd' --cap osd 'allow *'
    "${tool[@]}" -n client.rgw.a --cap mon 'allow rw' --cap osd 'allow rwx' --cap mgr 'allow rw'
}

# until_true SECONDS COMMAND...
until_true() {
    local ends=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < ends)) || return 1
        sleep 0.5
    done
}

osd_is_up() {
    timeout 10 ceph osd stat --format json 2>/dev/null | grep -q '"num_up_osds":1,'
}

gateway_answers() {
    curl --silent --fail --output /dev/null "http://127.0.0.1:$port/"
}

# Each daemon goes to the background by itself, and would hold the caller's standard input.
start_daemons() {
    local uuid
    monmaptool --create --clobber --fsid "$(sed -n 's/^fsid = //p' "$CEPH_CONF")" \
        --addv a "[v2:127.0.0.1:$((port + 1))]" "$home/monmap"
    ceph-mon --mkfs -i a --monmap "$home/monmap" --keyring "$home/keyring"
    ceph-mon -i a </dev/null
    timeout 60 ceph --status
    ceph-mgr -i x </dev/null
    uuid=$(cat /proc/sys/kernel/random/uuid)
    timeout 30 ceph osd new "$uuid" 0
    ceph-osd -i 0 --mkfs --osd-uuid "$uuid"
    timeout 30 ceph osd crush add osd.0 1.0 root=default host=lab
    ceph-osd -i 0 </dev/null
    until_true 60 osd_is_up
    timeout 120 radosgw-admin user create --uid=onefold --display-name=onefold \
        --access-key="$key" --secret-key="$secret"
    timeout 90 radosgw -n client.rgw.a </dev/null
    until_true 60 gateway_answers
}

start() {
    rm -rf "$home"
    mkdir -p "$home"/{run,log,crash,mon.a,mgr.x,rgw.a,osd.0}
    write_configuration
    if ! { write_keys && start_daemons; } >"$home/log/start" 2>&1; then
        tail -n 20 "$home/log/start" >&2
        stop
        printf 'error: Ceph does not start\n' >&2
        exit 1
    fi
    printf '%s\n' "http://127.0.0.1:$port" "$key" "$secret"
}

# Prints the daemons of this folder that run.
daemons() {
    local file pid
    for file in "$home"/run/*.pid; do
        [[ -s $file ]] || continue
        pid=$(<"$file")
        # A number may have gone to another process since.
        if tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qE '^(ceph-|radosgw)'; then
            printf '%s\n' "$pid"
        fi
    done
}

none_run() {
    [[ -z $(daemons) ]]
}

stop() {
    local pid
    for pid in $(daemons); do
        kill "$pid" 2>/dev/null || true
    done
    until_true 15 none_run || for pid in $(daemons); do kill -KILL "$pid" 2>/dev/null || true; done
    rm -rf "$home"
}

case ${1-} in
    start | stop) "$1" ;;
    *)
        sed -n '2,9p' "$0" >&2
        exit 2
        ;;
esac
