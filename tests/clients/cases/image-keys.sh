# Signed images: minisign verifies ours and we verify its; once a key is trusted, other images are refused
# limit: 60 s
needs minisign mke2fs python3
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
archive=$dir/archive
export ONEFOLD_TRUSTED_KEYS=$dir/settings/trusted-keys

guest "$dir/web.raw" 1
onefold key create --no-password "$dir/builder"
[[ $(stat --format=%a "$dir/builder") == 600 ]] || fail "the secret key has the mode $(stat --format=%a "$dir/builder")"
refused 1 'exists' onefold key create --no-password "$dir/builder"
onefold archive create "$archive"
onefold image capture --quiet "$archive" "$dir/web.raw" web
onefold image capture --quiet --sign "$dir/builder" "$archive" "$dir/web.raw" web
onefold image capture --quiet "$archive" "$dir/web.raw" other

# A file of trusted keys that is not there is a mistake. While no key is trusted, unsigned images are accepted.
refused 1 'no such file' onefold image install "$archive" web@1 "$dir/target"
mkdir -p "$dir/settings"
touch "$ONEFOLD_TRUSTED_KEYS"
onefold key list | grep -q 'no key is trusted'
onefold image install --quiet "$archive" web@1 "$dir/accepted"
onefold key trust "$dir/builder.pub" 'web*' --note 'the builder'
onefold key list | grep -q 'web\* .*the builder'
refused 1 'no key that is trusted .* has signed it' onefold image install "$archive" web@1 "$dir/target"
refused 1 'hint: .*--unsigned' onefold image export "$archive" web@1 "$dir/target"
refused 1 'none for this name' onefold image install "$archive" other "$dir/target"
[[ ! -e $dir/target ]] || fail "a refused image was installed"
onefold image install --quiet "$archive" web "$dir/signed"
# An archived image comes into a pool by the same rule, and may be looked into.
create_pool 256M
refused 1 'no key that is trusted .* has signed it' onefold pool import "$pool" "$archive#web@1"
onefold pool import --quiet "$pool" "$archive#web" --to signed.raw
onefold pool import --quiet --unsigned "$pool" "$archive#web@1" --to unsigned.raw
refused 1 'lower than 3' onefold pool import --at-least 3 "$pool" "$archive#web" --to low.raw
# So does a copy in another archive, where the signature of the first one means nothing.
onefold archive create "$dir/copies"
for unsigned in "$archive#web@1" "$archive#other"; do
    refused 1 'is refused' onefold image capture --sign "$dir/builder" "$dir/copies" "$unsigned" web
done
refused 1 'other@1. is refused' onefold image capture --sign "$dir/builder" "$dir/copies" --each "$archive"
refused 1 'lower than 3' onefold image capture --at-least 3 "$dir/copies" "$archive#web"
onefold image list "$dir/copies" | grep -q '^web@1 .*the builder'
! onefold image list "$dir/copies" | grep -q 'other\|web@2' || fail "an image that nobody signed was copied"
onefold image capture --quiet --unsigned "$dir/copies" "$archive#other"
onefold guest cat "$archive#web@1" /etc/hostname >/dev/null
onefold image install --quiet --unsigned "$archive" web@1 "$dir/unsigned"
onefold image list "$archive" | grep -q '^web@2 .*the builder'
onefold image verify "$archive" web
refused 1 'not signed' onefold image verify "$archive" web@1
refused 1 'lower than 3' onefold image install --at-least 3 "$archive" web "$dir/target"

# Debian's minisign verifies the files of a folder as they are.
signature=$(find "$archive/signatures" -type f)
manifest=$archive/manifests/$(cut -d/ -f1-2 <<<"${signature#"$archive/signatures/"}")
minisign -V -q -p "$dir/builder.pub" -x "$signature" -m "$manifest" || fail "minisign refuses our signature"

# A signature moved to another image, and a changed one, are worth nothing.
other=$(find "$archive/manifests" -type f ! -path "$manifest" | head -n 1)
moved=$archive/signatures/${other#"$archive/manifests/"}
mkdir -p "$moved"
cp "$signature" "$moved/"
refused 1 'no key that is trusted|none for this name' onefold image install "$archive" web@1 "$dir/target"
rm -r "$moved"

# We verify what minisign signed, with a key that it made, and sign with that key. Its keys may have passwords.
minisign -G -W -p "$dir/theirs.pub" -s "$dir/theirs" >/dev/null
onefold image sign "$archive" web@1 "$dir/theirs"
refused 1 'no key that is trusted' onefold image install "$archive" web@1 "$dir/target"
onefold image verify "$archive" web@1 --key "$dir/theirs.pub"
onefold image verify "$archive" web@1 --key "$(tail -n 1 "$dir/theirs.pub")"
stored=$(find "$archive/signatures" -type f ! -path "$signature")
first=$archive/manifests/$(cut -d/ -f1-2 <<<"${stored#"$archive/signatures/"}")
minisign -S -s "$dir/theirs" -x "$dir/by-minisign" -m "$first" </dev/null >/dev/null
cat "$dir/by-minisign" >"$stored"
onefold image verify "$archive" web@1 --key "$dir/theirs.pub"
printf 'a secret\n' >"$dir/password"
onefold key create --password-file "$dir/password" "$dir/protected"
printf 'a secret\na secret\n' | minisign -G -p "$dir/their-protected.pub" -s "$dir/their-protected" >/dev/null
onefold image sign --password-file "$dir/password" "$archive" web@1 "$dir/their-protected"
onefold image verify "$archive" web@1 --key "$dir/their-protected.pub"
printf 'a secret\n' | minisign -S -s "$dir/protected" -x "$dir/by-minisign" -m "$first" >/dev/null
minisign -V -q -p "$dir/protected.pub" -x "$dir/by-minisign" -m "$first"
onefold image sign --password-file "$dir/password" "$archive" web@1 "$dir/protected"
printf 'wrong\n' >"$dir/password"
refused 1 'password is wrong' onefold image sign --password-file "$dir/password" "$archive" web@1 "$dir/protected"
