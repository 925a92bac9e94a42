# SIGTERM makes durable what programs have only changed in shared mappings, also right after they have ended
# limit: 120 s
new_pool 2G

# Changes MIB mebibytes of each of FILES files by mappings: hold FILES MIB.
hold() {
    coproc HOLDER { exec python3 "$tools/held_back.py" hold "$mnt" "$1" "$2"; }
    holder=$HOLDER_PID
    read -r -t 60 <&"${HOLDER[0]}" || fail "the files were not changed"
}

# Ends the program as soon as the kernel lets it.
end_holder() {
    local input=${HOLDER[1]}
    exec {input}>&-
}

verify() {
    wait "$daemon" || fail "the daemon ended with code $?"
    mount_pool
    python3 "$tools/held_back.py" verify "$mnt" "$1" "$2"
}

hold 20 1
kill -TERM "$daemon"
timeout 30 tail --pid="$daemon" -f /dev/null
end_holder
wait "$holder" || true
verify 20 1

# The kernel has begun to write all of it, and nobody receives that until the daemon is told to stop. Before Linux 6.16 the
# program has ended by then; from there on it ends when the daemon has received all.
for round in 1 2 3; do
    hold 2 8
    kill -STOP "$daemon"
    end_holder
    sleep 1
    kill -TERM "$daemon"
    kill -CONT "$daemon"
    wait "$holder" || true
    verify 2 8
done
unmount_and_check --data
