//! Digests of fs-verity, against the documentation of the kernel and against `fsverity`.

use onefold_guest::filesystem::FileSystem;

use super::features::{content, extents, found, images};
use super::with_ext;
use crate::fixtures::has;

/// Puts the Merkle tree of a file of 9000 bytes and its descriptor behind it, as ext4 does, and prints the digest.
/// Python's hashes and the kernel's documentation of fs-verity are the oracle.
const VERITY: &str = r#"import hashlib, struct, sys
algorithm, name, digest_bytes = sys.argv[1], sys.argv[2], hashlib.new(sys.argv[1]).digest_size
content = b"v" * 9000
hashed = lambda data: hashlib.new(algorithm, data).digest()
blocks = [content[at:at + 4096].ljust(4096, b"\0") for at in range(0, len(content), 4096)]
tree = b"".join(map(hashed, blocks)).ljust(4096, b"\0")
number = {"sha256": 1, "sha512": 2}[algorithm]
descriptor = struct.pack("<BBBBIQ", 1, number, 12, 0, 0, len(content)) + hashed(tree).ljust(64, b"\0") + bytes(32 + 144)
signed = descriptor[:4] + struct.pack("<I", 3) + descriptor[8:] + b"sig"
last = signed.ljust(4092, b"\0") + struct.pack("<I", len(signed))
with open(name, "wb") as file:
    file.write(content)
    file.seek(65536)
    file.write(tree + last)
print(algorithm + ":" + hashed(descriptor).hex())"#;

#[test]
fn verity_leaves_content_as_it_is_and_its_digest_is_that_of_its_descriptor() {
    let Some(images) = images() else { return };
    let script = r#"mkdir d; echo plain >d/plain; truncate -s 16M image
        for algorithm in sha256 sha512; do python3 -c "$1" $algorithm d/$algorithm; done
        mke2fs -q -F -t ext4 -b 4096 -O verity -d d image
        printf 'sif /%s flags 0x180000\nsif /%s size 9000\n' sha256 sha256 sha512 sha512 >commands
        debugfs -w -f commands image >/dev/null 2>&1"#;
    let digests = images.script(script, [VERITY]);
    with_ext(&images.path("image"), |fs| {
        for digest in digests.lines() {
            let (algorithm, _) = digest.split_once(':').unwrap();
            let file = found(fs, &[algorithm]);
            assert_eq!(content(fs, file), [b'v'; 9000]);
            assert_eq!(fs.verity(file).unwrap().unwrap().to_string(), digest);
        }
        assert_eq!(fs.verity(found(fs, &["plain"])).unwrap(), None);
    });
    // A length in the last four bytes that no descriptor has.
    images
        .script("printf 'sif /sha256 size 70000\\n' >commands; debugfs -w -f commands image >/dev/null 2>&1", [""; 0]);
    with_ext(&images.path("image"), |fs| assert!(fs.verity(found(fs, &["sha256"])).is_err()));
}

/// Makes files of three lengths with each algorithm. `fsverity` makes tree and descriptor, which follow the content as
/// in ext4. Prints for each file its name, its digest, and its blocks on the disk.
const FIXTURE: &str = r#"
truncate -s 64M image; mke2fs -q -F -t ext4 -b 4096 -O verity image
for algorithm in sha256 sha512; do for length in 1 65536 600000; do
    name=$algorithm-$length
    head -c $length /dev/urandom >content-$name
    fsverity digest --hash-alg=$algorithm --salt=5a17 --compact \
        --out-merkle-tree=tree --out-descriptor=descriptor content-$name >digest-$name
    cp content-$name whole; truncate -s %65536 whole; cat tree >>whole; truncate -s %4096 whole
    { cat descriptor; head -c 4092 /dev/zero; } | head -c 4092 >>whole
    python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<I", 256))' >>whole
    printf 'write whole %s\nsif /%s flags 0x180000\nsif /%s size %s\n' $name $name $name $length >commands
    debugfs -w -f commands image >/dev/null 2>&1
    echo $name $(cat digest-$name) $(debugfs -R "blocks /$name" image 2>/dev/null)
done; done
e2fsck -fn image >/dev/null 2>&1"#;

/// The programs of fs-verity and of ext4 are the oracle.
#[test]
fn digests_are_those_of_fsverity() {
    let Some(images) = images() else { return };
    if !has("fsverity") || !has("e2fsck") {
        return;
    }
    let printed = images.script(FIXTURE, [""; 0]);
    assert_eq!(printed.lines().count(), 6);
    with_ext(&images.path("image"), |fs| {
        for line in printed.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [name, digest, ref expected @ ..] = words[..] else { panic!("{line}") };
            let (algorithm, _) = name.split_once('-').unwrap();
            let file = found(fs, &[name]);
            assert_eq!(fs.verity(file).unwrap().unwrap().to_string(), format!("{algorithm}:{digest}"), "{name}");
            assert!(content(fs, file) == std::fs::read(images.path(&format!("content-{name}"))).unwrap(), "{name}");
            let places = extents(fs, file).into_iter().flat_map(|extent| {
                let first = extent.place / 4096;
                first..first + extent.length_bytes / 4096
            });
            assert_eq!(places.map(|place| place.to_string()).collect::<Vec<_>>(), expected, "{name}");
        }
        assert_eq!(fs.damage().first(), []);
    });
}
