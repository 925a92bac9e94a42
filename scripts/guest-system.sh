# shellcheck shell=bash
# shellcheck disable=SC2154 # `repo` is set by lib.sh.
#
# What makes systems for guests of QEMU: a small Debian in memory, and a Debian kernel as it is shipped. To be sourced,
# after lib.sh. Packages come from wherever this machine gets its own.

# shellcheck source-path=SCRIPTDIR source=../bench/corpus/apt-sources.sh
source "$repo/bench/corpus/apt-sources.sh"

# The release of this machine, whose C library runs what is built here. Elsewhere, the one that guests were made with first.
release_of_this_machine() {
    # shellcheck source=/dev/null
    (. /etc/os-release && [[ $ID == debian ]] && printf '%s\n' "${VERSION_CODENAME-}") || printf 'bookworm\n'
}

# make_guest_system IMAGE_SH FOLDER NAME DOWNLOAD_MB: has FOLDER hold what guests boot, made anew only where IMAGE_SH or this
# file has changed since: `kernel`, `root` (what it unpacks into memory, with guest/start.sh beside IMAGE_SH as the first
# process) and `version`, the kernel's. NAME is what messages call the system. IMAGE_SH is the caller, which has set
# KERNEL_RELEASE, PACKAGES (separated by commas) and MODULES; if it has a function `finish_root`, that is called with the
# root's folder and FOLDER before the root is packed.
make_guest_system() {
    local image_sh=$1 folder name=$3 download_mb=$4
    folder=$(readlink -m "$2")
    if [[ -e $folder/complete ]] && cmp -s "$folder/complete" <(system_fingerprint "$image_sh"); then
        say "$name is in $folder"
    else
        mkdir -p "$folder"
        rm -f "$folder/complete"
        work=$(mktemp -d)
        # mmdebstrap's helpers run as other users and must reach the root.
        chmod 755 "$work"
        trap 'stop_progress; rm -rf --one-file-system "$work"' EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        say "making $name from this machine's mirrors (about $download_mb MB are fetched)"
        with_progress mmdebstrap "$folder/mmdebstrap.log" bootstrap_system ||
            die "cannot make $name" 'mmdebstrap failed, see above'
        fill_system_folder "$folder"
        system_fingerprint "$image_sh" >"$folder/complete"
        say "$name: kernel $(<"$folder/version"), $(human_bytes "$(stat --format=%s "$folder/base")") in memory"
    fi
    pack_with_init "$folder/base" "$(dirname "$image_sh")/guest/start.sh" >"$folder/root"
}

# What a system was made by.
system_fingerprint() {
    cat "$1" "$repo/scripts/guest-system.sh" | sha256sum
}

bootstrap_system() {
    bootstrap_root "$(release_of_this_machine)" "$work/root" "$PACKAGES"
    fetch_kernel "$KERNEL_RELEASE" "$work/fetched"
}

# fill_system_folder FOLDER: puts what was fetched into it: `kernel`, `version`, and `base`, the packed root.
fill_system_folder() {
    local folder=$1 version root=$work/root
    version=$(add_kernel "$work/fetched/kernel" "$root" "$MODULES")
    cp "$work/fetched/kernel/boot/vmlinuz-$version" "$folder/kernel"
    printf '%s\n' "$version" >"$folder/version"
    rm -rf "${root:?}"/boot/* "$root"/var/{cache,lib/apt/lists}/* "$root/etc/resolv.conf"
    if declare -F finish_root >/dev/null; then
        finish_root "$root" "$folder"
    fi
    pack "$root" >"$folder/base"
}

# bootstrap RELEASE FOLDER [FLAG...]: mmdebstrap with what all systems have in common.
bootstrap() {
    local release=$1 folder=$2 options=$work/apt.conf
    shift 2
    apt_transport_options >"$options"
    apt_sources "$release" | unshare --mount mmdebstrap --mode=root --format=directory --keyring="$DEBIAN_KEYRING" \
        --aptopt="$options" "$@" "$release" "$folder" -
}

# bootstrap_root RELEASE ROOT PACKAGES: makes a small Debian with packages, separated by commas.
bootstrap_root() {
    bootstrap "$1" "$2" --variant=minbase --include="$3" --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*'
}

# fetch_kernel RELEASE FOLDER: unpacks the release's kernel into FOLDER/kernel. Installing it would build a boot image, too.
fetch_kernel() {
    # The hook's $1 is the folder, as mmdebstrap calls it.
    # shellcheck disable=SC2016
    bootstrap "$1" "$2" --variant=custom --customize-hook='set -e
        export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
        name=$(apt-cache depends linux-image-amd64 | sed -n "s/^ *Depends: \(linux-image-[^ ]*\)$/\1/p" | head -n 1)
        cd "$1/tmp"
        apt-get download "$name"
        dpkg-deb --extract "$name"_*.deb kernel
        rm "$name"_*.deb
        mv kernel "$1/kernel"'
}

# add_kernel KERNEL ROOT MODULES: leaves in ROOT of the kernel that was unpacked at KERNEL the modules that are named, and
# those that they need. Prints the kernel's version; the kernel itself is KERNEL/boot/vmlinuz-VERSION then.
add_kernel() {
    local kernel=$1 root=$2 version module needed=$work/modules
    version=$(basename "$kernel"/boot/vmlinuz-*)
    version=${version#vmlinuz-}
    mkdir -p "$root/usr/lib/modules"
    mv "$kernel/lib/modules/$version" "$root/usr/lib/modules/"
    chroot "$root" depmod "$version"
    # shellcheck disable=SC2086 # A list of names.
    chroot "$root" modprobe --set-version "$version" --ignore-install --show-depends --all $3 |
        awk '$1 == "insmod" { print $2 }' | sort -u >"$needed"
    while read -r module; do
        mkdir -p "$work/kept${module%/*}"
        mv "$root$module" "$work/kept$module"
    done <"$needed"
    mv "$root/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} "$work/kept/lib/modules/$version/"
    rm -rf "${root:?}/lib/modules/$version"
    mv "$work/kept/lib/modules/$version" "$root/lib/modules/"
    chroot "$root" depmod "$version"
    printf '%s\n' "$version"
}

# pack FOLDER: prints what the kernel unpacks into memory. Not compressed: guests without hardware virtualisation unpack slowly.
pack() {
    (cd "$1" && find . -xdev -print0 | cpio --null --create --format=newc --quiet)
}

# pack_with_init BASE INIT: prints the packed BASE with the program INIT as the first process. INIT comes last, so that another
# one takes no new base: the kernel unpacks one archive after the other.
pack_with_init() {
    local added
    added=$(mktemp -d)
    install -m 755 "$2" "$added/init"
    cat "$1"
    (cd "$added" && cpio --create --format=newc --quiet <<<init)
    rm -r "$added"
}
