# fio finds what it wrote: buffered, O_DIRECT, mmap, io_uring and libaio, random and mixed, also after a remount
# limit: 120 s
needs fio
new_pool 4G

# One line per way of writing. Every block carries a checksum and its own offset.
cat >"$dir/jobs.fio" <<JOBS
[global]
directory=$mnt
size=24m
verify=crc32c
verify_fatal=1
verify_state_save=0
randseed=11
do_verify=1
verify_only=\${VERIFY_ONLY}

[buffered]
ioengine=psync
rw=randwrite
bs=4k
fsync=256

[unaligned]
ioengine=psync
rw=randwrite
bsrange=512-40k

[direct]
ioengine=psync
direct=1
rw=randwrite
bs=4k
numjobs=2

[mapped]
ioengine=mmap
rw=randwrite
bs=4k
fsync=512

[uring]
ioengine=io_uring
direct=1
iodepth=16
rw=randwrite
bs=16k

[aio]
ioengine=libaio
direct=1
iodepth=16
rw=write
bs=1m

[mixed]
ioengine=libaio
direct=1
iodepth=8
rw=randrw
bs=8k

[repeated]
ioengine=io_uring
iodepth=4
direct=1
rw=randwrite
bs=64k
fdatasync=32
dedupe_percentage=50
JOBS

run_fio() {
    VERIFY_ONLY=$1 fio --output-format=terse --terse-version=3 --max-jobs=16 "$dir/jobs.fio" >"$dir/fio.out" 2>&1 ||
        { cat "$dir/fio.out"; fail "fio found an error (verify only: $1)"; }
}

run_fio 0
remount_pool
run_fio 1
unmount_and_check --data
