//! Uses a damaged pool: everything that its users could do, a bounded number of times.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_pool::check::{CheckOptions, ScrubOptions, check, repair};
use onefold_pool::{
    AllocateMode, Attr, Durability, FileKind, HostId, Ino, NoProgress, OpenOptions, Pool, RangePair, RenameMode,
    SeekTarget, SetAttr, XattrMode,
};
use onefold_testing::device::MemoryImage;

use crate::Choices;
use crate::guard::GuardedDevice;
use crate::samples::{ACL, MEMORY_BYTES, environment, new_file, noise, open_options};

/// Maximum number of files to examine. Hostile directories lead back to themselves.
const FILES_MAX: usize = 60;
/// Maximum number of entries of one directory. A listing that returns more has no end.
const ENTRIES_MAX: usize = 100_000;
/// Maximum number of reclaim steps; more count as endless. The samples need a few hundred.
const RECLAIM_STEPS_MAX: usize = 20_000;
/// Maximum number of seeks from hole to data to hole in one file.
const SEEKS_MAX: usize = 50;

/// Uses the pool on `image` as `choices` say. Errors and values are the only valid outcomes.
pub fn use_pool(choices: &mut Choices<'_>, image: MemoryImage) {
    let device = Arc::new(GuardedDevice::from(image));
    let plan = choices.byte();
    let verify_data = plan & 1 == 1;
    let options = CheckOptions { memory_bytes: MEMORY_BYTES, verify_data, ..CheckOptions::default() };
    if plan & 6 == 2 {
        let before = device.image();
        let _ = check(&*device, &options, &NoProgress);
        assert!(device.image() == before, "a check has written");
    }
    if plan & 6 == 4 {
        let seam: Arc<dyn BlockDevice> = device.clone();
        let _ = repair(&seam, &options, &environment(), &NoProgress);
    }
    let host: Option<HostId> = (plan & 8 != 0).then_some([7; 16]);
    let open = OpenOptions { host, read_only: plan & 0x70 == 0x70, ..open_options() };
    if let Ok(pool) = Pool::open(device.clone(), open, environment()) {
        use_open(choices, &pool, &device);
        if plan & 0x80 == 0 {
            let _ = pool.close();
        }
    }
    if choices.below(4) == 3 {
        let _ = check(&*device, &options, &NoProgress);
    }
}

fn use_open(choices: &mut Choices<'_>, pool: &Pool, device: &GuardedDevice) {
    let found = look_around(pool);
    for _ in 0..choices.below(24) {
        do_one(choices, pool, device, &found);
    }
    reclaim(pool);
    let _ = pool.commit();
}

/// Reclaims everything that waits for it.
///
/// # Panics
/// When it has no end.
fn reclaim(pool: &Pool) {
    for _ in 0..RECLAIM_STEPS_MAX {
        match pool.reclaim() {
            Ok(true) => {}
            Ok(false) | Err(_) => return,
        }
    }
    panic!("reclaim does not end");
}

/// Lists and reads everything, up to [`FILES_MAX`]. Returns the files and directories that it found.
fn look_around(pool: &Pool) -> Vec<Attr> {
    let _ = (pool.stat(), pool.fs_stat());
    let (mut found, mut seen, mut todo) = (Vec::new(), BTreeSet::new(), vec![Ino::ROOT]);
    while let Some(ino) = todo.pop() {
        if found.len() == FILES_MAX || !seen.insert(ino) {
            continue;
        }
        let Ok(attr) = pool.attr(ino) else { continue };
        look_at(pool, &attr);
        if attr.kind == FileKind::Directory {
            todo.extend(list(pool, ino));
        }
        found.push(attr);
    }
    found
}

/// Returns the entries of a directory.
///
/// # Panics
/// When the listing does not end, or its cookies do not rise.
fn list(pool: &Pool, directory: Ino) -> Vec<Ino> {
    let (mut named, mut names, mut last) = (Vec::new(), Vec::new(), 0);
    let _ = pool.read_directory(directory, 0, &mut |entry| {
        assert!(entry.cookie > last, "cookie {} after {last}", entry.cookie);
        last = entry.cookie;
        assert!(named.len() < ENTRIES_MAX, "a listing without end");
        named.push(entry.ino);
        names.push(entry.name.clone());
        ControlFlow::Continue(())
    });
    for name in names.iter().take(8) {
        if let Ok(attr) = pool.lookup(directory, name) {
            pool.release(attr.ino, 1);
        }
    }
    named
}

fn look_at(pool: &Pool, attr: &Attr) {
    let ino = attr.ino;
    if let Ok(names) = pool.xattr_names(ino) {
        for name in names.iter().take(8) {
            let _ = pool.xattr(ino, name);
        }
    }
    let _ = pool.xattr(ino, b"user.onefold.domain");
    match attr.kind {
        FileKind::Symlink => drop(pool.read_symlink(ino)),
        FileKind::Regular => {
            let mut into = vec![0; 70_000];
            for place in [0, 4095, attr.size_bytes.saturating_sub(5000), 1 << 31, u64::MAX - 10] {
                let _ = pool.read(ino, place, &mut into);
            }
            seek_through(pool, ino);
            let _ = pool.file_stat(ino, &NoProgress);
        }
        _ => {}
    }
}

