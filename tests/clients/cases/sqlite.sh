# sqlite keeps its databases sound with several writers, with rollback journal, write-ahead log and mapped memory
needs sqlite3
new_pool 1G

# write_rows DATABASE WRITER
write_rows() {
    local row
    for row in {1..60}; do
        printf 'INSERT INTO t(writer, row, data) VALUES (%d, %d, hex(randomblob(400)));\n' "$2" "$row"
    done | sqlite3 -bail -cmd '.timeout 20000' -cmd "PRAGMA synchronous=$3" "$1"
}

# try_mode NAME JOURNAL MMAP_BYTES SYNCHRONOUS
try_mode() {
    local database=$mnt/$1.db writer writers=()
    sqlite3 -bail "$database" "PRAGMA journal_mode=$2; PRAGMA mmap_size=$3;
        CREATE TABLE t(writer, row, data, PRIMARY KEY (writer, row));" >"$dir/mode"
    grep -qix "$2" "$dir/mode" || fail "no journal mode $2: $(<"$dir/mode")"
    for writer in 1 2 3; do
        write_rows "$database" "$writer" "$4" &
        writers+=($!)
    done
    for writer in "${writers[@]}"; do
        wait "$writer"
    done
    is_sound "$database"
}

is_sound() {
    [[ $(sqlite3 "$1" 'PRAGMA integrity_check') == ok ]]
    [[ $(sqlite3 "$1" 'SELECT count(*), count(DISTINCT writer) FROM t') == '180|3' ]]
}

try_mode rollback delete 0 full
try_mode log wal 0 normal
try_mode mapped wal 268435456 full

remount_pool
for database in rollback log mapped; do
    is_sound "$mnt/$database.db"
done
unmount_and_check
