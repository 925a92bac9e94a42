# Two real images take no more than their distinct blocks and two per cent
# limit: 180 s
images=("$repo"/bench/corpus/cache/*.raw)
((${#images[@]} >= 2)) || skip "bench/corpus/cache holds no two images: \`make demo\` makes them"
images=("${images[@]:0:2}")
new_pool 8G
for image in "${images[@]}"; do
    cp --sparse=always "$image" "$mnt/"
done
for image in "${images[@]}"; do
    cmp "$image" "$mnt/${image##*/}"
done
sync -f "$mnt"
"$ONEFOLD" pool stat --json "$mnt" >"$dir/stat.json"
python3 "$repo/bench/corpus/count-blocks.py" --json "${images[@]}" >"$dir/counted.json"
python3 - "$dir/stat.json" "$dir/counted.json" <<'PYTHON'
import json, sys

stat, counted = (json.load(open(path)) for path in sys.argv[1:])
stat = stat["pool"]
naive = counted["total"]["distinct"] * counted["block_bytes"]
stored = stat["distinct_bytes"] + stat["metadata_dynamic_bytes"]
print(f"note: {stored} bytes stored, maps and names included, for {naive} distinct: {100 * stored / naive - 100:+.2f} %")
assert stat["distinct_bytes"] >= naive, "less than there is"
assert stored <= naive * 1.02, "more than two per cent over the count"
assert stat["apparent_bytes"] == stat["zero_bytes"] + stat["distinct_bytes"] + stat["saved_bytes"], stat
PYTHON
unmount_and_check
