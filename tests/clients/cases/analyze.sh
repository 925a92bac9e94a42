# What analyze predicts for real guest file systems is what a mounted pool uses and a naive counter counts; samples hold it
# limit: 120 s
needs mkfs.ext4 qemu-img
# Three disks: a system, the same grown and changed, and another file system with files of both, whose partition begins at
# sector 63. Any tree of real files will do.
for size in 300M 400M 300M; do
    number=$((${number:-0} + 1))
    mkdir -p "$dir/tree/bin" "$dir/tree/$number"
    find /usr/bin -maxdepth 1 -type f -size -2M -name "[a-${number}f-k]*" -exec cp -t "$dir/tree/bin" {} +
    find /usr/bin -maxdepth 1 -type f -size -300k -name 'p*' -exec cp -t "$dir/tree/$number" {} +
    truncate -s "$size" "$dir/$number.raw"
    mkfs.ext4 -q -F -d "$dir/tree" "$dir/$number.raw"
done
python3 - "$dir/3.raw" "$dir/odd.raw" <<'PYTHON'
import struct, sys

content = open(sys.argv[1], "rb").read()
table = bytearray(512)
table[446:462] = struct.pack("<BBHBBHII", 0, 0, 0, 0x83, 0, 0, 63, len(content) // 512)
table[510:] = b"\x55\xaa"
open(sys.argv[2], "wb").write(bytes(table) + bytes(62 * 512) + content)
PYTHON
qemu-img convert -f raw -O qcow2 "$dir/2.raw" "$dir/2.qcow2"

new_pool 2G
before=$(pool_number metadata_dynamic_bytes)
onefold analyze --json --quiet --report "$dir/report.html" "$dir/1.raw" "$dir/2.qcow2" "$dir/3.raw" "$dir/odd.raw" \
    >"$dir/found.json"
[[ $(head -c 15 "$dir/report.html") == '<!DOCTYPE html>' ]]
onefold pool import --quiet "$mnt" "$dir/1.raw" "$dir/2.qcow2" "$dir/3.raw" "$dir/odd.raw" >/dev/null
sync -f "$mnt/1.raw"
onefold pool stat --json "$mnt" >"$dir/stat.json"
"$repo/bench/corpus/count-blocks.py" --json "$dir"/{1,2,3,odd}.raw >"$dir/counted.json"
python3 - "$dir" "$before" <<'PYTHON'
import json, sys

folder, before = sys.argv[1], int(sys.argv[2])
found, stat, counted = (json.load(open(f"{folder}/{name}.json")) for name in ("found", "stat", "counted"))
pool, total = stat["pool"], found["total"]
assert total["distinct_bytes"] == counted["total"]["distinct"] * 4096, (total, counted["total"])
assert [image["new_bytes"] for image in found["images"]] == [image["new"] * 4096 for image in counted["images"]]
for name in ("apparent_bytes", "zero_bytes", "distinct_bytes", "saved_bytes"):
    assert total[name] == pool[name], (name, total[name], pool[name])
used = pool["distinct_bytes"] + pool["metadata_dynamic_bytes"] - before
predicted = total["distinct_bytes"] + found["ways"]["pool_map_bytes"]
assert abs(used - predicted) <= used * 0.005, (used, predicted)
print(f"note: predicted {predicted} bytes, used {used}: {100 * (predicted / used - 1):+.3f} %")
# The odd disk shares nearly nothing with its like until its partition is moved; then nearly all of it.
gained, whole = found["realignment"]["gained_bytes"], found["images"][3]["distinct_bytes"]
assert [part["start_bytes"] for part in found["realignment"]["misaligned"]] == [63 * 512]
assert gained > 0.9 * whole, (gained, whole)
PYTHON
# Samples are drawn by chance, and one in twenty may miss: of five, three must hold the true figures.
for run in 1 2 3 4 5; do
    onefold analyze --json --quiet --sample=20% "$dir/1.raw" "$dir/2.qcow2" "$dir/3.raw" "$dir/odd.raw" >"$dir/sampled.$run.json"
done
python3 - "$dir" <<'PYTHON'
import json, sys

folder = sys.argv[1]
truth = json.load(open(f"{folder}/found.json"))
held = 0
for run in range(1, 6):
    found = json.load(open(f"{folder}/sampled.{run}.json"))
    assert found["effort"]["read_bytes"] < 0.5 * truth["effort"]["read_bytes"], found["effort"]
    figures = [(found["total"][name], truth["total"][name]) for name in ("zero_bytes", "distinct_bytes", "saved_bytes")]
    figures += [(found["ways"][name], truth["ways"][name]) for name in ("pool_bytes", "linked_clone_bytes")]
    held += all(range["low"] <= exact <= range["high"] for range, exact in figures)
    distinct = found["total"]["distinct_bytes"]
    print(f"note: {found['sample']['read_share']:.1%} read, distinct {distinct['low']} to {distinct['high']},"
          f" truly {truth['total']['distinct_bytes']}")
assert held >= 3, held
PYTHON
unmount_and_check
