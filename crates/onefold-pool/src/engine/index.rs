//! Fills the filter after a mount, from the save of the last clean close or from the fingerprint stores. The pool
//! serves meanwhile; a fingerprint that is not in the filter yet is merely not found.
//!
//! Stores are read a window at a time, several large reads side by side with no lock held, into a batch. The batch may
//! take the memory that the filter does not use yet. Then the batch goes into the filter, a few regions at a time under
//! the metadata lock. ([`crate::meta::indexing`] explains what happens to changes meanwhile.) Each call of
//! [`Engine::index_some`] does one step. The state between two steps is behind a lock of its own.
//!
//! A large step is shared with a thread that lives only for that step. Both threads read and decode stores, and the
//! second one sorts the next part of the batch while the first one brings the previous part into the filter. The second
//! thread takes no lock of the pool.

use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::device::reads_of;
use onefold_block::{AlignedBuffer, BlockNo, Fingerprint};

use super::Engine;
use super::filter_image::{FilterLoad, LoadResult};
use crate::activity::ActivityCounter;
use crate::error::{PoolError, Result};
use crate::filter::{Batch, BatchPart, KeyedPage, PackedEntry, Packer, StorePageNo};
use crate::format::BlockBytes;
use crate::format::geometry::{ENTRIES_PER_STORE_PAGE, Geometry, STORE_PAGES_PER_GROUP};
use crate::format::header::{self, BlockKind};
use crate::format::state::Field;
use crate::format::store_page::{self, BlockUse};
use crate::meta::indexing::PageSet;
use crate::meta::op::damaged;
use crate::sync;

/// Maximum number of store pages read in one step: eight stores, 6 MiB.
const PAGES_PER_STEP: u64 = 8 * STORE_PAGES_PER_GROUP;
/// If memory is short, a step may take this share of it.
const STEP_SHARE: u64 = 64;
/// With fewer pages than this, a second thread costs more than it gains.
const PAGES_FOR_TWO: u64 = 2 * STORE_PAGES_PER_GROUP;
/// The same for entries that are to be sorted.
const ENTRIES_FOR_TWO: u64 = 1 << 14;
/// In tests that look between the steps: as few pages as a small pool has.
const PAGES_PER_STEP_FEW: u64 = 16;
const WINDOW_PAGES_FEW: u64 = 50;
/// Number of regions that are written under one hold of the metadata lock: about a tenth of a millisecond.
const REGIONS_PER_HOLD: usize = 16;
/// Number of regions that are split under one hold.
const SPLITS_PER_HOLD: usize = 16;
/// Number of single entries that are entered or removed under one hold.
pub(super) const ENTRIES_PER_HOLD: usize = 64;
/// Number of holds in one step, and in tests that look between the steps.
const HOLDS_PER_STEP: usize = 32;
const HOLDS_PER_STEP_FEW: usize = 3;
/// Memory of an entry in a batch, in bytes.
const BATCH_ENTRY_BYTES: u64 = 8;
/// A batch may take this share of the filter's memory, however full the filter is.
const BATCH_SHARE_MIN: u64 = 16;

/// The state of filling the filter.
#[derive(Default)]
pub(crate) enum IndexStage {
    /// No work is in progress: the next window is still to be opened, or all is done.
    #[default]
    Idle,
    /// A saved filter is being read.
    Loading(FilterLoad),
    /// A window's stores are being read.
    Reading(WindowRead),
    /// The batch goes into the filter.
    Arriving(FilterInsertion),
}

/// A window whose stores are being read.
pub(crate) struct WindowRead {
    batch: Batch,
    entries_max: u64,
    next: u64,
    end: u64,
    pages_per_step: u64,
}

/// The content of store pages.
#[derive(Default)]
struct PackedPages {
    entries: Vec<PackedEntry>,
    unusable: Vec<StorePageNo>,
    pages_read: u64,
}

/// Entries on their way into the filter.
#[derive(Default)]
pub(crate) struct FilterInsertion {
    batch: Option<Batch>,
    /// Pages whose entries are in the filter already.
    skipped: Option<PageSet>,
    part: Option<BatchPart>,
    /// The next part, sorted already.
    part_ahead: Option<BatchPart>,
    /// Number of entries that the filter will hold. Regions for all of them are made first.
    total: u64,
    /// Entries of another filter.
    others: Vec<KeyedPage>,
    is_saved: bool,
}

