# `share watch` beside a guest that writes a little: it reads a share of what is written, not the whole image in each look
# limit: 180 s
needs mkfs.xfs mkfs.btrfs losetup python3

image_mib=96
write_bytes=4096

# Keeps an image open, and writes blocks of another file to random places of it; each line that it reads is one round.
cat >"$dir/guest.py" <<'END'
import os, random, sys
image = os.open(sys.argv[1], os.O_RDWR)
blocks = open(sys.argv[2], "rb").read()
size = os.fstat(image).st_size // 4096
draw = random.Random(5)
print("open", flush=True)
for _ in sys.stdin:
    for number in range(20):
        at = number % (len(blocks) // 4096) * 4096
        os.pwrite(image, blocks[at : at + 4096], draw.randrange(size) * 4096)
        os.fsync(image)
    print("written", flush=True)
END

# read_by PROCESS: bytes that it has read, wherever they were.
read_by() {
    awk '/^rchar:/ { print $2 }' "/proc/$1/io"
}

# told: how many bytes the watch says that it has shared.
told() {
    python3 -c 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
print(int(sum(line["shared_bytes"] for line in lines if line["event"] == "passed")))' "$dir/watch"
}

try_on() {
    local kind=$1 images=$dir/$1/images watch before after shared
    truncate -s 1G "$dir/$kind.raw"
    attach_loop "$dir/$kind.raw"
    "mkfs.$kind" -q "$loop"
    mkdir "$dir/$kind"
    mount "$loop" "$dir/$kind"
    mkdir "$images"
    head -c "${image_mib}M" /dev/urandom >"$images/guest.raw"
    head -c $((20 * write_bytes)) /dev/urandom >"$images/other.raw"
    sync -f "$images"
    sleep 1
    coproc GUEST { python3 "$dir/guest.py" "$images/guest.raw" "$images/other.raw"; }
    read -r -u "${GUEST[0]}" line
    "$ONEFOLD" share watch --json --interval 200ms --batch 0 "$images" >"$dir/watch" 2>"$dir/watch.err" &
    watch=$!
    # The first reading is of all of it.
    has_read_all() { (($(read_by "$watch") > (image_mib << 20))); }
    wait_until 60 has_read_all
    sleep 2
    before=$(read_by "$watch")
    for _ in 1 2 3; do
        echo >&"${GUEST[1]}"
        read -r -u "${GUEST[0]}" line
        sleep 1
    done
    sleep 1
    after=$(read_by "$watch")
    # 60 writes are 240 KiB; the rest is its own records, and /proc, in about thirty looks. To read the image once is twice as much.
    note "on $kind it read $((after - before)) bytes for $((60 * write_bytes)) written"
    (((after - before) < (image_mib << 19))) || fail "on $kind it read $((after - before)) bytes for $((60 * write_bytes)) written"
    shared=$(told)
    if [[ $kind == btrfs ]]; then
        ((shared >= 16 * write_bytes)) || fail "on $kind hardly anything of what was written is shared: $shared bytes"
    fi
    kill -TERM "$watch"
    wait "$watch" || { cat "$dir/watch.err"; fail "the watch ended with code $?"; }
    eval "exec ${GUEST[1]}>&-"
    wait "$GUEST_PID" || true
    umount "$dir/$kind"
}

try_on xfs
try_on btrfs
