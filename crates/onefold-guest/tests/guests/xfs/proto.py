"""Writes a protofile of `mkfs.xfs` and its source files here; prints what the files are, a line each: proto.py NAMES."""
import sys
import zlib

LARGE = bytes((index * 31 + index // 997) & 0xFF for index in range(300_007)) * 10


def main():
    count = int(sys.argv[1])
    sources = {"small": b"hello\n", "large": LARGE, "empty": b""}
    for name, content in sources.items():
        with open(name, "wb") as file:
            file.write(content)
    about = {name: f"{len(content)} {zlib.crc32(content):08x}" for name, content in sources.items()}
    lines = ["/dev/null", "0 0", "d--751 7 9"]
    shown = {".": "4 751 7 9"}

    def file(folder, name, proto, source, text):
        lines.append(f"{name} {proto} {source}")
        shown[f"{folder}{name}"] = f"{text} {about[source]}"

    file("", "hello", "---644 12 34", "small", "10 644 12 34")
    file("", "second", "---644 12 34", "small", "10 644 12 34")
    file("", "large", "-u-755 0 70000", "large", "10 4755 0 70000")
    file("", "empty", "---600 0 0", "empty", "10 600 0 0")
    for name, target in (("short", "hello"), ("middle", "m/" * 100), ("long", "l" * 1000)):
        lines.append(f"{name} l--777 0 0 {target}")
        shown[name] = f"12 777 0 0 {target.encode().hex()}"
    lines.append("pipe p--640 1 2")
    shown["pipe"] = "1 640 1 2"
    lines.append("character c--600 0 0 10 200")
    shown["character"] = "2 600 0 0 10:200"
    lines.append("block b--660 0 6 8 17")
    shown["block"] = "6 660 0 6 8:17"
    for folder, names in (("few", 3), ("some", 40), ("more", 200), ("many", count)):
        lines.append(f"{folder} d--700 3 4")
        shown[folder] = "4 700 3 4"
        for index in range(names):
            file(f"{folder}/", f"A-file-{index:05}-{'n' * (index % 40)}", "---644 0 0", "small", "10 644 0 0")
        lines.append("$")
    with open("proto", "w") as file:
        file.write("\n".join(lines + ["$", ""]))
    for path, text in sorted(shown.items()):
        print(path.encode().hex(), text)


main()
