//! Scrub: reads all stored data while the pool is in use, and compares it with its fingerprints.
//!
//! Blocks are pinned while they are read. A block that is freed meanwhile is not reused until then, so the bytes read
//! are those that its entry describes. A block that does not match counts as damaged only if its entry is still the
//! same. A second walk ([`files`]) finds the affected files, and only if something is wrong. A damaged block is marked,
//! so that no later write shares it.
//!
//! Entries are compared with their bits in the bitmap: a block in use that is marked as free would be allocated one
//! day, and refused.

mod files;

use std::ops::ControlFlow;
use std::time::Duration;

use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::{AlignedBuffer, BlockNo, Timestamp};

use super::Pool;
use crate::attr::{Ino, XattrMode};
use crate::check::data::{DataBlock, mismatches, read};
use crate::check::findings::PROBLEMS_MAX;
use crate::check::{CheckProblem, CheckReport, ScrubOptions};
use crate::data::Data;
use crate::engine::Engine;
use crate::error::{PoolError, Result};
use crate::format::geometry::{ENTRIES_PER_STORE_PAGE, STORE_PAGES_PER_GROUP};
use crate::format::header::BlockKind;
use crate::format::state::Field;
use crate::format::store_page::{self, BlockUse, StoreEntry};
use crate::meta::op::damaged;
use crate::meta::{Op, OpResult};
use crate::progress::Progress;

/// Extended attribute of the root directory with the time of the last scrub, in seconds since 1970.
const SCRUBBED_XATTR: &[u8] = b"user.onefold.scrubbed";

/// Maximum sleep before the caller is asked again whether to continue.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Pins that are released when dropped.
struct BlockPins<'e> {
    engine: &'e Engine,
    blocks: Vec<DataBlock>,
}

impl Drop for BlockPins<'_> {
    fn drop(&mut self) {
        let mut meta = self.engine.meta();
        for described in &self.blocks {
            meta.in_flight.unpin(described.block);
        }
    }
}

/// Keeps the read rate below a limit.
struct ReadThrottle<'p> {
    bytes_per_second: Option<u64>,
    started: Timestamp,
    bytes_done: u64,
    progress: &'p dyn Progress,
}

impl Pool {
    /// Reads every stored block and compares it with its fingerprint; the report names the files that damaged blocks
    /// affect. Blocks written while it runs may be left out, as they are new.
    ///
    /// Continues after damage.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for a rate of 0; a pool that has stopped.
    pub fn scrub(&self, options: &ScrubOptions, progress: &dyn Progress) -> Result<CheckReport> {
        if options.bytes_per_second == Some(0) {
            return Err(PoolError::Invalid("a scrub that reads nothing in a second never ends"));
        }
        let (engine, data) = (&*self.engine, &*self.data);
        let geometry = engine.meta().geometry;
        let pages = engine.meta().state(Field::GroupsReady) * STORE_PAGES_PER_GROUP;
        let started = engine.environment.clock.now();
        let mut pace = ReadThrottle { bytes_per_second: options.bytes_per_second, started, bytes_done: 0, progress };
        let mut report = CheckReport::default();
        let total = pages * ENTRIES_PER_STORE_PAGE;
        for page_no in 0..pages {
            let bytes = match scrub_page(data, page_no, &mut report) {
                Ok(bytes) => bytes,
                Err(error) => {
                    files::add(&mut report, error)?;
                    0
                }
            };
            let done = (page_no + 1) * ENTRIES_PER_STORE_PAGE;
            if progress.update(done, total).is_break() || pace.wait(engine, bytes, done, total).is_break() {
                report.stopped = true;
                break;
            }
        }
        report.blocks_checked = report.data_blocks_hashed.min(geometry.total_blocks);
        files::name_files(engine, &mut report)?;
        Ok(report)
    }
}

impl Pool {
    /// Notes in the pool that a scrub has read all data now. A read-only pool is left as it is.
    ///
    /// # Errors
    /// See [`Pool::set_xattr`].
    pub fn note_scrub(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let seconds = self.engine.environment.clock.now().seconds.to_string();
        self.set_xattr(Ino::ROOT, SCRUBBED_XATTR, seconds.as_bytes(), XattrMode::Either)
    }

    /// Returns when a scrub last read all data, as far as the pool can tell.
    pub(super) fn scrubbed_seconds(&self) -> Option<i64> {
        let value = self.xattr(Ino::ROOT, SCRUBBED_XATTR).ok()?;
        std::str::from_utf8(&value).ok()?.parse().ok()
    }
}

/// Reads and compares all data that a store page describes. Returns the bytes read.
fn scrub_page(data: &Data, page_no: u64, report: &mut CheckReport) -> Result<u64> {
    let engine = &*data.engine;
    let pinned = pin(engine, page_no)?;
    let mut problems = read_and_compare(data, &pinned)?;
    match marked_free(engine, page_no) {
        Ok(blocks) => problems.extend(blocks.into_iter().map(|block| {
            let what = "the block is marked as free, but it is in use: it can be handed out no more";
            problem("bitmap", block, what.to_owned())
        })),
        Err(error) => drop(files::add(report, error)?),
    }
    for problem in problems {
        report.problems_total += 1;
        if report.problems.len() < PROBLEMS_MAX {
            report.problems.push(problem);
        }
    }
    report.data_blocks_hashed += pinned.blocks.len() as u64;
    Ok(pinned.blocks.len() as u64 * BLOCK_BYTES_U64)
}

