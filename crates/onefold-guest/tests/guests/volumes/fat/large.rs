//! FAT volumes with files in a hundred thousand pieces, directories of fifty thousand names, and long, deep and odd
//! paths.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use onefold_disk::Disk;
use onefold_guest::filesystem::State;

use super::super::{disk, whole};
use super::{
    SAME_AS_TREE, extents, free_ranges, make_of, mtools, open, printed_clusters, same_as_tree, same_clusters, tools,
    tree,
};
use crate::fixtures::{Images, MADE, tell};
use crate::noise;

/// Checks everything against `tree` and mtools, before and after all free bytes are noise.
fn compare(images: &Images) {
    let disk = disk(&images.path("image"));
    let free = {
        let fat = open(&whole(&disk));
        assert_eq!((fat.state(), fat.damage().first()), (&State::Certain, Vec::new()));
        same_as_tree(images, &*fat);
        same_clusters(images, &*fat, disk.size_bytes());
        free_ranges(&*fat)
    };
    let image = File::options().write(true).open(images.path("image")).unwrap();
    assert!(noise::overwrite(&image, free.into_iter().map(|range| (range.start, range.end))) > 0);
    images.script(&mtools(SAME_AS_TREE), [""; 0]);
    same_as_tree(images, &*open(&whole(&disk)));
}

/// Makes `first` and `second`, each of `$3` clusters of 512 bytes but for a few bytes, one behind the other.
const TWO_FILES: &str = r#"
mkdir tree; for name in first second; do head -c $(($3 * 512 - 100)) /dev/urandom >tree/$name; done
mcopy -i image tree/first tree/second ::
"#;

/// Has two files of as many clusters each take every second cluster of the other one, in the tables and with their
/// bytes, so that none of their clusters lies behind the one before it.
fn alternate(images: &Images, entry_bytes: usize, count: u64) {
    let script = mtools("mshowfat -i image ::first ::second");
    let clusters = printed_clusters(&images.script(&script, [""; 0]));
    let (first, second) = clusters.split_at(usize::try_from(count).unwrap());
    assert!(clusters.is_sorted_by(|one, next| one + 1 == *next) && second.len() == first.len());
    let starts = {
        let disk = disk(&images.path("image"));
        let fat = open(&whole(&disk));
        ["/first", "/second"].map(|path| extents(&*fat, tree(&*fat)[path])[0].place)
    };
    let image = File::options().read(true).write(true).open(images.path("image")).unwrap();
    let swap = |one: u64, other: u64, length: usize| {
        let (mut of_one, mut of_other) = (vec![0; length], vec![0; length]);
        image.read_exact_at(&mut of_one, one).unwrap();
        image.read_exact_at(&mut of_other, other).unwrap();
        image.write_all_at(&of_other, one).unwrap();
        image.write_all_at(&of_one, other).unwrap();
    };
    let mut boot = [0; 64];
    image.read_exact_at(&mut boot, 0).unwrap();
    let word = |at: usize| u64::from(u16::from_le_bytes([boot[at], boot[at + 1]]));
    let table_sectors = if entry_bytes == 4 { word(36) + (word(38) << 16) } else { word(22) };
    for table in 0..u64::from(boot[16]) {
        let place = |cluster: u64| (word(14) + table * table_sectors) * 512 + cluster * entry_bytes as u64;
        // All but the last entries, which end the chains, lead on in the other file.
        for (one, other) in first.iter().zip(second).take(first.len() - 1) {
            swap(place(*one), place(*other), entry_bytes);
        }
    }
    for cluster in (1..count).step_by(2) {
        swap(starts[0] + cluster * 512, starts[1] + cluster * 512, 512);
    }
}

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn files_of_100000_extents_are_those_of_mtools() {
    let Some(images) = tools() else { return };
    let kinds = [("-F 16 -s 1", "32500", 2, 30_000_u64), ("-F 32 -s 1", "110000", 4, 100_000)];
    for (options, size, entry_bytes, count) in kinds {
        eprintln!("mkfs.fat {options}");
        make_of(&images, TWO_FILES, &[options, size, &count.to_string()]);
        alternate(&images, entry_bytes, count);
        let disk = disk(&images.path("image"));
        let fat = open(&whole(&disk));
        for path in ["/first", "/second"] {
            let found = extents(&*fat, tree(&*fat)[path]);
            let not_joined = found.iter().zip(&found[1..]).filter(|(one, next)| one.place + 512 != next.place).count();
            assert_eq!((found.len() as u64, not_joined as u64), (count, count - 1), "{path}");
        }
        drop(fat);
        compare(&images);
    }
    tell(kinds.len(), MADE);
}

