# fsx: random writes, mappings, holes, copies, truncates and reopenings of a file always read as they should
# limit: 180 s
needs fsx
new_pool 1G
cat >"$dir/fsx.toml" <<'END'
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 2
read = 10
write = 10
mapread = 8
mapwrite = 8
invalidate = 1
truncate = 4
fsync = 1
fdatasync = 1
posix_fallocate = 3
punch_hole = 4
sendfile = 3
posix_fadvise = 2
copy_file_range = 5
END
# Two files at once in one pool, with operations that do and do not end at blocks. Aligned, fsx asks for allocations of
# nothing, which must fail.
sed -e 's/^max = .*/max = 65536\nalign = 4096/' -e '/^posix_fallocate/d' "$dir/fsx.toml" >"$dir/aligned.toml"
operations=${FSX_OPERATIONS:-2000}
seeds=${FSX_SEEDS:-1}
first=${POSIX_SEED:-1}
for ((seed = first; seed < first + seeds; seed++)); do
    fsx -q -f "$dir/fsx.toml" -N "$operations" -S "$seed" -P "$dir" "$mnt/any" &
    other=$!
    fsx -q -f "$dir/aligned.toml" -N "$operations" -S "$((seed + 1000))" -P "$dir" "$mnt/aligned"
    wait "$other"
done
note "fsx: $((2 * seeds * operations)) operations"
unmount_and_check --data
