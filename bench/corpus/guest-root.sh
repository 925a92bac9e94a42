# shellcheck shell=bash
# Work in the mounted root of a guest, with the guest's own programs. To be sourced, after apt-sources.sh; `root` names
# the folder that the root is mounted at. All mounts are meant for a mount namespace that goes afterwards.

root=${root-}

# Runs apt-get in the mounted guest, by this machine's ways to its mirrors.
apt_in_guest() {
    APT_CONFIG=/run/apt.conf DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
        chroot "$root" apt-get --quiet --assume-yes --no-install-recommends \
        -o Dpkg::Options::=--force-confold -o Dpkg::Options::=--force-unsafe-io "$@"
}

# What the guest's programs need around them, and what keeps its services from being
# started. All of it goes with the namespace, or at `leave`.
enter() {
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/run"
    mount -t tmpfs tmpfs "$root/tmp"
    mount --rbind /dev "$root/dev"
    apt_transport_options >"$root/run/apt.conf"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    # The machine's own resolver, over the guest's.
    mount --bind "$(readlink -f /etc/resolv.conf)" "$root/etc/resolv.conf"
}

leave() {
    rm "$root/usr/sbin/policy-rc.d"
    umount --recursive "$root"
}