impl FilterInsertion {
    /// Takes the next part out of the batch. Drops the batch when it has no more.
    fn take_part(&mut self) -> Option<BatchPart> {
        let skipped = &self.skipped;
        let part = self.batch.as_mut()?.take_part(|page| skipped.as_ref().is_some_and(|pages| pages.has(page)));
        if part.is_none() {
            self.batch = None;
        }
        part
    }
}

impl Engine {
    /// Does one more step. Returns false when the filter is complete.
    ///
    /// # Errors
    /// Device errors. The filter then stays incomplete, which costs only savings.
    pub(crate) fn index_some(&self) -> Result<bool> {
        let mut stage = self.indexer.lock();
        let next = match &mut *stage {
            IndexStage::Idle => match self.begin_window() {
                None => return Ok(false),
                next => next,
            },
            IndexStage::Loading(loading) => match self.load_some(loading) {
                LoadResult::Unfinished => None,
                LoadResult::GivenUp => Some(IndexStage::Idle),
                LoadResult::InForce { others } => {
                    Some(IndexStage::Arriving(FilterInsertion { others, is_saved: true, ..FilterInsertion::default() }))
                }
            },
            IndexStage::Reading(reading) => self.read_stores(reading)?,
            IndexStage::Arriving(arriving) => self.let_arrive(arriving),
        };
        if let Some(next) = next {
            *stage = next;
        }
        Ok(true)
    }

    /// Completes the arrival of a saved filter, so that a close soon after an opening does not lose it.
    pub(crate) fn end_loading(&self) -> Result<()> {
        loop {
            let is_saved = match &*self.indexer.lock() {
                IndexStage::Loading(_) => true,
                IndexStage::Arriving(arriving) => arriving.is_saved,
                IndexStage::Idle | IndexStage::Reading(_) => false,
            };
            if !is_saved || !self.index_some()? {
                return Ok(());
            }
        }
    }

    /// Opens the next window. `None` if all entries are in the filter.
    fn begin_window(&self) -> Option<IndexStage> {
        let mut meta = self.meta();
        let meta = &mut *meta;
        let (geometry, first) = (meta.geometry, meta.indexing.pages_ready());
        let pages = meta.state(Field::GroupsReady) * STORE_PAGES_PER_GROUP;
        if first >= pages {
            // Groups that are not ready are empty. Once they are ready, writes enter their blocks.
            meta.indexing.complete(geometry.store_page_count());
            return None;
        }
        let in_few_steps = self.options.test_limits.index_in_steps;
        let memory_bytes = self.filter_options(&geometry).memory_bytes_max;
        let memory_left = memory_bytes.saturating_sub(meta.filter.read().memory_bytes());
        // At least one: a window without entries would be opened again for ever.
        let entries_max = (memory_left.max(memory_bytes / BATCH_SHARE_MIN) / BATCH_ENTRY_BYTES).max(1);
        let known = {
            let filter = meta.filter.read();
            filter.entry_count() + filter.refused_count()
        };
        let entries_left = meta.state(Field::DataBlocks).saturating_sub(known);
        let pages_max = if in_few_steps { WINDOW_PAGES_FEW } else { Batch::pages_max(&meta.filter.read()) };
        let end = pages.min(first + pages_max);
        meta.indexing.open_window(end);
        // The device has older versions of these pages.
        for (block, kind) in meta.cache.blocks_not_home() {
            if kind == BlockKind::StorePage
                && let Some(page) = geometry.number_of_store_page(block)
            {
                meta.indexing.touch(StorePageNo(page));
            }
        }
        let batch = Batch::new(&meta.filter.read(), StorePageNo(first), entries_left.min(entries_max));
        let pages_affordable = self.options.memory_bytes / STEP_SHARE / BLOCK_BYTES_U64;
        let pages_per_step = match in_few_steps {
            true => PAGES_PER_STEP_FEW,
            false => pages_affordable.clamp(STORE_PAGES_PER_GROUP, PAGES_PER_STEP),
        };
        Some(IndexStage::Reading(WindowRead { batch, entries_max, next: first, end, pages_per_step }))
    }

