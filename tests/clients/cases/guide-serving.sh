# The guide's lab: its commands, as they stand there, install sixteen machines at once from one server
# limit: 120 s
needs unshare ip nsenter mke2fs qemu-img python3
[[ -n ${in_namespace-} ]] || run_in_namespace
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
# shellcheck source=../guide.sh
source "$repo/tests/clients/guide.sh"
private_host
unshare --net ip link add br0 type bridge mcast_snooping 0 || skip "this machine makes no bridge"
unshare --net ip link add a0 type veth peer name b0 || skip "this machine makes no veth"

# What a reader of the page has: an image.
debian_tree "$dir/web" 1
debian_image "$dir/web.raw" "$dir/web"
qemu-img convert -O qcow2 "$dir/web.raw" /srv/web.qcow2
cd /srv
follow docs/guide/installing-many.md
