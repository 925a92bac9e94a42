# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets `dir` and `tools`.
#
# What cases that follow the guide share, to be sourced by them in a mount namespace of their own.
#
# A case calls `private_host`, lays out what a page's reader has, and then has `follow PAGE` run the commands of the
# page as they stand there. Folders such as /srv and /mnt are the case's own.

# private_host: gives the case its own /srv, /mnt, /etc, /run, /dev and /var/lib. All of them are empty but for /etc,
# which is a copy, and /dev, which has what programs need.
private_host() {
    local folder device
    let_users_in
    mkdir "$dir/host"
    mount -t tmpfs -o mode=755 onefold-guide "$dir/host"
    mkdir -p "$dir"/host/{srv,mnt,etc,run,dev,var/lib,bin,home}
    cp -a /etc/. "$dir/host/etc"
    mkdir "$dir"/host/dev/{pts,shm} "$dir/host/run/user"
    for device in null zero full random urandom tty ptmx fd stdin stdout stderr fuse loop-control; do
        [[ ! -e /dev/$device ]] || cp -a "/dev/$device" "$dir/host/dev/"
    done
    chmod 666 "$dir/host/dev/fuse"
    for device in {0..63}; do
        mknod "$dir/host/dev/loop$device" b 7 "$device"
    done
    for folder in srv mnt etc run dev var/lib; do
        mount --bind "$dir/host/$folder" "/$folder"
    done
    cp "$ONEFOLD" "$dir/host/bin/onefold"
    chmod 755 "$dir" "$dir/host/bin/onefold"
    export PATH=$dir/host/bin:$PATH
}

# attach_disk NAME BYTES: an empty disk that is called /dev/NAME, and is the ordinary user's as well.
attach_disk() {
    truncate -s "$2" "$dir/${1//\//-}"
    attach_loop "$dir/${1//\//-}"
    mkdir -p "$(dirname "/dev/$1")"
    cp -a "$loop" "/dev/$1"
    chmod 666 "/dev/$1"
}

# debian_tree FOLDER SEED: the tree of a Debian system with packages that the guide names.
debian_tree() {
    local info=$1/var/lib/dpkg/info
    make_tree "$1" "$2"
    rm "$info"/big.*
    sed -i '/^Package: big$/,/^$/d' "$1/var/lib/dpkg/status"
    mv "$info/tool-0.list" "$info/nginx.list"
    mv "$info/tool-0.md5sums" "$info/nginx.md5sums"
    sed -i 's/^Package: tool-0$/Package: nginx/' "$1/var/lib/dpkg/status"
}

# debian_image IMAGE FOLDER [BYTES]: an image of the tree.
debian_image() {
    truncate -s "${3:-32M}" "$1"
    mke2fs -q -F -t ext4 -b 4096 -d "$2" "$1"
}

# give_user PATH...: the ordinary user owns these from now on.
give_user() {
    (($# == 0)) || chown -R 65534:65534 "$@"
}

# follow PAGE [COMMAND...]: runs the page's commands in the current folder, as root or by COMMAND (`as_guide_user`).
follow() {
    local page=$1
    shift
    "$@" bash "$tools/guide_session.sh" "$repo/$page"
}

# as_guide_user COMMAND...: as an ordinary user with a home and a folder for what runs.
as_guide_user() {
    mkdir -p /run/user/65534
    chown 65534:65534 /run/user/65534 "$dir/host/home"
    chmod 700 /run/user/65534
    as_user env HOME="$dir/host/home" XDG_RUNTIME_DIR=/run/user/65534 USER=nobody "$@"
}

# Fails unless a case follows each page that has commands.
while read -r page; do
    grep -qs "^follow $page" "$repo"/tests/clients/cases/*.sh || fail "no case follows $page"
done < <(python3 -IS "$tools/guide_blocks.py" --pages "$repo")