    fn read_stores(&self, reading: &mut WindowRead) -> Result<Option<IndexStage>> {
        if reading.next < reading.end && reading.batch.entry_count() < reading.entries_max {
            let pages: Vec<u64> = (reading.next..reading.end.min(reading.next + reading.pages_per_step)).collect();
            reading.next += pages.len() as u64;
            let unusable = self.read_pages(&pages, &mut reading.batch);
            if !unusable.is_empty() {
                let mut meta = self.meta();
                unusable.into_iter().for_each(|page| meta.indexing.touch(page));
            }
            return Ok(None);
        }
        self.meta().indexing.shorten_window(reading.next);
        self.settle_window()?;
        let mut meta = self.meta();
        if meta.indexing.next_unsettled().is_some() {
            // A page was touched just now.
            return Ok(None);
        }
        let skipped = Some(meta.indexing.close_window());
        let batch = std::mem::replace(&mut reading.batch, Batch::new(&meta.filter.read(), StorePageNo(0), 0));
        let total = meta.filter.read().entry_count() + batch.entry_count();
        Ok(Some(IndexStage::Arriving(FilterInsertion {
            batch: Some(batch),
            skipped,
            total,
            ..FilterInsertion::default()
        })))
    }

    /// Reads store pages past the cache, and adds their shareable blocks to the batch. Returns the pages that are
    /// unusable as read: torn by a concurrent write, or damaged.
    fn read_pages(&self, pages: &[u64], batch: &mut Batch) -> Vec<StorePageNo> {
        let (geometry, pool_tag) = {
            let meta = self.meta();
            (meta.geometry, meta.pool_tag)
        };
        let packer = batch.packer();
        let read = |pages: &[u64]| self.read_and_pack(pages, &geometry, pool_tag, packer);
        let pages_min = if self.options.test_limits.index_in_steps { 2 } else { PAGES_FOR_TWO };
        let (one, other) = if (pages.len() as u64) < pages_min {
            (read(pages), PackedPages::default())
        } else {
            let (mine, theirs) = pages.split_at(pages.len() / 2);
            with_second_thread(|| read(mine), || read(theirs))
        };
        self.activity.add(ActivityCounter::MetadataBlocksRead, one.pages_read + other.pages_read);
        one.entries.into_iter().chain(other.entries).for_each(|entry| batch.add_packed(entry));
        [one.unusable, other.unusable].concat()
    }

    /// Reads some of the pages. Takes no lock.
    fn read_and_pack(&self, pages: &[u64], geometry: &Geometry, pool_tag: u32, packer: Packer) -> PackedPages {
        let places: Vec<BlockNo> = pages.iter().map(|page| geometry.store_page_by_no(*page).0).collect();
        let mut buffer = AlignedBuffer::zeroed(places.len());
        let mut packed = PackedPages::default();
        if self.device.read_batch(&mut reads_of(&places, &mut buffer)).is_err() {
            packed.unusable = pages.iter().copied().map(StorePageNo).collect();
            return packed;
        }
        packed.pages_read = places.len() as u64;
        packed.entries.reserve_exact(places.len() * usize::try_from(ENTRIES_PER_STORE_PAGE).expect("170"));
        let mut found = Vec::new();
        for ((&page, &at), bytes) in pages.iter().zip(&places).zip(buffer.blocks()) {
            let page = StorePageNo(page);
            let is_sound = header::verify(bytes, pool_tag, BlockKind::StorePage, at).is_ok();
            if !is_sound || findable(bytes, &mut found).is_none() {
                packed.unusable.push(page);
                continue;
            }
            packed.entries.extend(found.iter().map(|&fingerprint| packer.pack(fingerprint, page)));
        }
        packed
    }

    /// Enters pages that have changed since the window was opened, in the version of the cache.
    ///
    /// Leaves out a damaged page; an operation that uses it reports the damage.
    fn settle_window(&self) -> Result<()> {
        for _ in 0..HOLDS_PER_STEP {
            let Some(page) = self.meta().indexing.next_unsettled() else { return Ok(()) };
            let mut found = Vec::new();
            let settled = self.view_in_background(|op| {
                let (at, _) = op.meta.geometry.store_page_by_no(page.0);
                findable(op.block(at, BlockKind::StorePage)?, &mut found)
                    .ok_or_else(|| damaged(BlockKind::StorePage.name(), at, "an entry makes no sense"))?;
                for &fingerprint in &found {
                    let _ = op.meta.filter.write().insert(fingerprint, page);
                }
                op.meta.indexing.settle(page);
                Ok(())
            });
            match settled {
                Err(PoolError::Damaged { .. }) => self.meta().indexing.give_up(page),
                settled => settled?,
            }
        }
        Ok(())
    }

