# What analyze --files tells of small Debian systems adds up, and is what went into them; its page opens in a browser
needs mke2fs debugfs e2fsck
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"

make_tree "$dir/tree" 3
for seed in 1 2 3; do
    guest_bytes=64M guest "$dir/$seed.raw" "$seed"
done
# A deleted file leaves its bytes; another version of a package is installed in one system only.
debugfs -w -R 'rm /srv/log' "$dir/3.raw" 2>/dev/null
sed 's/^Version: 1.7$/Version: 2.0/' "$dir/tree/var/lib/dpkg/status" >"$dir/status"
printf 'cd /var/lib/dpkg\nrm status\nwrite %s status\n' "$dir/status" | debugfs -w "$dir/3.raw" >/dev/null 2>&1
images=("$dir/1.raw" "$dir/2.raw" "$dir/3.raw")
onefold analyze --files --json --quiet --report "$dir/report.html" "${images[@]}" >"$dir/found.json"
for image in "${images[@]}"; do
    e2fsck -fn "$image" >/dev/null 2>&1 || fail "$image was changed"
done
python3 - "$dir" <<'PYTHON'
import html.parser, json, os, sys

folder = sys.argv[1]
found = json.load(open(f"{folder}/found.json"))["files"]

# Each byte is in one class, and each block that is not zero in one group, which is the sum of its parts.
def check(part, length):
    shares = sum(part[name] for name in ("only_here_bytes", "repeated_within_bytes", "shared_with_others_bytes"))
    assert shares == part["bytes"] == length(part), part
    if part["parts"]:
        assert sum(inner["bytes"] for inner in part["parts"]) == part["bytes"], part
    for inner in part["parts"]:
        check(inner, length)

for image in found["images"]:
    classes = image["classes"]
    assert sum(classes.values()) == 64 << 20, classes
    for group in image["groups"]:
        check(group, lambda part: part["bytes"])
    assert sum(group["bytes"] for group in image["groups"]) == (64 << 20) - classes["zero_bytes"], image["groups"]
for name, value in found["total"]["classes"].items():
    assert value == sum(image["classes"][name] for image in found["images"]), name
assert [image["classes"]["stale_bytes"] for image in found["images"]][:2] == [0, 0]
stale = found["images"][2]["classes"]["stale_bytes"]
assert 40 * 4096 <= stale <= 44 * 4096, stale

# The bytes of a package are the blocks of its files, and all of them are in the other images.
blocks = {}
for directory in ("usr/bin", "usr/share/doc"):
    for name in os.listdir(f"{folder}/tree/{directory}"):
        package = name.rsplit("-", 1)[0]
        size = os.path.getsize(f"{folder}/tree/{directory}/{name}")
        blocks[package] = blocks.get(package, 0) + -(-size // 4096) * 4096
assert len(blocks) == 8
for image in found["images"]:
    group = next(group for group in image["groups"] if group["name"] == "packages")
    packages = {part["name"]: part for part in group["parts"]}
    for package, length in blocks.items():
        assert (packages[package]["bytes"], packages[package]["shared_with_others_bytes"]) == (length, length), package
    assert packages["big"]["bytes"] == 100 * 4096 and packages["big"]["only_here_bytes"] == 4096, packages["big"]
assert "tool-7" in json.dumps(found["versions"]) and "2.0" in json.dumps(found["versions"]), found["versions"]

# The page is closed where it is opened, and runs nothing.
class Page(html.parser.HTMLParser):
    open, seen = [], set()

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        assert tag != "script" and not any(name.startswith("on") for name, _ in attributes), tag
        if tag not in ("meta", "br", "hr", "link", "img", "col", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

page = Page()
text = open(f"{folder}/report.html", encoding="utf-8").read()
page.feed(text)
assert not page.open and {"svg", "table", "rect"} <= page.seen, (page.open, page.seen)
assert "tool-7" in text and "stale" in text
print(f"note: {sum(blocks.values()) >> 10} KiB of packages in each image, {stale >> 10} KiB stale in one")
PYTHON
for browser in chromium chromium-browser google-chrome; do
    command -v "$browser" >/dev/null || continue
    "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$dir/profile" --dump-dom \
        "file://$dir/report.html" >"$dir/dom" 2>"$dir/browser.log" ||
        fail "the page does not open: $(tail -3 "$dir/browser.log")"
    grep -q tool-7 "$dir/dom" || fail "the page lacks a package"
    break
done

# What is no image is told, and the rest is counted; text is a disk that nobody can read.
head -c 2M < <(yes 'just a text') >"$dir/words.raw"
refused 1 'gone.raw' onefold analyze --files --json --quiet "${images[@]}" "$dir/words.raw" "$dir/gone.raw" >/dev/null
onefold analyze --files --json --quiet "${images[@]}" "$dir/words.raw" >"$dir/with-words.json"
python3 - "$dir/with-words.json" <<'PYTHON'
import json, sys

words = json.load(open(sys.argv[1]))["files"]["images"][3]["classes"]
assert words["not_read_bytes"] == sum(words.values()) == 2 << 20, words
PYTHON
