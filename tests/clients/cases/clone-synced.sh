# `pool clone` calls fdatasync of the source before it asks for the clone: only that waits for mappings on all kernels
needs strace
strace -o /dev/null true || skip "strace cannot trace here"
new_pool 1G
make_image "$mnt/source.raw" 8 3

strace --follow-forks --decode-fds=path --trace=fdatasync,sendmsg --output="$dir/calls" \
    "$ONEFOLD" pool clone --quiet "$mnt" source.raw clone.raw
cat "$dir/calls"
# The request carries the open files of source and target.
awk '/fdatasync\([0-9]+<[^>]*\/source\.raw>\) += 0/ { is_synced = 1 }
    /SCM_RIGHTS/ { is_asked = 1; if (!is_synced) is_early = 1 }
    END { exit !(is_synced && is_asked && !is_early) }' "$dir/calls" ||
    fail "the clone was asked for before the source was synced"
cmp "$mnt/source.raw" "$mnt/clone.raw"
unmount_and_check --data
