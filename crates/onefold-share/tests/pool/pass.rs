//! Scans and passes: savings as if writes had found everything, and every file reads as before.

use std::path::Path;
use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_block::random::SeededRandom;
use onefold_pool::{Dedup, Durability, Ino, OpenOptions, Pool, PoolSubstrate, XattrMode};
use onefold_substrate::Refusal;

use crate::ground::*;

/// Images with much in common, in runs and scattered, with holes, zeros, and a last part of a block.
fn images() -> Contents {
    let random = SeededRandom::new(3);
    let scattered: Vec<u64> = (0..700).map(|_| 1 + random.below(900)).collect();
    let mut contents = Contents::new();
    let mut add = |name: &str, content: Vec<u8>| drop(contents.insert(name.to_owned(), content));
    add("golden", blocks(1..=900));
    add("copy", blocks(1..=900));
    add("part", [blocks((2000..2010).chain(300..=620).chain([0, 0, 0]).chain(100..=110)), vec![7; 1000]].concat());
    add("scattered", blocks(scattered));
    add("one content", blocks([5; 40]));
    add("own", blocks(3000..=3100));
    add("small", vec![9; 100]);
    contents
}

fn fill(pool: &Pool, contents: &Contents) {
    for (name, content) in contents {
        put(pool, Ino::ROOT, name, content);
    }
    pool.commit().unwrap();
}

/// Returns what a pool stores and saves whose writes found everything.
fn inline(contents: &Contents) -> (u64, u64) {
    let device = new_pool(16_384);
    let pool = open(device, finding());
    fill(&pool, contents);
    stored_and_saved(&pool)
}

/// Imports, each part of the images with other options, has the engine share, and compares with a pool whose writes
/// found everything.
fn find_afterwards(imports: &[OpenOptions], then: OpenOptions) {
    let contents = images();
    let (stored, saved) = inline(&contents);
    let device = new_pool(16_384);
    let seam: Arc<dyn BlockDevice> = device.clone();
    let mut missed = 0;
    let parts = contents.len().div_ceil(imports.len());
    for (at, import) in imports.iter().enumerate() {
        let part = contents.iter().skip(at * parts).take(parts);
        let pool = open(seam.clone(), import.clone());
        fill(&pool, &part.map(|(name, content)| (name.clone(), content.clone())).collect());
        missed = stored_and_saved(&pool).0;
        pool.close().unwrap();
    }
    assert!(missed > stored * 5 / 4, "{missed} bytes are stored by writes that find little, {stored} by others");

    let pool = open(seam.clone(), then.clone());
    // The second run reads a file again that changed a moment ago.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let found = run(&substrate(&pool)).unwrap();
    assert!(found.passed.trouble.refused.is_empty() && found.passed.trouble.failed.is_empty(), "{found:?}");
    assert_eq!((found.passed.shared.differed, found.passed.shared.refused), (0, 0), "{found:?}");
    settle(&pool);
    compare(&pool, &contents).unwrap();
    // What several places had from one write is nobody's own, so that it is not counted when the last of them goes.
    assert!((1..=missed - stored).contains(&found.passed.shared.freed), "{found:?}");

    // It is known what was read and what is shared.
    let second = run(&substrate(&pool)).unwrap();
    assert_eq!((second.scanned.unchanged, second.passed.shared.now), (second.scanned.files, 0), "{second:?}");
    remove_state(&pool);
    assert_eq!(stored_and_saved(&pool), (stored, saved));
    compare(&pool, &contents).unwrap();
    pool.close().unwrap();
    drop(pool);
    check_clean(&*device).unwrap();

    // Neither are counts right only for those who look now.
    let pool = open(seam, then);
    for name in contents.keys() {
        pool.unlink(Ino::ROOT, name.as_bytes()).unwrap();
    }
    settle(&pool);
    assert_eq!(stored_and_saved(&pool), (0, 0));
    pool.close().unwrap();
    check_clean(&*device).unwrap();
}

#[test]
fn what_a_filter_without_room_missed_is_found_afterwards() {
    find_afterwards(&[with_filter(0)], with_filter(0));
}

/// Some of it was found by writes, before the filter had less memory.
#[test]
fn what_a_filter_that_shrank_missed_is_found_afterwards() {
    find_afterwards(&[finding(), with_filter(0)], with_filter(0));
}

#[test]
fn what_was_imported_without_deduplication_is_found_afterwards() {
    find_afterwards(&[OpenOptions { dedup: Dedup::Off, ..finding() }], finding());
}

