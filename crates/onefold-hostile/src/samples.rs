//! Sound pools to be damaged: small, with every kind of structure.

use std::sync::{Arc, OnceLock};

use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_block::{BlockDevice, BlockNo, Random};
use onefold_pool::format::BlockBytes;
use onefold_pool::format::geometry::{Geometry, SUPERBLOCK, SUPERBLOCK_COPY};
use onefold_pool::format::header::{self, BlockKind};
use onefold_pool::format::journal::TransactionIdentity;
use onefold_pool::format::superblock::{Marking, Superblock};
use onefold_pool::{
    AllocateMode, CreateOptions, Durability, Environment, FileKind, HostId, Ino, NewFile, OpenOptions, Pool, Result,
    StorePlacement, XattrMode,
};
use onefold_testing::device::{MemoryDevice, MemoryImage};

/// Memory of pools and checks, in bytes.
pub const MEMORY_BYTES: u64 = onefold_pool::MEMORY_BYTES_MIN;

/// The kinds of blocks to damage; each level of map nodes is a kind of its own.
pub const KINDS: [BlockKind; 11] = [
    BlockKind::Superblock,
    BlockKind::State,
    BlockKind::JournalHeader,
    BlockKind::Heartbeat,
    BlockKind::Bitmap,
    BlockKind::StorePage,
    BlockKind::MapNode(0),
    BlockKind::MapNode(1),
    BlockKind::MapNode(2),
    BlockKind::MapNode(3),
    BlockKind::TreePage,
];

/// A sound pool with the places of its structures.
#[derive(Debug)]
pub struct Sample {
    /// Its name, for messages.
    pub name: &'static str,
    /// The device's content.
    pub image: MemoryImage,
    /// The pool's layout.
    pub geometry: Geometry,
    /// The tag of its metadata blocks.
    pub pool_tag: u32,
    /// The identity that its transactions begin with.
    pub identity: TransactionIdentity,
    /// The places of the blocks of each of [`KINDS`]; empty for a kind that the pool lacks.
    pub places: Vec<Vec<BlockNo>>,
}

/// Returns all samples, made once.
#[must_use]
pub fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let in_groups = CreateOptions::default();
        let at_end = CreateOptions { store_placement: StorePlacement::AtEnd, ..CreateOptions::default() };
        // The minimum, as recovery reads all of it each time.
        let small_journal = CreateOptions { journal_bytes: Some(1100 * 4096), ..CreateOptions::default() };
        [
            ("closed", 6000, &in_groups, End::Close),
            ("cut", 6000, &in_groups, End::Cut),
            ("stores at the end", 8000, &at_end, End::Cut),
            ("many groups", 1 << 19, &small_journal, End::Close),
            ("version 1", 6000, &in_groups, End::Old),
        ]
        .map(|(name, blocks, options, end)| make(name, blocks, options, end).expect("a sound pool is made"))
        .into()
    })
}

/// How a sample is left.
#[derive(Clone, Copy)]
enum End {
    /// Cleanly closed: an empty journal, a saved filter.
    Close,
    /// As after a power cut: a journal to replay.
    Cut,
    /// Cleanly closed, with version 1 of the format: the next opening for writing upgrades it.
    Old,
}

/// Returns an environment in which a seed always gives the same pool.
#[must_use]
pub fn environment() -> Environment {
    Environment { clock: Arc::new(ManualClock::starting_at(1000)), random: Arc::new(SeededRandom::new(1)) }
}

/// Returns the options for opening pools: without background threads, so that the input decides when everything
/// happens.
#[must_use]
pub fn open_options() -> OpenOptions {
    OpenOptions { background: false, memory_bytes: MEMORY_BYTES, ..OpenOptions::default() }
}

fn make(name: &'static str, blocks: u64, options: &CreateOptions, end: End) -> Result<Sample> {
    let device = Arc::new(MemoryDevice::new(blocks));
    let seam: Arc<dyn BlockDevice> = device.clone();
    Pool::create(&seam, options, &environment())?;
    let host: Option<HostId> = Some([7; 16]);
    let pool = Pool::open(seam, OpenOptions { host, ..open_options() }, environment())?;
    fill(&pool)?;
    match end {
        End::Close | End::Old => pool.close()?,
        End::Cut => {
            pool.checkpoint()?;
            change(&pool)?;
        }
    }
    drop(pool);
    let mut image = device.image();
    if let End::Old = end {
        make_old(&mut image);
    }
    let superblock =
        image.get(SUPERBLOCK).and_then(|bytes| Superblock::decode(bytes, SUPERBLOCK).ok()).expect("just made");
    let pool_tag = superblock.pool_tag();
    let all = image.blocks();
    let places = KINDS.map(|kind| {
        let sound = all.iter().filter(|(at, bytes)| header::verify(bytes, pool_tag, kind, *at).is_ok());
        sound.map(|(at, _)| *at).collect()
    });
    Ok(Sample {
        name,
        geometry: superblock.geometry,
        image,
        pool_tag,
        identity: superblock.transaction_identity(),
        places: places.into(),
    })
}

/// Converts a closed pool to version 1 of the format: its metadata gets the tag that derives from the UUID.
fn make_old(image: &mut MemoryImage) {
    let decode = |bytes: &BlockBytes| Superblock::decode(bytes, SUPERBLOCK).ok();
    let new = image.get(SUPERBLOCK).and_then(|bytes| decode(bytes)).expect("just made");
    let old = Superblock { marking: Marking::Public, ..new.clone() };
    let blocks: Vec<(BlockNo, BlockBytes)> = image.blocks().iter().map(|(at, bytes)| (*at, **bytes)).collect();
    for (at, mut bytes) in blocks {
        if let Some(kind) = header::kind(&bytes)
            && header::verify(&bytes, new.pool_tag(), kind, at).is_ok()
        {
            header::stamp(&mut bytes, old.pool_tag(), kind, at);
            header::seal(&mut bytes);
            image.set(at, Arc::new(bytes));
        }
    }
    for at in [SUPERBLOCK, SUPERBLOCK_COPY] {
        image.set(at, Arc::from(old.encode(at)));
    }
}

