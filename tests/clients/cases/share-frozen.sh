# `share watch` on a file system that does not answer says so, gives its locks up, and ends with a failure; nothing is lost by it
# limit: 60 s
needs mkfs.xfs losetup fsfreeze

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

# The limit keeps it at work until the file system is frozen.
"$ONEFOLD" share watch --interval 200ms --batch 0 --max-hang 3s --io-limit 4M "$images" >"$dir/out" 2>"$dir/err" &
watch=$!
wait_until 10 test -e "$dir/xfs/.onefold/identity"
sleep 1
fsfreeze --freeze "$dir/xfs"
says_so() { grep -q 'the watch ends, and its locks are given up' "$dir/err"; }
for ((tries = 0; tries < 200; tries++)); do
    ! says_so || break
    sleep 0.1
done
fsfreeze --unfreeze "$dir/xfs"
says_so || fail "it did not say that the file system does not answer: $(<"$dir/err")"
status=0
wait "$watch" || status=$?
((status == 1)) || fail "it ended with code $status"
onefold share run --quiet "$images" >"$dir/out"
(cd "$images" && sha256sum --quiet --check "$dir/sums")