#[test]
fn files_that_opted_out_stay_alone_and_the_others_share_without_them() {
    let pool = open(new_pool(8192), with_filter(0));
    let content = blocks(1..=100);
    let names = ["a", "b", "c"];
    let files = names.map(|name| put(&pool, Ino::ROOT, name, &content));
    pool.set_xattr(files[0], b"user.onefold.dedup", b"off", XattrMode::Either).unwrap();
    // The first one read is the one that becomes the source, where it may.
    let found = run(&substrate(&pool)).unwrap();
    assert_eq!(found.passed.trouble.refused.get(Path::new("a")), Some(&Refusal::SwitchedOff), "{found:?}");
    assert!(pool.extents(files[0], 0).unwrap().iter().all(|extent| !extent.is_shared));
    let [b, c] = [files[1], files[2]].map(|file| pool.extents(file, 0).unwrap());
    assert_eq!(b, c);
    for name in names {
        assert!(get(&pool, name).unwrap() == content);
    }
}

/// Each sharing domain by itself, from a folder of its own.
#[test]
fn domains_do_not_share_with_each_other() {
    let device = new_pool(16_384);
    let pool = open(device.clone(), with_filter(0));
    let content = blocks(1..=100);
    let folders = ["red", "blue"].map(|name| folder(&pool, Ino::ROOT, name));
    pool.set_xattr(folders[1], b"user.onefold.domain", b"2", XattrMode::Either).unwrap();
    let files: Vec<Ino> =
        folders.iter().flat_map(|folder| ["a", "b"].map(|name| put(&pool, *folder, name, &content))).collect();
    let found = run(&substrate(&pool)).unwrap();
    let refused: Vec<_> = found.passed.trouble.refused.into_iter().collect();
    let apart = ["blue/a", "blue/b"].map(|path| (path.into(), Refusal::Apart));
    assert_eq!(refused, apart);
    let of_blue = PoolSubstrate::open(&pool, Path::new("blue")).unwrap();
    let found = run(&of_blue).unwrap();
    assert_eq!(found.passed.shared.now, 100 * K, "{found:?}");
    let maps: Vec<_> = files.iter().map(|file| pool.extents(*file, 0).unwrap()).collect();
    assert_eq!((&maps[0], &maps[2]), (&maps[1], &maps[3]));
    assert_ne!(maps[0][0].place, maps[2][0].place);
    pool.close().unwrap();
    check_clean(&*device).unwrap();
}

#[test]
fn blocks_that_only_the_arena_has_come_free() {
    let pool = open(new_pool(8192), with_filter(0));
    let content = blocks(1..=200);
    put(&pool, Ino::ROOT, "a", &content);
    put(&pool, Ino::ROOT, "b", &content);
    run(&substrate(&pool)).unwrap();
    for name in ["a", "b"] {
        pool.unlink(Ino::ROOT, name.as_bytes()).unwrap();
    }
    settle(&pool);
    put(&pool, Ino::ROOT, "c", &blocks(500..=510));
    let found = run(&substrate(&pool)).unwrap();
    assert_eq!((found.passed.planned.collected, found.passed.swept_slots), (200, 200), "{found:?}");
}

/// Writers overwrite what is being shared: each reads what it wrote.
#[test]
fn guests_that_write_meanwhile_read_what_they_wrote() {
    let device = new_pool(16_384);
    let pool = open(device.clone(), OpenOptions { background: true, ..with_filter(0) });
    const BLOCKS: u64 = 256;
    let files = ["x", "y"].map(|name| put(&pool, Ino::ROOT, name, &blocks((0..BLOCKS).map(|block| 1 + block % 20))));
    std::thread::scope(|scope| {
        let guests: Vec<_> = (11..)
            .zip(files)
            .map(|(seed, file)| {
                let pool = &pool;
                scope.spawn(move || {
                    let random = SeededRandom::new(seed);
                    let contents: Vec<Vec<u8>> = (1..=20).map(|number| blocks([number])).collect();
                    let mut holds: Vec<usize> = (0..BLOCKS).map(|block| usize::try_from(block % 20).unwrap()).collect();
                    for _ in 0..1500 {
                        let at = usize::try_from(random.below(BLOCKS)).unwrap();
                        holds[at] = usize::try_from(random.below(20)).unwrap();
                        pool.write(file, at as u64 * K, &contents[holds[at]], Durability::Later).unwrap();
                        let at = usize::try_from(random.below(BLOCKS)).unwrap();
                        let mut read = vec![0; contents[0].len()];
                        pool.read(file, at as u64 * K, &mut read).unwrap();
                        assert!(read == contents[holds[at]], "block {at}");
                    }
                })
            })
            .collect();
        let (mut runs, mut shared) = (0, 0);
        while runs < 3 || guests.iter().any(|guest| !guest.is_finished()) {
            shared += run(&substrate(&pool)).unwrap().passed.shared.now;
            runs += 1;
        }
        assert!(shared > 0);
    });
    pool.close().unwrap();
    check_clean(&*device).unwrap();
}