/// Returns bytes that are equal only for equal seeds.
#[must_use]
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    SeededRandom::new(seed).fill(&mut data).expect("a seeded generator does not fail");
    data
}

/// Returns the arguments for `create_file`.
#[must_use]
pub fn new_file(kind: FileKind) -> NewFile {
    NewFile { kind, mode: 0o644, umask: 0o022, uid: 1000, gid: 1000, rdev: 0 }
}

fn add(pool: &Pool, parent: Ino, name: &str, kind: FileKind) -> Result<Ino> {
    let made = pool.create_file(parent, name.as_bytes(), &new_file(kind))?;
    pool.release(made.ino, 1);
    Ok(made.ino)
}

/// An access control list with an entry for user 7.
pub const ACL: [u8; 44] = *b"\x02\0\0\0\
    \x01\0\x07\0\xff\xff\xff\xff\x02\0\x06\0\x07\0\0\0\x04\0\x05\0\xff\xff\xff\xff\x10\0\x07\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";

fn fill(pool: &Pool) -> Result<()> {
    let images = add(pool, Ino::ROOT, "images", FileKind::Directory)?;
    let golden = add(pool, images, "golden.raw", FileKind::Regular)?;
    pool.write(golden, 0, &noise(1, 2_200_000), Durability::Later)?;
    for name in ["clone-1.raw", "clone-2.raw"] {
        let clone = add(pool, images, name, FileKind::Regular)?;
        pool.clone_file(golden, clone)?;
    }
    let changed = pool.lookup(images, b"clone-2.raw")?.ino;
    pool.write(changed, 4096 * 5, b"changed", Durability::Later)?;
    pool.release(changed, 1);
    // Four levels, and reserved places on several of them.
    let tall = add(pool, images, "tall.raw", FileKind::Regular)?;
    for place in [0, 3 << 21, 1 << 31, 1 << 43] {
        pool.write(tall, place, &noise(place, 9000), Durability::Later)?;
    }
    pool.allocate(tall, 1 << 33, 5 << 20, AllocateMode::KeepSize)?;
    let small = add(pool, Ino::ROOT, "small", FileKind::Regular)?;
    pool.write(small, 0, &noise(2, 9000), Durability::Later)?;
    pool.set_xattr(small, b"user.note", &noise(3, 5000), XattrMode::Either)?;
    pool.set_xattr(small, b"system.posix_acl_access", &ACL, XattrMode::Either)?;
    pool.set_xattr(images, b"system.posix_acl_default", &ACL, XattrMode::Either)?;
    let linked = pool.link(small, images, b"also small")?;
    pool.release(linked.ino, 1);
    let link = pool.create_symlink(Ino::ROOT, b"link", &[b'x'; 2500], 0, 0)?;
    pool.release(link.ino, 1);
    let tenant = add(pool, Ino::ROOT, "tenant", FileKind::Directory)?;
    pool.set_xattr(tenant, b"user.onefold.domain", b"7", XattrMode::Either)?;
    let own = add(pool, tenant, "own.raw", FileKind::Regular)?;
    pool.write(own, 0, &noise(1, 40_000), Durability::Later)?;
    let many = add(pool, Ino::ROOT, "many", FileKind::Directory)?;
    for number in 0..150 {
        add(pool, many, &format!("entry {number}"), FileKind::Fifo)?;
    }
    let doomed = add(pool, Ino::ROOT, "doomed", FileKind::Regular)?;
    pool.write(doomed, 0, &noise(4, 2_200_000), Durability::Later)?;
    pool.unlink(Ino::ROOT, b"doomed")?;
    // Never released, so it stays on the list of orphans.
    let orphan = pool.create_unnamed(Ino::ROOT, &new_file(FileKind::Regular))?;
    pool.write(orphan.ino, 0, &noise(5, 100_000), Durability::Later)?;
    Ok(())
}

/// Fills the journal of a sample left as by a power cut with a few transactions of all kinds of records.
fn change(pool: &Pool) -> Result<()> {
    for round in 0..3 {
        let file = add(pool, Ino::ROOT, &format!("new {round}"), FileKind::Regular)?;
        pool.write(file, round << 21, &noise(10 + round, 70_000), Durability::Now)?;
        let old = format!("entry {round}");
        let many = pool.lookup(Ino::ROOT, b"many")?;
        pool.release(many.ino, 1);
        pool.unlink(many.ino, old.as_bytes())?;
        pool.reclaim()?;
        pool.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_pool::NoProgress;
    use onefold_pool::check::{CheckOptions, check};

    #[test]
    fn every_sample_is_sound_and_every_kind_of_block_is_in_one() {
        for sample in samples() {
            let options = CheckOptions { memory_bytes: MEMORY_BYTES, verify_data: true, ..CheckOptions::default() };
            let report = check(&MemoryDevice::from(sample.image.clone()), &options, &NoProgress).unwrap();
            assert!(report.is_clean(), "{}: {report:#?}", sample.name);
        }
        for (kind, at) in KINDS.iter().zip(0..) {
            assert!(samples().iter().any(|sample| !sample.places[at].is_empty()), "{kind:?}");
        }
    }
}
