# A second QEMU on one image is refused by QEMU's own lock
needs qemu-system-x86_64 qemu-img
new_pool 1G
truncate -s 256M "$mnt/vm.raw"

# qemu NAME: a machine that stays at its first instruction, with its drive open.
qemu() {
    # Its number is noted, for it leaves the case's process group.
    qemu-system-x86_64 -S -display none -nodefaults -machine accel=tcg -m 64 -pidfile "$dir/$1.pid" -daemonize \
        -drive "file=$mnt/vm.raw,format=raw,cache=none,if=virtio" &&
        cat "$dir/$1.pid" >>"$dir/daemons"
}

end_qemu() {
    kill "$(<"$dir/$1.pid")"
    wait_until 10 test ! -e "$dir/$1.pid"
}

qemu first
refused 1 'Failed to get .*lock' qemu second
refused 1 'Failed to get .*lock' qemu-img resize -f raw "$mnt/vm.raw" 300M

end_qemu first
qemu first
end_qemu first
unmount_and_check
