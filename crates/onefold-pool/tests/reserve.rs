//! The emergency reserve: the last blocks are for operations that free more than they take.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::observe::{check_clean, check_sums};
use common::{environment, letters, open, quiet, regular};
use onefold_block::{BLOCK_BYTES, BlockDevice};
use onefold_pool::{
    AllocateMode, Allocation, AllocationSeam, CreateOptions, Durability, Ino, OpenOptions, Pool, PoolError, Result,
    SetAttr,
};
use onefold_testing::device::MemoryDevice;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Number of files that are removed while a process has them open: each takes an entry of the list of orphans.
const REMOVED: u64 = 3_000;
/// More than the number of blocks in the reserve.
const CLONES: u64 = 200;
/// Number of leaves of the map of one file.
const LEAVES: u64 = 100;
/// A place beyond what an inode itself holds: the file has map nodes, which clones share.
const FAR: u64 = 20;

fn create(pool: &Pool, name: &str) -> Ino {
    let ino = pool.create_file(Ino::ROOT, name.as_bytes(), &regular()).expect("there is room for a file").ino;
    pool.release(ino, 1);
    ino
}

fn truncate(pool: &Pool, ino: Ino, bytes: u64) -> Result<()> {
    pool.set_attr(ino, &SetAttr { size_bytes: Some(bytes), ..SetAttr::default() }).map(|_| ())
}

/// Writes distinct blocks until no space is left, and names until no page of the names tree is available.
fn fill(pool: &Pool, ino: Ino) {
    let mut written = 0;
    for piece in [64, 8, 1] {
        loop {
            let bytes = letters(100_000 + written..100_000 + written + piece);
            match pool.write(ino, written * BLOCK, &bytes, Durability::Later) {
                Ok(()) => written += piece,
                Err(PoolError::NoSpace) => break,
                Err(error) => panic!("after {written} blocks: {error}"),
            }
        }
    }
}

/// A full pool with clones of one file, files whose last blocks are one block, and files to be removed.
struct FullPool {
    device: Arc<dyn BlockDevice>,
    pool: Pool,
    clones: Vec<Ino>,
    equal: Vec<Ino>,
    /// A file with the same block in each leaf of its map.
    leaves: Ino,
}

fn full() -> FullPool {
    full_with(&quiet())
}

fn full_with(options: &OpenOptions) -> FullPool {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8192));
    let create_options = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
    Pool::create(&device, &create_options, &environment()).expect("a pool is made");
    let pool = open(&device, options);
    let source = create(&pool, "source");
    pool.write(source, 0, &letters(1..FAR + 1), Durability::Later).expect("fits");
    let clones = (0..CLONES).map(|number| create(&pool, &format!("clone{number}"))).collect::<Vec<_>>();
    for clone in &clones {
        pool.clone_file(source, *clone).expect("clones");
    }
    let equal = (0..CLONES).map(|number| create(&pool, &format!("equal{number}"))).collect::<Vec<_>>();
    for file in &equal {
        pool.write(*file, 0, &letters([1_000]), Durability::Later).expect("fits");
    }
    let leaves = create(&pool, "leaves");
    for number in 0..LEAVES {
        pool.write(leaves, (number * 508 + 5) * BLOCK, &letters([1_000]), Durability::Later).expect("fits");
    }
    for number in 0..REMOVED {
        create(&pool, &format!("removed{number}"));
    }
    fill(&pool, create(&pool, "filler"));
    pool.commit().expect("commits");
    FullPool { device, pool, clones, equal, leaves }
}

/// Applies a change to one file after another until no space is left. Returns the number of changed files.
fn until_refused(files: &[Ino], mut change: impl FnMut(u64, Ino) -> Result<()>) -> usize {
    let refused = (0..).zip(files).position(|(number, file)| match change(number, *file) {
        Ok(()) => false,
        Err(PoolError::NoSpace) => true,
        Err(error) => panic!("{error}"),
    });
    refused.unwrap_or(files.len())
}

