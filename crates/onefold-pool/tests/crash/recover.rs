//! The requirements on a pool that returns after a power cut.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_block::BlockDevice;
use onefold_pool::{Durability, Ino, OpenOptions, Pool, PoolError};

use crate::common::bench::count;
use crate::common::observe::{Tree, check_clean, check_sums, difference, seen};
use crate::common::{environment, letters, regular};

/// A recovered pool.
pub(crate) struct RecoveredPool {
    pub(crate) pool: Pool,
    /// Its visible tree.
    pub(crate) tree: Tree,
    /// How long opening it took, including reading its filter.
    pub(crate) took: Duration,
}

fn try_open(device: &Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Pool, String> {
    Pool::open(Arc::clone(device), options.clone(), environment()).map_err(|error| format!("does not open: {error}"))
}

/// Opens a pool and has its visible tree judged.
///
/// # Errors
/// The checker's findings before the opening; a failed opening; the judgement; sums that do not add up.
pub(crate) fn recover(
    device: &Arc<dyn BlockDevice>,
    options: &OpenOptions,
    judge: impl FnOnce(&Tree) -> Result<(), String>,
) -> Result<RecoveredPool, String> {
    check_clean(&**device).map_err(|problem| format!("not clean before recovery: {problem}"))?;
    let began = Instant::now();
    let pool = try_open(device, options)?;
    let took = began.elapsed();
    let tree = seen(&pool)?;
    judge(&tree)?;
    check_sums(&pool)?;
    Ok(RecoveredPool { pool, tree, took })
}

/// Completes reclaim and compares the pool's numbers with naive counts: nothing may have leaked.
///
/// # Errors
/// The leak, or the pool's error.
pub(crate) fn settle(pool: &Pool, options: &OpenOptions, tree: &Tree) -> Result<(), String> {
    let told = |error: PoolError| format!("draining: {error}");
    while pool.reclaim().map_err(told)? {}
    pool.commit().map_err(told)?;
    check_sums(pool)?;
    let stat = pool.stat().map_err(told)?;
    let (inodes, blocks) = count(tree);
    let unread = tree.values().any(|view| view.xattrs.contains_key(&b"user.unread"[..]));
    let stored = (stat.unique_bytes + stat.shared_bytes) / 4096;
    // If counts or the filter are small, equal blocks are stored more than once.
    let limits = options.test_limits;
    let shares_all = limits.references_max == u32::MAX && limits.filter_bytes_max == u64::MAX;
    let leaked = if shares_all && !unread { stored != blocks as u64 } else { stored < blocks as u64 };
    if stat.inode_count != inodes as u64 || leaked {
        return Err(format!("{inodes} inodes and {blocks} distinct blocks are seen, but {stat:?}"));
    }
    Ok(())
}

/// Uses the pool as after any crash, closes it or cuts it again, and reopens it.
///
/// # Errors
/// The problem; having no room is correct in a full pool.
pub(crate) fn use_again(
    device: &Arc<dyn BlockDevice>,
    options: &OpenOptions,
    pool: Pool,
    before: &Tree,
    close: bool,
) -> Result<(), String> {
    let told = |error: PoolError| format!("used again: {error}");
    let bytes = letters((0..20).map(|number| number * 3));
    let used = match pool.create_file(Ino::ROOT, b"after", &regular()) {
        Err(PoolError::NoSpace) => None,
        other => Some(other.map_err(told)?.ino),
    };
    let mut written = false;
    if let Some(ino) = used {
        written = match pool.write(ino, 4096, &bytes, Durability::Later) {
            Err(PoolError::NoSpace) => false,
            other => other.map(|()| true).map_err(told)?,
        };
        pool.fsync(ino).map_err(told)?;
    }
    if close {
        pool.close().map_err(told)?;
    }
    drop(pool);
    check_clean(&**device).map_err(|problem| format!("not clean after use: {problem}"))?;
    let pool = try_open(device, options)?;
    if let Some(ino) = used {
        let mut read = vec![0; bytes.len() + 4096];
        let got = pool.read(ino, 0, &mut read).map_err(told)?;
        if written && (got != read.len() || read[4096..] != bytes[..]) {
            return Err("what was written after recovery is not there".to_owned());
        }
        pool.unlink(Ino::ROOT, b"after").map_err(told)?;
    }
    settle(&pool, options, before)?;
    let after = seen(&pool)?;
    difference(&after, before).map_or(Ok(()), |difference| Err(format!("after use and reopening: {difference}")))
}
