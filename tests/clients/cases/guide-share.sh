# The guide's commands for sharing run as they stand there, as root and as an ordinary user
# limit: 120 s
needs setpriv unshare losetup mkfs.xfs mke2fs debugfs dpkg-deb python3
[[ -n ${in_namespace-} ]] || run_in_namespace
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
# shellcheck source=../guide.sh
source "$repo/tests/clients/guide.sh"
private_host

debian_tree "$dir/template" 1
debian_image "$dir/template.raw" "$dir/template"
debian_tree "$dir/web" 2
debian_image "$dir/web.raw" "$dir/web"
mkdir -p "$dir"/deb/{DEBIAN,opt}
head -c 300000 /dev/urandom >"$dir/deb/opt/office"
printf 'Package: libreoffice-core\nVersion: 7\nArchitecture: all\nMaintainer: nobody\nDescription: office\n' \
    >"$dir/deb/DEBIAN/control"
dpkg-deb --root-owner-group --build "$dir/deb" "$dir/libreoffice-core.deb" >/dev/null

# What the guide's machines install: install-package IMAGE.
package=$dir/package
mkdir "$package"
printf '\nPackage: office\nStatus: install ok installed\nArchitecture: amd64\nVersion: 7\n' |
    cat "$dir/template/var/lib/dpkg/status" - >"$package/status"
for number in {1..8}; do
    head -c 100000 /dev/urandom >"$package/office-$number"
    printf '/usr/lib/office-%s\n' "$number" >>"$package/office.list"
    printf 'cd /usr/lib\nwrite %s office-%s\n' "$package/office-$number" "$number"
done >"$package/commands"
(cd "$package" && md5sum office-[1-8] | sed 's|  |  usr/lib/|' >office.md5sums)
cat >>"$package/commands" <<COMMANDS
cd /var/lib/dpkg/info
write $package/office.list office.list
write $package/office.md5sums office.md5sums
cd /var/lib/dpkg
rm status
write $package/status status
COMMANDS
printf '#!/bin/sh\ndebugfs -w -f %q "$1" >/dev/null 2>&1\n' "$package/commands" >"$dir/host/bin/install-package"
chmod -R a+rX "$package"
chmod 755 "$dir/host/bin/install-package"

# forty_share: fails unless the volume of the forty clones has what they installed, and the last one shares it.
forty_share() {
    onefold share common ls /srv/forty | grep -q office || fail "the volume of the forty clones has no package of theirs"
    # The page's watch was ended at some moment, perhaps in the middle of a pass.
    onefold share files --common --quiet /srv/forty
    onefold share files --common --json --quiet --full /srv/forty >"$dir/forty"
    (($(number shared.now_bytes <"$dir/forty") == 0)) || fail "the forty clones and the next one have more to share: $(cat "$dir/forty")"
    (($(number examined.images <"$dir/forty") == 41)) || fail "not all of the forty clones and the next one are there"
}

truncate -s 1G "$dir/xfs.raw"
attach_loop "$dir/xfs.raw"

# What a reader of these pages has: XFS with images of machines. The ordinary user owns the paths that are given.
lay_out() {
    cd "$dir"
    ! mountpoint -q /mnt || umount /mnt
    [[ ! -d /srv/vm ]] || umount /srv
    mkfs.xfs -q -f "$loop"
    mount "$loop" /srv
    mkdir -p /srv/vm/secret /srv/vm/tenant-7
    for name in template web database secret/harmless; do
        cp --reflink=never "$dir/web.raw" "/srv/vm/$name.raw"
    done
    cp "$dir/template.raw" /srv/vm/template.raw
    cp "$dir/template.raw" /srv/template.raw
    cp "$dir/libreoffice-core.deb" /srv/vm
    give_user "$@"
    cd /srv/vm
}

lay_out
follow docs/guide/share.md
lay_out
follow docs/guide/files.md
forty_share
lay_out
mkdir -p /var/lib/libvirt/images /srv/libvirt
mount --bind /srv/libvirt /var/lib/libvirt/images
follow docs/guide/tenants.md
# A run reads the settings that the page shows.
onefold share run --quiet /srv/vm
umount /var/lib/libvirt/images

lay_out /srv
follow docs/guide/share.md as_guide_user
lay_out /srv
follow docs/guide/files.md as_guide_user
as_guide_user "$(command -v onefold)" share common ls /srv/forty | grep -q office || fail "a user's clones share no package"
