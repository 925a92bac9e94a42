//! A stand-in for the engine: the simplest thing that shares, and goes wrong in the ways in which an engine may.
//!
//! Each host scans all images, keeps a table of where it saw which content, and has equal blocks shared. What it did is
//! kept in a state file, written whole and renamed, which the next pass reads and may find stale. It clones shared
//! blocks into an arena of its own too, so that it changes files beside the images in all the ways that the trait has.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64, Clock};
use onefold_substrate::{Access, At, ComparisonResult, ListedKind, ShareError, Substrate};

const FOLDER: &str = ".onefold";
/// How many slots a host's arena has.
const SLOTS: u64 = 16;

/// Where a content was seen.
type Table = HashMap<u64, (Rc<Path>, u64)>;

/// Goes over all images once.
pub(crate) fn pass<S: Substrate>(substrate: &S, clock: &dyn Clock, host: u32) -> io::Result<()> {
    let Some(_lock) = begin(substrate, clock, host)? else { return Ok(()) };
    let mut table = Table::new();
    let mut images = Vec::new();
    find_images(substrate, Path::new(""), &mut images)?;
    // Every host has the same first place of a content then, and none undoes what another one did.
    images.sort_unstable();
    for image in images {
        match scan(substrate, &image, &mut table, host) {
            // It was renamed or removed meanwhile, or is one that may not be opened.
            Err(error) if is_about_the_image(&error) => {}
            result => result?,
        }
    }
    save(substrate, &table, host)
}

fn is_about_the_image(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput)
}

/// Makes the folder, and takes the host's lock. A host that comes back waits until its earlier self is thought dead.
fn begin<S: Substrate>(substrate: &S, clock: &dyn Clock, host: u32) -> io::Result<Option<S::File>> {
    exists_or(substrate.create_dir(Path::new(FOLDER)))?;
    let path = PathBuf::from(format!("{FOLDER}/lock{host}"));
    exists_or(substrate.create(&path).map(drop))?;
    let lock = substrate.open(&path, Access::Write)?;
    for _ in 0..4 {
        if substrate.try_lock(&lock)? {
            return Ok(Some(lock));
        }
        clock.sleep(Duration::from_secs(15));
    }
    Ok(None)
}