/// Removes files that processes have open, each of which takes an entry of the list of orphans, and checks that the
/// space of the others is freed.
fn assert_removal_works(FullPool { device, pool, clones, .. }: FullPool) {
    let mut held = Vec::new();
    for number in 0..REMOVED {
        let name = format!("removed{number}");
        held.push(pool.lookup(Ino::ROOT, name.as_bytes()).expect("is there").ino);
        pool.unlink(Ino::ROOT, name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    truncate(&pool, clones[0], 0).expect("a truncate to nothing works on a full pool");
    pool.unlink(Ino::ROOT, b"filler").expect("an unlink works on a full pool");
    held.into_iter().for_each(|ino| pool.release(ino, 1));
    while pool.reclaim().expect("reclaims") {}
    pool.write(clones[1], 0, &letters(500_000..500_500), Durability::Now).expect("space has come back");
    check_sums(&pool).expect("adds up");
    pool.close().expect("closes");
    drop(pool);
    check_clean(&*device).expect("clean");
}

/// A guest on a clone discards a block: the map nodes on its path are copied, and no block is freed.
#[test]
fn discards_on_clones_leave_the_reserve_to_what_frees() {
    let full = full();
    let done =
        until_refused(&full.clones, |_, clone| full.pool.allocate(clone, 3 * BLOCK, BLOCK, AllocateMode::PunchHole));
    assert!(done < full.clones.len(), "{done} discards took a block each");
    assert_removal_works(full);
}

/// A truncate within a block that other files share stores the rest of the block, and frees no block.
#[test]
fn truncates_within_a_shared_block_leave_the_reserve_to_what_frees() {
    let full = full();
    let done = until_refused(&full.equal, |number, file| truncate(&full.pool, file, 100 + number));
    assert!(done < full.equal.len(), "{done} truncates took a block each");
    assert_removal_works(full);
}

/// A truncate within a block of a clone stores the rest of the block anew: the map nodes on the path to it are copied,
/// and no block is freed, because the source keeps them all.
#[test]
fn truncates_within_a_block_of_a_clone_leave_the_reserve_to_what_frees() {
    let full = full();
    let done = until_refused(&full.clones, |number, clone| truncate(&full.pool, clone, FAR * BLOCK - 100 - number));
    assert!(done < full.clones.len(), "{done} truncates took a block each");
    assert_removal_works(full);
}

/// Refuses the next page of the names tree once, as on a pool whose last blocks were taken by truncates.
#[derive(Debug, Default)]
struct PageRefusal {
    refuses_next: AtomicBool,
}

impl AllocationSeam for PageRefusal {
    fn permits(&self, what: Allocation) -> bool {
        what != Allocation::TreePage || !self.refuses_next.swap(false, Ordering::SeqCst)
    }
}

/// The reclaim list frees what a truncate removes from a map: a removal that needs a block triggers that.
#[test]
fn a_removal_without_a_block_has_reclaim_done_before_it_fails() {
    let seam = Arc::new(PageRefusal::default());
    let FullPool { pool, leaves, .. } = full_with(&OpenOptions { allocations: Some(seam.clone()), ..quiet() });
    truncate(&pool, leaves, BLOCK).expect("truncates");
    pool.commit().expect("commits");
    pool.checkpoint().expect("checkpoints");
    let pending = || pool.stat().expect("has numbers").reclaim_pending;
    let before = pending();
    assert!(before >= LEAVES - 1, "{before} wait for reclaim");
    seam.refuses_next.store(true, Ordering::SeqCst);
    for number in 0..REMOVED {
        let name = format!("removed{number}");
        pool.lookup(Ino::ROOT, name.as_bytes()).expect("is there");
        pool.unlink(Ino::ROOT, name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(!seam.refuses_next.load(Ordering::SeqCst), "no page was refused");
    assert!(pending() < before, "the removal waited for reclaim");
}

/// Operations that free at least as much as they take work in the fullest pool, even if they take first.
#[test]
fn truncates_and_discards_that_free_work_on_a_full_pool() {
    let full = full();
    let filler = full.pool.lookup(Ino::ROOT, b"filler").expect("is there");
    full.pool.release(filler.ino, 1);
    until_refused(&full.clones, |_, clone| full.pool.allocate(clone, 3 * BLOCK, BLOCK, AllocateMode::PunchHole));
    for round in 1..300 {
        let bytes = filler.size_bytes - round * 3000;
        truncate(&full.pool, filler.ino, bytes).unwrap_or_else(|error| panic!("truncate {round}: {error}"));
        full.pool
            .allocate(filler.ino, round * 5000, 9000, AllocateMode::PunchHole)
            .unwrap_or_else(|error| panic!("discard {round}: {error}"));
        if round % 20 == 0 {
            full.pool.write(filler.ino, bytes, &letters(600_000 + round..600_001 + round), Durability::Later).ok();
        }
    }
    assert_removal_works(full);
}