/// Some names are gone again, and long ones came after. A directory has no place for more than 65,536 records, and a
/// long name takes at least two.
const MANY_NAMES: &str = r#"
mkdir -p tree/names; cd tree/names
seq -f 'F%05g.TXT' 0 49999 | xargs touch
for at in $(seq -f %05g 0 500 49999) 49999; do echo $at >F$at.TXT; done; cd ..
mcopy -s -m -i ../image names ::
seq -f '::names/F%05g.TXT' 250 500 49999 | xargs mdel -i ../image
cd names; seq -f 'F%05g.TXT' 250 500 49999 | xargs rm
for at in $(seq 20); do echo $at >"a name of several records $at"; mcopy -i ../../image "a name of several records $at" ::names; done
cd ../..
"#;

#[test]
#[ignore = "it takes a minute, for make test-guest"]
fn a_directory_of_50000_names_is_that_of_mtools() {
    let Some(images) = tools() else { return };
    make_of(&images, MANY_NAMES, &["-F 32 -s 1", "40960"]);
    let disk = disk(&images.path("image"));
    let fat = open(&whole(&disk));
    let found = tree(&*fat);
    let names = found["/names"];
    assert_eq!(found.len(), 1 + 50_000 - 100 + 20);
    for number in [0, 1, 249, 250, 25_000, 25_250, 49_999] {
        let path = fs::exists(images.path(&format!("tree/names/F{number:05}.TXT"))).unwrap();
        for name in [format!("F{number:05}.TXT"), format!("f{number:05}.txt")] {
            assert_eq!(fat.look_up(names, name.as_bytes()).unwrap().is_some(), path, "{name}");
        }
    }
    drop(fat);
    compare(&images);
    tell(1, MADE);
}

/// Paths of more than 300 bytes, 60 levels, and names of all characters that mtools write.
const PATHS: &str = r#"
mkdir -p tree/odd; cd tree
deep=.; for level in $(seq 12); do deep=$deep/a-folder-with-a-rather-long-name-$level; done
mkdir -p "$deep"; echo deep >"$deep/file"
deep=.; for level in $(seq 60); do deep=$deep/$level; done; mkdir -p "$deep"; echo deep >"$deep/file"
cd odd
for name in n m; do long=$(printf "$name%.0s" $(seq 255)); echo "$long" >"$long"; done
for length in 12 13 14 25 26 27 254; do echo $length >"$(printf 'e%.0s' $(seq $length))"; done
for name in ' leading' 'a.b.c.d' '.hidden' '..two' 'MiXeD.tXt' 'lower.TXT' 'UPPER.txt' '~' \
    '!#$%&()-@^_`{}' "'" 'ä€ 12345678' '你好' "$(printf 'ä%.0s' $(seq 127))" '-i' 'pair-QZ.text'; do
    printf '%s' "$name" >"./$name"
done
for at in $(seq 30); do echo $at >"(a)+,;=b long name with number $at.text"; done
cd ..; mcopy -s -m -i ../image * ::
"#;

/// Gives a name a character of two units, which mtools do not write. A sum is that of the short name, and stays.
const PAIR: &str = r#"
mv tree/odd/pair-QZ.text tree/odd/pair-😀.text
python3 - <<'END'
import re
image = bytearray(open("image", "rb").read())
name = "pair-QZ.tex".encode("utf-16-le")
found = list(re.finditer(re.escape(name[:10]) + b"\x0f\0." + re.escape(name[10:]), image, re.DOTALL))
assert len(found) == 1, found
image[found[0].start() + 13:found[0].start() + 17] = "😀".encode("utf-16-le")
open("image", "wb").write(image)
END
fsck.fat -n image
"#;

#[test]
#[ignore = "the whole matrix, for make test-guest"]
fn long_deep_and_odd_paths_are_those_of_mtools() {
    let Some(images) = tools() else { return };
    let kinds = [("-F 12 -s 8", "15000"), ("-F 16 -s 4", "30000"), ("-F 32 -s 2", "80000")];
    for (options, size) in kinds {
        eprintln!("mkfs.fat {options}");
        make_of(&images, PATHS, &[options, size]);
        compare(&images);
        images.script(PAIR, [""; 0]);
        same_as_tree(&images, &*open(&whole(&disk(&images.path("image")))));
    }
    tell(kinds.len(), MADE);
}
