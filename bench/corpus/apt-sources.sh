# shellcheck shell=bash
# The machine's own Debian mirrors, applied to another release. To be sourced.
#
# No mirror is named here: wherever this machine gets its packages, the images
# get theirs from the same place.

readonly DEBIAN_KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# The first mirror in apt's configuration that serves the suite with this ending
# ("" is the release itself, "-security" its security updates); empty if none does.
apt_mirror() {
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME-}")
    # A third party's archive has suites and components of other names. The dollars
    # are apt's own.
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v suite="$codename$1" '
            $2 == suite && $3 == "main" && $1 !~ /^cdrom:/ && !found { print $1; found = 1 }'
}

# apt_sources RELEASE: prints the release's sources, one `deb` line each, its own archive first.
apt_sources() {
    local release=$1 archive security signed="[signed-by=$DEBIAN_KEYRING]"
    archive=$(apt_mirror '')
    [[ -n $archive ]] || die "cannot find a Debian mirror for $release" \
        "apt's configuration names no archive with this machine's release" \
        'the images take the mirror from /etc/apt/sources.list.d; it must name a Debian archive'
    printf 'deb %s %s %s main\n' "$signed" "$archive" "$release"
    printf 'deb %s %s %s-updates main\n' "$signed" "$archive" "$release"
    security=$(apt_mirror -security)
    [[ -z $security ]] || printf 'deb %s %s %s-security main\n' "$signed" "$security" "$release"
}

# Prints how this machine's apt reaches its mirrors (proxies, certificates, checks
# of dates), in the syntax of apt.conf, for use while an image is built.
apt_transport_options() {
    apt-config dump | grep -E '^Acquire::(http|https|ftp|Retries|Check-)' || true
}
