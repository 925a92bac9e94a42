# shellcheck shell=bash
# Makes a system with usual and unusual packages in `root`, and lists them.
package() { # NAME VERSION ARCHITECTURE EXTRA-FIELDS: packs the folder `build`
    mkdir -p build/DEBIAN
    printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: x <x@example.org>\nDescription: x\n%s' \
        "$1" "$2" "$3" "$4" >build/DEBIAN/control
    (cd build && find . -path ./DEBIAN -prune -o -path ./etc -prune -o -type f -printf '%P\0' |
        xargs -0r md5sum) >md5sums
    mv md5sums build/DEBIAN
    if [[ -d build/etc ]]; then (cd build && find etc -type f -printf '/%p\n') >build/DEBIAN/conffiles; fi
    dpkg-deb --root-owner-group --build build "$1_$2_$3.deb" >/dev/null
    rm -r build
}
dpkg_here() { dpkg --root="$PWD/root" --log="$PWD/root/var/log/dpkg.log" --force-all "$@" >/dev/null 2>&1; }
architecture=$(dpkg --print-architecture)

mkdir -p root/var/lib/dpkg/{info,updates,parts} root/var/log root/usr/{bin,lib} root/etc/dpkg/dpkg.cfg.d
touch root/var/lib/dpkg/{status,available}
# A merged system: packages list paths that lead through these links.
ln -s usr/bin root/bin
ln -s usr/lib root/lib
echo 'path-exclude=/usr/share/doc/*' >root/etc/dpkg/dpkg.cfg.d/small
echo 'path-include=/usr/share/doc/*/copyright' >>root/etc/dpkg/dpkg.cfg.d/small

mkdir -p build/{bin,etc/tool.d,usr/share/doc/tool}
echo tool >build/bin/tool; echo gone >build/bin/gone; echo other >build/bin/changed
ln -s tool build/bin/link
echo setting >build/etc/tool.conf; echo more >'build/etc/tool.d/with blank'
echo text >build/usr/share/doc/tool/README; echo licence >build/usr/share/doc/tool/copyright
package tool 1 all ''
mkdir -p build/lib/modules/6.1; echo module >build/lib/modules/6.1/a.ko
package linux-image 6.1 "$architecture" ''
mkdir -p build/usr/lib/multi; echo library >build/usr/lib/multi/libx.so
package libx 1:2.0-1 "$architecture" $'Multi-Arch: same\n'
mkdir -p build/bin; echo new-tool >build/bin/tool
package better-tool 2 all ''
mkdir -p build/{bin,etc}; echo removed >build/bin/removed; echo left >build/etc/removed.conf
package removed 1 all ''
mkdir -p build/{bin,etc}; echo purged >build/bin/purged; echo x >build/etc/purged.conf
package purged 1 all ''

dpkg_here -i linux-image_*.deb libx_*.deb removed_*.deb purged_*.deb
dpkg_here --path-exclude='/usr/share/doc/*' --path-include='/usr/share/doc/*/copyright' -i tool_*.deb
dpkg-divert --root "$PWD/root" --package better-tool --divert /bin/tool.old --rename /bin/tool >/dev/null
dpkg_here -i better-tool_*.deb
dpkg_here --remove removed
dpkg_here --purge purged
mkdir -p build/usr/lib/multi; echo 'library, newer' >build/usr/lib/multi/libx.so
package libx 1:2.0-2 "$architecture" $'Multi-Arch: same\n'
gzip -n <root/var/log/dpkg.log >root/var/log/dpkg.log.2.gz
rm root/var/log/dpkg.log
dpkg_here -i libx_*2.0-2_*.deb

rm root/bin/gone
echo changed >root/bin/changed
echo changed >root/etc/tool.conf
chmod 755 root
dpkg-query --admindir=root/var/lib/dpkg --show --showformat='${Package} ${Version} ${Architecture} ${db:Status-Status}\n'
