# A pool exported by an NFS server in user space is listed and read, also after pool and server were started anew
# limit: 90 s
needs ganesha.nfsd nfs-cat nfs-ls
new_pool 512M
make_image "$dir/image" 8 1
# A port that nobody else is likely to have; the server listens to this machine only.
port=$((20000 + $$ % 20000))
cat >"$dir/ganesha.conf" <<END
NFS_CORE_PARAM { Protocols = 4; NFS_Port = $port; Bind_addr = 127.0.0.1; Enable_NLM = false; Enable_RQUOTA = false; }
NFSv4 { Graceless = true; RecoveryRoot = $dir/recovery; Minor_Versions = 0; }
EXPORT {
    Export_Id = 1; Path = $mnt; Pseudo = /pool; Filesystem_Id = 1.1;
    Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 4; FSAL { Name = VFS; }
}
END
mkdir "$dir/recovery"

at() {
    printf 'nfs://127.0.0.1/pool/%s?version=4&nfsport=%s' "$1" "$port"
}

serves() {
    timeout 5 nfs-ls "$(at '')" >/dev/null 2>&1
}

start_server() {
    ganesha.nfsd -F -f "$dir/ganesha.conf" -L "$dir/ganesha.log" -p "$dir/ganesha.pid" >/dev/null 2>&1 &
    server=$!
    wait_until 30 serves
}

# Read only: this client can't write over NFS 4 on any file system.
verify() {
    start_server
    timeout 30 nfs-cat "$(at image)" | cmp - "$dir/image"
    [[ $(timeout 10 nfs-cat "$(at one/two/file)") == content ]]
    (($(timeout 10 nfs-ls "$(at many)" | wc -l) == 500)) || fail "not all entries are listed"
    kill "$server"
    wait "$server" 2>/dev/null || true
}

cp "$dir/image" "$mnt/image"
mkdir -p "$mnt/one/two" "$mnt/many"
echo content >"$mnt/one/two/file"
touch "$mnt"/many/{1..500}
verify
remount_pool
verify
unmount_and_check --data
