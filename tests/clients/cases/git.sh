# git works in a pool: commits, branches, a clone, gc, fsck
needs git rsync
new_pool 1G
git() {
    command git -c user.name=test -c user.email=test@example.org -c init.defaultBranch=main -c gc.auto=0 "$@"
}
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1

git init -q "$mnt/tree"
rsync -a --exclude target "$repo/crates" "$repo/docs" "$mnt/tree/"
cd "$mnt/tree"
git add -A
git commit -q -m 'all of it'
for number in 1 2 3; do
    git checkout -q -b "branch-$number" main
    find . -name '*.rs' -newermt 1970-01-01 -print0 | sort -z | awk -v RS='\0' -v n="$number" 'NR % 3 == n - 1' |
        while read -r file; do printf '// %s\n' "$number" >>"$file"; done
    git commit -q -a -m "change $number"
done
git checkout -q main
git merge -q -m merged branch-1 branch-2
git gc -q --prune=now
git fsck --strict --full
[[ -z $(git status --porcelain) ]]

git clone -q --no-hardlinks "$mnt/tree" "$mnt/clone"
git clone -q --no-local "$mnt/clone" "$dir/clone"
diff -r --exclude .git "$mnt/tree" "$dir/clone"
cd "$dir"

remount_pool
git -C "$mnt/tree" fsck --strict --full
git -C "$mnt/clone" status --porcelain
unmount_and_check