fn exists_or(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

fn find_images<S: Substrate>(substrate: &S, folder: &Path, images: &mut Vec<Rc<Path>>) -> io::Result<()> {
    for listed in substrate.list(folder)? {
        let path = folder.join(&listed.name);
        match listed.kind {
            ListedKind::Folder if listed.name != Path::new(FOLDER) => find_images(substrate, &path, images)?,
            ListedKind::File => images.push(path.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Reads an image where it has data, and has each block shared with the first that looked the same.
fn scan<S: Substrate>(substrate: &S, path: &Rc<Path>, table: &mut Table, host: u32) -> io::Result<()> {
    let file = substrate.open(path, Access::Write)?;
    let length = substrate.stat(&file)?.length;
    let mut from = 0;
    let mut block = [0; BLOCK_BYTES];
    loop {
        let extents = substrate.extents(&file, from)?;
        let Some(last) = extents.last() else { return Ok(()) };
        let end = last.end();
        for extent in &extents {
            for offset in (extent.offset.max(from)..extent.end()).step_by(BLOCK_BYTES) {
                if offset + BLOCK_BYTES_U64 > length || substrate.read_at(&file, offset, &mut block)? < BLOCK_BYTES {
                    return Ok(());
                }
                found(substrate, (path, &file, offset), &block, table, host)?;
            }
        }
        from = end;
    }
}

fn found<S: Substrate>(
    substrate: &S,
    (path, file, offset): (&Rc<Path>, &S::File, u64),
    block: &[u8],
    table: &mut Table,
    host: u32,
) -> io::Result<()> {
    let fingerprint = fingerprint(block);
    let Some((other, place)) = table.get(&fingerprint) else {
        table.insert(fingerprint, (Rc::clone(path), offset));
        return Ok(());
    };
    let source = match substrate.open(other, Access::Read) {
        Err(error) if is_about_the_image(&error) => {
            table.remove(&fingerprint);
            return Ok(());
        }
        source => source?,
    };
    let (at, into) = (At { file: &source, offset: *place }, At { file, offset });
    // Often what follows is equal too; where it is not, or there is no more, the block alone may be.
    let mut compared = None;
    let lengths: &[u64] = if fingerprint.is_multiple_of(2) { &[4, 1] } else { &[1] };
    for blocks in lengths {
        compared = settle(substrate.share(at, into, blocks * BLOCK_BYTES_U64))?;
        if compared == Some(ComparisonResult::Shared) {
            break;
        }
    }
    match compared {
        Some(ComparisonResult::Shared) if fingerprint.is_multiple_of(5) => keep(substrate, at, host, fingerprint),
        Some(ComparisonResult::Shared) => Ok(()),
        // Also where the two are the same place, or one may not be shared: another may do better.
        Some(ComparisonResult::Differ) | None => {
            table.insert(fingerprint, (Rc::clone(path), offset));
            Ok(())
        }
    }
}

/// Returns something like a fingerprint: of four rows of words side by side, as the processor likes it.
fn fingerprint(block: &[u8]) -> u64 {
    let mut rows = [1u64, 2, 3, 4];
    for words in block.as_chunks::<32>().0 {
        for (row, word) in rows.iter_mut().zip(words.as_chunks::<8>().0) {
            *row = (*row ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
    rows.into_iter().fold(0, |all, row| (all ^ row).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(31))
}

/// Clones a block into the arena, and sometimes drops one.
fn keep<S: Substrate>(substrate: &S, source: At<'_, S::File>, host: u32, fingerprint: u64) -> io::Result<()> {
    let path = PathBuf::from(format!("{FOLDER}/arena{host}"));
    exists_or(substrate.create(&path).map(drop))?;
    let arena = substrate.open(&path, Access::Write)?;
    if substrate.stat(&arena)?.length < SLOTS * BLOCK_BYTES_U64 {
        substrate.set_len(&arena, SLOTS * BLOCK_BYTES_U64)?;
    }
    let slot = fingerprint / 5 % SLOTS * BLOCK_BYTES_U64;
    if fingerprint.is_multiple_of(3) {
        return substrate.punch(&arena, slot, BLOCK_BYTES_U64);
    }
    settle(substrate.clone_range(source, At { file: &arena, offset: slot }, BLOCK_BYTES_U64))?;
    if fingerprint.is_multiple_of(7) { substrate.sync(&arena) } else { Ok(()) }
}

/// What cannot be shared now is left; only a failing device ends the pass.
fn settle<T>(result: Result<T, ShareError>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(ShareError::Io(error)) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
        Err(_) => Ok(None),
    }
}

/// Writes the table, in a file that is there whole or not at all.
fn save<S: Substrate>(substrate: &S, table: &Table, host: u32) -> io::Result<()> {
    let [new, path] = ["new", "state"].map(|name| PathBuf::from(format!("{FOLDER}/{name}{host}")));
    match substrate.remove(&new) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => result?,
    }
    let file = substrate.create(&new)?;
    // In order: nothing may depend on that of a hash table, or runs would not replay.
    let mut fingerprints: Vec<u64> = table.keys().copied().collect();
    fingerprints.sort_unstable();
    let entries: Vec<u8> = fingerprints.iter().flat_map(|fingerprint| fingerprint.to_le_bytes()).collect();
    substrate.write_at(&file, 0, &(entries.len() as u64).to_le_bytes())?;
    substrate.write_at(&file, 8, &entries)?;
    substrate.sync(&file)?;
    drop(file);
    substrate.rename(&new, &path)?;
    let saved = substrate.open(&path, Access::Read)?;
    let mut header = [0; 8];
    let read = substrate.read_at(&saved, 0, &mut header)?;
    assert_eq!((read, u64::from_le_bytes(header)), (8, entries.len() as u64), "a synced file was renamed");
    Ok(())
}
