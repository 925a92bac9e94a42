#!/bin/bash
# Installs what is missing on a Debian machine: install-deps.sh [--list] GROUP...
#
#   build   a C compiler and a Rust toolchain that is new enough
#   test    the real clients that the test suite drives
#   suites  the public POSIX suites among them, which cargo builds
#   demo    what builds and boots the demo's disk images
#   bench   what the benchmarks measure with
#   bench-images  programs that archives are measured beside
#   bench-serve   programs that served images are measured beside
#   corpus  what builds all of the corpus's disk images
#   files   what has calls of the kernel fail
#   fuzz    what the fuzzing engine is built with
#   cluster what boots hosts with a cluster file system
#   kernel  what boots a guest with another kernel
#   s3      what runs an object store of one machine
#
# With --list it only prints what it would install. Packages come from the archives that apt is configured for; two
# programs of the tests are built by cargo, into the folder for build results. Says what it will install
# before it does; says nothing and returns at once where all of it is there. A program
# counts as there when it is in PATH, no matter which package put it there: an existing toolchain or QEMU
# is used, never replaced.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$here/lib.sh"

# Package lists older than this are fetched again before an installation.
readonly LISTS_MINUTES_MAX=1440
readonly GROUPS_KNOWN='build, test, suites, demo, bench, bench-images, bench-serve, corpus, files, fuzz, cluster, kernel and s3'

# Debian's newest Rust, made to build web browsers, has names of its own. It displaces
# an older `rustc` and `cargo` from Debian.
readonly RUST_PACKAGES=$'rustc-web\ncargo-web'

# One package a line: its groups, its name, and the program or file that proves it.
readonly PACKAGES="
build                           gcc                     cc
build                           libc6-dev               /usr/include/stdio.h
build                           make                    make
build                           pkg-config              pkg-config
build                           ca-certificates         /etc/ssl/certs/ca-certificates.crt
test,demo,bench                 fuse3                   fusermount3
test,demo,bench                 qemu-utils              qemu-img
test                            qemu-block-extra        /usr/share/doc/qemu-block-extra/copyright
test,demo,bench,cluster,kernel  qemu-system-x86         qemu-system-x86_64
test,demo,bench,corpus,s3       e2fsprogs               mke2fs
test,demo,bench                 jq                      jq
test,demo,bench,corpus,cluster,s3 python3               python3
test,bench                      fio                     fio
test,demo,bench,corpus          xfsprogs                mkfs.xfs
test,demo,bench,corpus          mount                   losetup
test,bench,corpus               btrfs-progs             mkfs.btrfs
test,bench                      duperemove              duperemove
bench                           linux-perf              perf
bench                           partclone               partclone.extfs
bench                           bonnie++                bonnie++
bench                           sleuthkit               fls
bench-images                    restic                  restic
bench-images                    borgbackup              borg
bench-images,bench-serve        casync                  casync
bench-images,bench-serve        zstd                    zstd
bench-serve                     udpcast                 udp-sender
bench-serve                     uftp                    uftp
bench-serve                     nginx-light             nginx
test                            procps                  ps
test                            rsync                   rsync
test                            git                     git
test                            sqlite3                 sqlite3
test                            acl                     setfacl
test                            attr                    setfattr
test                            fsverity                fsverity
test                            stress-ng               stress-ng
test,corpus                     lvm2                    lvcreate
test                            cryptsetup-bin          cryptsetup
test                            exfatprogs              mkfs.exfat
test                            f2fs-tools              mkfs.f2fs
test                            ocfs2-tools             mkfs.ocfs2
test                            squashfs-tools          mksquashfs
test                            erofs-utils             mkfs.erofs
test                            xorriso                 xorriso
test                            debsums                 debsums
test                            chromium                chromium
test                            fonts-dejavu-core       /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
test,files                      strace                  strace
fuzz                            g++                     c++
demo,bench,corpus,cluster,kernel mmdebstrap              mmdebstrap
test,demo,bench,corpus          fdisk                   sfdisk
test                            gdisk                   sgdisk
demo,bench,corpus,cluster,kernel debian-archive-keyring  /usr/share/keyrings/debian-archive-keyring.gpg
test,cluster,kernel             cpio                    cpio
test,demo,cluster,bench-serve   iproute2                ip
bench,corpus,cluster            openssh-client          ssh
corpus                          arch-test               arch-test
corpus                          binfmt-support          update-binfmts
test,corpus                     dosfstools              mkfs.vfat
test,corpus                     mtools                  mcopy
test,bench,corpus               ntfs-3g                 mkntfs
test                            minisign                minisign
test,demo,bench-serve           nftables                nft
test                            zsh                     zsh
test                            fish                    fish
s3                              ceph-mon                ceph-mon
s3                              ceph-mgr                ceph-mgr
s3                              ceph-osd                ceph-osd
s3                              radosgw                 radosgw
s3                              ceph-common             ceph
s3,bench-serve                  curl                    curl
corpus                          qemu-user-static        qemu-aarch64-static
"

# Programs that only cargo has, one a line: group, name, version. They are put into the folder for build results, so that
# nothing else of the machine changes.
readonly CARGO_PROGRAMS="
suites  fsx        0.3.2
suites  pjdfstest  0.2.2
"

