#!/usr/bin/env bash
# Makes what the cluster's hosts boot: image.sh FOLDER
#
# FOLDER gets `kernel`, a Debian kernel as it is shipped, and `root`, a small Debian in memory with the modules and
# programs that OCFS2 needs, which boots by itself. Nothing is written to it: each start of a host is the same. FOLDER also
# gets the keys by which the hosts are reached. Packages come from wherever this machine gets its own.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$here/../../scripts/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../../bench/corpus/apt-sources.sh
source "$here/../../bench/corpus/apt-sources.sh"

readonly PACKAGES=ocfs2-tools,iproute2,kmod,dropbear-bin,python3,util-linux,libgcc-s1,strace
readonly MODULES='virtio_pci virtio_scsi sd_mod virtio_net virtio_rng 9p 9pnet_virtio configfs crc32c_generic loop
    ocfs2 ocfs2_stackglue ocfs2_stack_o2cb ocfs2_dlm'

# The release of this machine, whose C library runs what is built here. Elsewhere, the one that the harness was made with.
release_of_this_machine() {
    # shellcheck source=/dev/null
    (. /etc/os-release && [[ $ID == debian ]] && printf '%s\n' "${VERSION_CODENAME-}") || printf 'bookworm\n'
}

bootstrap() {
    local options=$work/apt.conf
    apt_transport_options >"$options"
    # The hook fetches the kernel by the root's own lists and unpacks it there. Installing it would build a boot image,
    # too. Its $1 is the root, as mmdebstrap calls it.
    # shellcheck disable=SC2016
    apt_sources "$release" | unshare --mount mmdebstrap --mode=root --variant=minbase --format=directory \
        --keyring="$DEBIAN_KEYRING" --include="$PACKAGES" --aptopt="$options" --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook='set -e
            export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
            name=$(apt-cache depends linux-image-amd64 | sed -n "s/^ *Depends: \(linux-image-[^ ]*\)$/\1/p" | head -n 1)
            cd "$1/tmp"
            apt-get download "$name"
            # Not into the root: it would put a folder where /lib is a link.
            dpkg-deb --extract "$name"_*.deb kernel
            mv kernel/boot/vmlinuz-* "$1/boot/"
            mkdir -p "$1/usr/lib/modules"
            mv kernel/lib/modules/* "$1/usr/lib/modules/"
            rm -r "$name"_*.deb kernel' \
        "$release" "$root" -
}

# Leaves of the kernel's modules those that are needed.
choose_modules() {
    local version=$1 module needed=$work/modules
    chroot "$root" depmod "$version"
    # shellcheck disable=SC2086 # A list of names.
    chroot "$root" modprobe --set-version "$version" --ignore-install --show-depends --all $MODULES |
        awk '$1 == "insmod" { print $2 }' | sort -u >"$needed"
    while read -r module; do
        mkdir -p "$work/kept${module%/*}"
        mv "$root$module" "$work/kept$module"
    done <"$needed"
    mv "$root/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} "$work/kept/lib/modules/$version/"
    rm -rf "${root:?}/lib/modules/$version"
    mv "$work/kept/lib/modules/$version" "$root/lib/modules/"
    chroot "$root" depmod "$version"
}

main() {
    (($# == 1)) || die_usage 'one folder is to be named' 'image.sh FOLDER'
    local folder version
    folder=$(readlink -m "$1")
    if [[ -e $folder/complete ]] && cmp -s "$folder/complete" <(fingerprint); then
        say "the hosts' system is in $folder"
        add_start
        return
    fi
    mkdir -p "$folder"
    work=$(mktemp -d)
    # mmdebstrap's helpers run as other users and must reach the root.
    chmod 755 "$work"
    trap 'stop_progress; rm -rf --one-file-system "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    root=$work/root
    release=$(release_of_this_machine)
    say "making the hosts' system, Debian $release, from this machine's mirrors (about 80 MB are fetched)"
    with_progress mmdebstrap "$folder/mmdebstrap.log" bootstrap ||
        die "cannot make the hosts' system" 'mmdebstrap failed, see above'

    version=$(basename "$root"/boot/vmlinuz-*)
    version=${version#vmlinuz-}
    cp "$root/boot/vmlinuz-$version" "$folder/kernel"
    choose_modules "$version"
    rm -rf "${root:?}"/boot/* "$root"/var/{cache,lib/apt/lists}/* "$root/etc/resolv.conf"
    mkdir -p "$root/etc/dropbear" "$root/root/.ssh"
    chroot "$root" dropbearkey -t ed25519 -f /etc/dropbear/hostkey >/dev/null 2>&1
    rm -f "$folder"/key{,.pub}
    ssh-keygen -q -t ed25519 -N '' -C onefold-cluster -f "$folder/key"
    install -m 600 "$folder/key.pub" "$root/root/.ssh/authorized_keys"
    chmod 700 "$root/root" "$root/root/.ssh"
    # Not compressed: hosts without hardware virtualisation unpack slowly.
    (cd "$root" && find . -xdev -print0 | cpio --null --create --format=newc --quiet) >"$folder/base"
    printf '%s\n' "$version" >"$folder/version"
    add_start
    fingerprint >"$folder/complete"
    say "the hosts' system: kernel $version, $(human_bytes "$(stat --format=%s "$folder/root")") in memory"
}

# The first process comes last, so that a new one takes no new system: the kernel unpacks one archive after the other.
add_start() {
    local added
    added=$(mktemp -d)
    install -m 755 "$here/guest/start.sh" "$added/init"
    cp "$folder/base" "$folder/root"
    (cd "$added" && cpio --create --format=newc --quiet <<<init) >>"$folder/root"
    rm -r "$added"
}

# What the system was made by; another one is made anew.
fingerprint() {
    sha256sum <"$here/image.sh"
}

main "$@"