    /// Brings some of the batch into the filter, and has a second thread sort the next part meanwhile.
    fn let_arrive(&self, arriving: &mut FilterInsertion) -> Option<IndexStage> {
        if arriving.part.is_some() && arriving.part_ahead.is_none() {
            arriving.part_ahead = arriving.take_part();
        }
        let level = self.filter.read().level();
        let entries_min = if self.options.test_limits.index_in_steps { 1 } else { ENTRIES_FOR_TWO };
        let is_worth_it = |part: &mut BatchPart| !part.is_sorted_by(level) && part.entries_left() >= entries_min;
        let Some(mut ahead) = arriving.part_ahead.take_if(is_worth_it) else {
            return self.let_in(arriving, false);
        };
        let sort = move || {
            ahead.sort(level);
            ahead
        };
        let (next, ahead) = with_second_thread(|| self.let_in(arriving, true), sort);
        arriving.part_ahead = Some(ahead);
        next
    }

    /// Brings some of the batch into the filter. If the next part `is_away`, stops after the present one.
    fn let_in(&self, arriving: &mut FilterInsertion, is_away: bool) -> Option<IndexStage> {
        let in_few_steps = self.options.test_limits.index_in_steps;
        for _ in 0..if in_few_steps { HOLDS_PER_STEP_FEW } else { HOLDS_PER_STEP } {
            let mut meta = self.meta();
            if arriving.batch.is_some() && meta.filter.write().make_regions(arriving.total, SPLITS_PER_HOLD) {
                sync::unlock_fairly(meta);
                continue;
            }
            if let Some(part) = &mut arriving.part {
                let level = meta.filter.read().level();
                if !part.is_sorted_by(level) {
                    drop(meta);
                    part.sort(level);
                    continue;
                }
                meta.filter.write().absorb(part, REGIONS_PER_HOLD);
                if part.is_done() {
                    arriving.part = None;
                }
                sync::unlock_fairly(meta);
                continue;
            }
            if is_away {
                return None;
            }
            if arriving.part_ahead.is_some() || arriving.batch.is_some() {
                drop(meta);
                arriving.part = arriving.part_ahead.take().or_else(|| arriving.take_part());
                continue;
            }
            if !arriving.others.is_empty() {
                for entry in arriving.others.drain(arriving.others.len().saturating_sub(ENTRIES_PER_HOLD)..) {
                    let _ = meta.filter.write().insert_keyed(entry);
                }
                sync::unlock_fairly(meta);
                continue;
            }
            let late = meta.indexing.take_late(ENTRIES_PER_HOLD);
            if late.is_empty() {
                meta.indexing.all_arrived();
                return Some(IndexStage::Idle);
            }
            meta.filter.write().remove_each(&late);
            sync::unlock_fairly(meta);
        }
        None
    }

    /// Gives up a saved filter that is still being read, because its blocks are needed. The filter is then rebuilt.
    /// Returns false if there is no such filter.
    pub(crate) fn give_up_saved_filter(&self) -> bool {
        let mut stage = self.indexer.lock();
        let IndexStage::Loading(loading) = &mut *stage else { return false };
        self.give_up_loading(loading);
        *stage = IndexStage::Idle;
        true
    }

    /// Returns the number of groups whose fingerprints are not in the filter yet.
    pub(crate) fn groups_pending(&self) -> u64 {
        let meta = self.meta();
        let ready = meta.state(Field::GroupsReady);
        let pending = ready.saturating_sub(meta.indexing.pages_complete() / STORE_PAGES_PER_GROUP);
        // A page that could not be read will be missing in the end, too.
        pending.max(u64::from(meta.indexing.has_unusable()))
    }
}

/// Calls two functions at the same time, the second one on a thread of its own if one can be started. Returns both
/// results.
fn with_second_thread<A, B: Send>(mine: impl FnOnce() -> A, theirs: impl FnOnce() -> B + Send) -> (A, B) {
    // If no thread can be started, the job stays here. This is not one of the pool's locks, as no thread ever waits for
    // it.
    let theirs = std::sync::Mutex::new(Some(theirs));
    let run = || {
        let job = theirs.lock().expect("no holder panics").take();
        job.expect("it is run once")()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("pool-helper".to_owned()).spawn_scoped(scope, run);
        let mine = mine();
        let theirs = match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => run(),
        };
        (mine, theirs)
    })
}

/// Replaces `found` with the fingerprints of a page's shareable blocks. `None` if an entry is invalid.
fn findable(page: &BlockBytes, found: &mut Vec<Fingerprint>) -> Option<()> {
    found.clear();
    for index in 0..usize::try_from(ENTRIES_PER_STORE_PAGE).expect("170") {
        let entry = store_page::entry(page, index)?;
        if entry.usage == BlockUse::Data && !entry.private {
            found.push(entry.fingerprint);
        }
    }
    Some(())
}