# Prints `NAME@VERSION` of the groups' programs from cargo that are not there.
missing_programs() {
    local group name version wanted
    while read -r group name version; do
        for wanted in "$@"; do
            if [[ $group == "$wanted" ]] && ! grep -qsF "\"$name $version " "$programs/.crates.toml"; then
                printf '%s\n' "$name@$version"
            fi
        done
    done < <(awk NF <<<"$CARGO_PROGRAMS")
}

install_programs() {
    use_rust_toolchain || die 'cannot build what the tests need' 'there is no Rust that is new enough' \
        'scripts/install-deps.sh build installs it'
    say "building with cargo: $*"
    # Not optimised: they wait for the file system under test, and compile in a third of the time.
    CARGO_PROFILE_DEV_DEBUG=0 with_progress 'cargo install' "$log" \
        cargo install --debug --quiet --locked --root "$programs" --target-dir "$programs/build" "$@" ||
        die 'cannot build what the tests need' 'cargo install failed, see above'
    rm -rf "$programs/build"
}

# Prints the names of the groups' packages that are not there.
missing_packages() {
    local groups name proof group
    while read -r groups name proof; do
        for group in "$@"; do
            if [[ ,$groups, == *,$group,* ]] && ! is_there "$proof"; then
                printf '%s\n' "$name"
                break
            fi
        done
    done < <(awk NF <<<"$PACKAGES")
}

is_there() {
    case $1 in
    /*) [[ -e $1 ]] ;;
    *) has_command "$1" ;;
    esac
}

as_root() {
    if ((EUID == 0)); then
        "$@"
    elif has_command sudo; then
        sudo -- "$@"
    else
        die 'cannot install packages' 'not running as root, and there is no sudo' \
            'run the same command as root'
    fi
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get "$@"
}

update_lists() {
    say 'fetching the package lists'
    apt_get --quiet --quiet update >&2
}

# Whether there are package lists, and young ones.
lists_are_fresh() {
    [[ -n $(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' \
        -mmin "-$LISTS_MINUTES_MAX" -print -quit 2>/dev/null) ]]
}

# Ends the script where apt has no Rust that is new enough.
check_rust_candidate() {
    local candidate minor_min
    minor_min=$(rust_minor_min)
    # It conflicts with Debian's own package of rustup, which apt would then remove.
    if dpkg-query --show --showformat='${db:Status-Status}' rustup 2>/dev/null | grep -qx installed; then
        die "cannot install Rust 1.$minor_min" 'the package rustup is installed, with an older toolchain' \
            'run rustup update stable'
    fi
    candidate=$(LC_ALL=C apt-cache policy cargo-web | sed -n 's/^ *Candidate: //p')
    if [[ ! $candidate =~ ^1\.([0-9]+)\. ]] || ((BASH_REMATCH[1] < minor_min)); then
        die "cannot install Rust 1.$minor_min" \
            "the newest that apt offers is cargo-web ${candidate:-(none)}" \
            "add the release's security updates to apt, or install Rust with rustup"
    fi
}

announce() {
    say "installing from apt: $*"
    # apt's own forecast of the download and of the disk space.
    apt_get --assume-no --no-install-recommends install "$@" 2>/dev/null |
        sed -n -e 's/^Need to get/  to download:/p' \
            -e 's/^After this operation, \(.*\) of additional disk.*/  on disk: \1/p' >&2 || true
}

install_packages() {
    announce "$@"
    # The output is for the case of failure; apt says little that a user needs.
    with_progress 'apt-get install' "$log" \
        apt_get --assume-yes --no-install-recommends install "$@" ||
        die 'cannot install the packages' 'apt-get failed, see above'
}

main() {
    (($# > 0)) || die_usage 'no group is named' "the groups are $GROUPS_KNOWN"
    local group list_only='' wants_rust='' missing programs_missing
    readonly programs=${CARGO_TARGET_DIR:-$repo/target}/tools
    if [[ $1 == --list ]]; then
        list_only=yes
        shift
    fi
    for group in "$@"; do
        case $group in
        build) use_rust_toolchain || wants_rust=yes ;;
        test | suites | demo | bench | bench-images | bench-serve | corpus | files | fuzz | cluster | kernel | s3) ;;
        *) die_usage "there is no group \`$group\`" "the groups are $GROUPS_KNOWN" ;;
        esac
    done
    missing=$(missing_packages "$@")
    programs_missing=$(missing_programs "$@")
    if [[ -n $list_only ]]; then
        printf '%s' "${missing:+$missing$'\n'}${wants_rust:+$RUST_PACKAGES$'\n'}${programs_missing:+$programs_missing$'\n'}"
        return
    fi
    [[ -n $missing || -n $wants_rust || -n $programs_missing ]] || return 0
    log=$(mktemp)
    trap 'stop_progress; rm -f "$log"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    if [[ -n $missing || -n $wants_rust ]]; then
        install_from_apt "$missing" "$wants_rust"
    fi
    if [[ -n $programs_missing ]]; then
        # Names hold no blanks.
        # shellcheck disable=SC2086
        install_programs $programs_missing
    fi
}

# install_from_apt PACKAGES WANTS_RUST
install_from_apt() {
    local missing=$1 wants_rust=$2
    has_command apt-get || die 'cannot install what is missing' "there is no apt-get; missing: ${missing//$'\n'/ }" \
        'install the missing programs by the means of this system'
    lists_are_fresh || update_lists
    if [[ -n $wants_rust ]]; then
        check_rust_candidate
        missing+=$'\n'$RUST_PACKAGES
    fi
    # Package names hold no blanks.
    # shellcheck disable=SC2086
    install_packages $missing
}

main "$@"
