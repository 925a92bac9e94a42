# shellcheck shell=bash
# Makes files of all kinds in the current folder. $1 is `mounted` where the folder is on the file system under test.
printf x >one
: >empty
for bytes in 59 60 61 120 160 1023 1024 1025 4095 4096 4097 65535 65537 300000; do
    head -c "$bytes" /dev/urandom >"bytes-$bytes"
done
truncate -s 5G sparse
printf 'in the middle' | dd of=sparse bs=1 seek=3000000000 conv=notrunc status=none
printf 'at the end' | dd of=sparse bs=1 seek=5368709000 conv=notrunc status=none
python3 - <<'END'
import os, socket
with open("pieces", "wb") as file:
    for piece in range(1200):
        os.pwrite(file.fileno(), b"piece %d" % piece, piece * 131072)
socket.socket(socket.AF_UNIX).bind("socket")
END
deep=.
for level in $(seq 12); do
    deep=$deep/a-folder-with-a-rather-long-name-$level
    mkdir "$deep"
    echo "$level" >"$deep/file"
done
printf 'odd' >$'new\nline'
printf 'odd' >$'\e[31mred'
printf 'odd' >'ünï — cöde'
printf 'odd' >"$(printf 'n%.0s' $(seq 255))"
mkdir many few gone
(cd many && seq -f 'a name in a directory of many %g' 1500 | xargs -d '\n' touch)
touch few/1 few/2 few/3
touch gone/$(seq -s ' gone/' 100) && rm -r gone
ln one hard
ln -s one fast
for length in 58 59 60 61 300; do
    ln -s "$(printf 't%.0s' $(seq "$length"))" "link-$length"
done
mkfifo fifo
mknod character c 1 3
mknod block b 259 70000
chmod 4711 one && chown 70000:100000 one
touch -d '1901-12-14 00:00:00.123456789 UTC' early 2>/dev/null || touch early
touch -d '2100-01-01 00:00:00.987654321 UTC' late 2>/dev/null || touch late
if [ "$1" = mounted ]; then
    setfattr -n user.short -v value few/1
    setfattr -n trusted.longer -v "$(printf 'v%.0s' $(seq 300))" few/1
    setfattr -n user.empty few/1
    setfattr -n user.own-block -v "$(printf 'w%.0s' $(seq 900))" few/2 || :
    setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 few/2
    setfacl -m u:1234:r,g:77:rwx few/3
    setfacl -d -m u:4321:rx few
    fallocate -l 1M reserved 2>/dev/null || :
    fallocate -n -l 1M past-the-end 2>/dev/null || :
    printf 'at the beginning' | dd of=past-the-end bs=1 conv=notrunc status=none
fi
