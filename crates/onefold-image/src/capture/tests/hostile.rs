//! Guests with randomly damaged metadata.

use super::ext::{Images, MAKE, partitioned};
use super::*;

/// Regardless of a guest's metadata, each captured byte is installed again, and no other byte changes.
#[test]
fn a_damaged_guest_harms_nobody() {
    let Some(images) = Images::new() else { return };
    let random = SeededRandom::new(41);
    images.files("files", &random, 40);
    let (mut raw, mut doubtful) = (0, 0);
    for make in ["-t ext4 -b 1024 -O ^metadata_csum", "-t ext2 -b 4096"] {
        images.script(MAKE, &["image", make, "files", "12"]);
        let sound = images.read("image");
        let metadata: Vec<usize> =
            (0..sound.len()).filter(|at| sound[*at] != 0).take_while(|at| *at < 300_000).collect();
        let bench = Bench::new(FILES);
        let free_bytes = bench.capture("sound", &partitioned(&sound, 63, &random)).totals.free_bytes;
        for round in 0..15 {
            let mut file_system = sound.clone();
            for _ in 0..=round {
                let at = metadata[usize::try_from(random.below(metadata.len() as u64)).unwrap()];
                file_system[at] = u8::try_from(random.below(256)).unwrap();
            }
            if round % 3 == 0 {
                // Flips a bit of the superblock: of the magic number in the first round, at or shortly after it later.
                let reach = if round == 0 { 2 } else { 60 };
                file_system[1024 + usize::try_from(56 + random.below(reach)).unwrap()] ^= 1 << random.below(8);
            }
            let disk = partitioned(&file_system, 63, &random);
            let manifest = bench.capture("hostile", &disk);
            raw += usize::from(manifest.volumes.iter().any(|volume| volume.way != CaptureWay::Map));
            doubtful += usize::from(manifest.totals.free_bytes < free_bytes);
            bench.assert_installed(&manifest, &disk.bytes);
        }
    }
    assert!(raw >= 2 && doubtful > raw, "{raw} of 30 were captured raw, and of {doubtful} more was taken");
}
