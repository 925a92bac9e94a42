# The guide's commands for pools run as they stand there, as root and as an ordinary user
# limit: 120 s
needs setpriv fusermount3 unshare setfattr getfattr qemu-img python3 useradd
[[ -n ${in_namespace-} ]] || run_in_namespace
# shellcheck source=../guide.sh
source "$repo/tests/clients/guide.sh"
private_host

# What a reader of the first session has: some images, one of which is the base of others.
lay_out() {
    rm -rf /srv/* /mnt/*
    make_image /srv/base.raw 8 base
    make_image /srv/db.raw 8 db
    chmod 755 /srv /mnt
    cd /srv
}

# What a reader of the other pages has besides: a pool in use, and images of other formats.
lay_out_pool() {
    lay_out
    mkdir /srv/images /srv/backup /mnt/images
    qemu-img convert -O qcow2 /srv/base.raw /srv/debian.qcow2
    qemu-img convert -O vmdk /srv/db.raw /srv/windows.vmdk
    mv /srv/db.raw /srv/disk.raw
    cp /srv/disk.raw /srv/images/more.raw
    give_user "$@"
    "${as[@]}" sh -ec 'onefold pool create --quiet --size 1G images.pool
        onefold pool mount --memory 256M images.pool /mnt/images
        cp base.raw /mnt/images
        for number in 1 2 3; do cp base.raw /mnt/images/vm$number.raw; done
        mkdir /mnt/images/backup' >/dev/null
}

end_mounts() {
    cd "$dir"
    umount /mnt/images
}

as=()
lay_out
follow README.md
lay_out
follow docs/guide/README.md
end_mounts
lay_out_pool
follow docs/guide/images.md
end_mounts
lay_out_pool
useradd --no-create-home tenant
follow docs/guide/permissions.md
end_mounts

as=(as_guide_user)
lay_out
give_user /srv /mnt
follow README.md as_guide_user
lay_out
give_user /srv /mnt
follow docs/guide/README.md as_guide_user
end_mounts
lay_out_pool /srv /mnt
follow docs/guide/images.md as_guide_user
end_mounts