fn problem(structure: &'static str, block: BlockNo, what: String) -> CheckProblem {
    CheckProblem::new(structure, Some(block), what)
}

/// Pins the data blocks that a store page describes.
fn pin(engine: &Engine, page_no: u64) -> Result<BlockPins<'_>> {
    let blocks = engine.view(|op| {
        let mut described = Vec::new();
        each_used(op, page_no, |block, entry| {
            if entry.usage == BlockUse::Data {
                let (fingerprint, domain) = (entry.fingerprint, entry.domain);
                described.push(DataBlock { block, fingerprint, domain, is_private: entry.private });
            }
        })?;
        // The last step of this operation: it cannot be repeated after this.
        for described in &described {
            op.meta.in_flight.pin(described.block);
        }
        Ok(described)
    })?;
    Ok(BlockPins { engine, blocks })
}

/// Returns the blocks that a store page marks as in use and the bitmap as free.
fn marked_free(engine: &Engine, page_no: u64) -> Result<Vec<BlockNo>> {
    engine.view(|op| {
        let mut used = Vec::new();
        each_used(op, page_no, |block, _| used.push(block))?;
        let mut wrong = Vec::new();
        for block in used {
            if !op.is_marked_used(block)? {
                wrong.push(block);
            }
        }
        Ok(wrong)
    })
}

/// Passes all used entries of a store page to `show`.
fn each_used(op: &mut Op<'_>, page_no: u64, mut show: impl FnMut(BlockNo, &StoreEntry)) -> OpResult<()> {
    let geometry = op.meta.geometry;
    let (at, first) = geometry.store_page_by_no(page_no);
    let page = op.block(at, BlockKind::StorePage)?;
    for index in 0..ENTRIES_PER_STORE_PAGE {
        let entry = store_page::entry(page, usize::try_from(index).expect("below 170"))
            .ok_or_else(|| damaged(BlockKind::StorePage.name(), at, "an entry makes no sense"))?;
        let block = first.plus(index);
        if entry.usage != BlockUse::Free && geometry.is_allocatable(block) {
            show(block, &entry);
        }
    }
    Ok(())
}

fn read_and_compare(data: &Data, pinned: &BlockPins<'_>) -> Result<Vec<CheckProblem>> {
    let (engine, described) = (&*data.engine, &pinned.blocks);
    if described.is_empty() {
        return Ok(Vec::new());
    }
    let mut buffer = AlignedBuffer::zeroed(described.len());
    let blocks: Vec<BlockNo> = described.iter().map(|one| one.block).collect();
    // Reads from the device, not from any cache: the stored bytes are what is checked.
    let unread = read(&*engine.device, &blocks, &mut buffer);
    let mut problems = Vec::new();
    for block in mismatches(|domain| engine.key(domain), described, &buffer) {
        let Some(expected) = described.iter().find(|one| one.block == block) else { continue };
        let entry = engine.view(|op| op.entry(block))?;
        if entry.usage != BlockUse::Data || entry.fingerprint != expected.fingerprint {
            continue;
        }
        // If marking fails, the pool has stopped or the entry's page is damaged; the next page reports that.
        drop(data.quarantine(block));
        let what = match unread.iter().find(|(unread, _)| *unread == block) {
            Some((_, error)) => format!("the block cannot be read: {error}"),
            None => "the content is not what was written: it does not match its fingerprint".to_owned(),
        };
        problems.push(problem("data", block, what));
    }
    Ok(problems)
}

impl ReadThrottle<'_> {
    /// Waits until `bytes` more bytes may have been read.
    fn wait(&mut self, engine: &Engine, bytes: u64, done: u64, total: u64) -> ControlFlow<()> {
        let Some(rate) = self.bytes_per_second else { return ControlFlow::Continue(()) };
        self.bytes_done += bytes;
        // At most this step's share: a clock that was set back must not stop a scrub.
        let mut left = Duration::from_secs_f64(bytes as f64 / rate as f64);
        while !left.is_zero() {
            let due = Duration::from_secs_f64(self.bytes_done as f64 / rate as f64);
            let early = due.saturating_sub(elapsed(self.started, engine.environment.clock.now()));
            let nap = early.min(left).min(SLEEP_MAX);
            if nap.is_zero() {
                break;
            }
            engine.environment.clock.sleep(nap);
            left = left.saturating_sub(nap);
            self.progress.update(done, total)?;
        }
        ControlFlow::Continue(())
    }
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    let since_1970 = |time: Timestamp| Duration::new(u64::try_from(time.seconds).unwrap_or(0), time.nanoseconds);
    since_1970(to).saturating_sub(since_1970(from))
}