fn seek_through(pool: &Pool, ino: Ino) {
    let mut at = 0;
    for _ in 0..SEEKS_MAX {
        let Ok(data) = pool.seek(ino, at, SeekTarget::Data) else { return };
        assert!(data >= at, "data before where it was looked for");
        let Ok(hole) = pool.seek(ino, data, SeekTarget::Hole) else { return };
        assert!(hole > data, "a hole where data begins");
        at = hole;
    }
}

fn offset(choices: &mut Choices<'_>, attr: &Attr) -> u64 {
    let end = attr.size_bytes;
    let any = choices.number();
    *choices.one_of(&[0, 4096, 4096 * 507, 4096 * 508, end, end.saturating_sub(1), end / 2, 1 << 43, any])
}

/// Makes one change of the pool.
pub(crate) fn do_one(choices: &mut Choices<'_>, pool: &Pool, device: &GuardedDevice, found: &[Attr]) {
    if found.is_empty() {
        return;
    }
    let (one, two) = (choices.one_of(found), choices.one_of(found));
    let place = offset(choices, one);
    let length = *choices.one_of(&[1, 4096, 5000, 70_000, 2_200_000, 1 << 31, u64::MAX]);
    let ino = one.ino;
    match choices.below(20) {
        0..=2 => {
            let bytes = usize::try_from(length.min(2_200_000)).expect("a few megabytes");
            let durability = if choices.below(4) == 0 { Durability::Now } else { Durability::Later };
            drop(pool.write(ino, place, &noise(choices.below(6), bytes), durability));
        }
        3 => drop(pool.write(ino, place, &[0; 9000], Durability::Later)),
        4 => {
            let size_bytes = Some(place);
            drop(pool.set_attr(ino, &SetAttr { size_bytes, ..SetAttr::default() }));
        }
        5 | 6 => {
            use AllocateMode::{Extend, KeepSize, PunchHole, ZeroRange, ZeroRangeKeepSize};
            let mode = *choices.one_of(&[Extend, KeepSize, PunchHole, ZeroRange, ZeroRangeKeepSize]);
            drop(pool.allocate(ino, place, length, mode));
        }
        7 | 8 => drop(pool.clone_range(RangePair {
            source: ino,
            source_offset: place,
            target: two.ino,
            target_offset: offset(choices, two),
            bytes: length,
        })),
        9 => {
            let made = pool.create_file(two.ino, b"new clone", &new_file(FileKind::Regular));
            if let Ok(made) = made {
                drop(pool.clone_file(ino, made.ino));
                pool.release(made.ino, 1);
            }
        }
        10 => {
            let kind = *choices.one_of(&[FileKind::Directory, FileKind::Fifo, FileKind::Regular]);
            let name = [b'n', choices.byte()];
            drop(pool.create_file(ino, &name, &new_file(kind)).map(|made| pool.release(made.ino, 1)));
        }
        11 => remove_some(choices, pool, ino),
        12 => rename_one(choices, pool, ino, two.ino),
        13 => drop(pool.link(ino, two.ino, b"another name").map(|attr| pool.release(attr.ino, 1))),
        14 => {
            let value = noise(9, usize::try_from(choices.below(66_000)).expect("small"));
            drop(pool.set_xattr(ino, b"user.hostile", &value, XattrMode::Either));
            drop(pool.set_xattr(ino, b"system.posix_acl_access", &ACL, XattrMode::Either));
        }
        15 => {
            for name in pool.xattr_names(ino).unwrap_or_default().iter().take(3) {
                drop(pool.remove_xattr(ino, name));
            }
        }
        16 => drop(pool.create_symlink(ino, b"a link", &[b'y'; 3000], 0, 0).map(|made| pool.release(made.ino, 1))),
        17 => drop(pool.checkpoint()),
        18 => drop((pool.trim(&NoProgress), pool.scrub(&ScrubOptions::default(), &NoProgress))),
        _ => {
            if let Ok(blocks) = device.block_count() {
                device.resize(blocks + 40_000);
            }
            drop(pool.grow());
        }
    }
}

fn first_name(choices: &mut Choices<'_>, pool: &Pool, directory: Ino) -> Option<Vec<u8>> {
    let (mut skip, mut name) = (2 + choices.below(6), None);
    let _ = pool.read_directory(directory, 0, &mut |entry| {
        if skip == 0 {
            name = Some(entry.name.clone());
            return ControlFlow::Break(());
        }
        skip -= 1;
        ControlFlow::Continue(())
    });
    name
}

fn remove_some(choices: &mut Choices<'_>, pool: &Pool, directory: Ino) {
    if let Some(name) = first_name(choices, pool, directory) {
        let _ = pool.unlink(directory, &name).or_else(|_| pool.remove_directory(directory, &name));
    }
    reclaim(pool);
}

fn rename_one(choices: &mut Choices<'_>, pool: &Pool, from: Ino, to: Ino) {
    let mode = *choices.one_of(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
    let Some(name) = first_name(choices, pool, from) else { return };
    let new_name = first_name(choices, pool, to).unwrap_or_else(|| b"moved".to_vec());
    let _ = pool.rename(from, &name, to, &new_name, mode);
}
