# `share watch` on a file system that does not answer says so, gives its locks up to others at once, ends with a failure, loses nothing
# limit: 60 s
needs mkfs.xfs losetup fsfreeze python3

truncate -s 600M "$dir/xfs.raw"
attach_loop "$dir/xfs.raw"
mkfs.xfs -q "$loop"
mkdir "$dir/xfs"
mount "$loop" "$dir/xfs"
images=$dir/xfs/images
mkdir "$images"
head -c 32M /dev/urandom >"$images/one.raw"
cp --reflink=never "$images/one.raw" "$images/two.raw"
sync -f "$images"
(cd "$images" && sha256sum ./*.raw) >"$dir/sums"
# The watch keeps the lock of an image that is open here, so that it has one whenever the file system is frozen.
exec 8<>"$images/two.raw"

# The limit keeps it at work until the file system is frozen.
"$ONEFOLD" share watch --interval 200ms --batch 0 --max-hang 3s --io-limit 4M "$images" >"$dir/out" 2>"$dir/err" 8>&- &
watch=$!
# Another process tries them. It must not hang, whatever the file system does.
locks_held() {
    timeout --signal=KILL 10 "$tools/locks_held.py" "$dir/xfs/.onefold/locks"
}
keeps_an_image() {
    [[ -e $dir/xfs/.onefold/identity ]] && locks_held 2>/dev/null | grep -q '^file\.'
}
wait_until 10 keeps_an_image
sleep 1
fsfreeze --freeze "$dir/xfs"
says_so() { grep -q 'the watch ends, and its locks are given up' "$dir/err"; }
for ((tries = 0; tries < 200; tries++)); do
    ! says_so || break
    sleep 0.1
done
# It gives them up right after it said so. The call that hangs keeps the process, and with it its files, until the end.
for ((tries = 0; tries < 20; tries++)); do
    held=$(locks_held 2>&1) || held="cannot be tried: $held"
    [[ -n $held ]] || break
    sleep 0.1
done
is_hanging=$([[ -e /proc/$watch ]] && echo yes || echo no)
fsfreeze --unfreeze "$dir/xfs"
says_so || fail "it did not say that the file system does not answer: $(<"$dir/err")"
[[ -z $held ]] || fail "locks were not given up while the file system was frozen: $held"
note "the process was still there while its locks were free: $is_hanging"
status=0
wait "$watch" || status=$?
((status == 1)) || fail "it ended with code $status"
exec 8>&-
onefold share run --quiet "$images" >"$dir/out"
(cd "$images" && sha256sum --quiet --check "$dir/sums")
