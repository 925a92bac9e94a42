//! Tracks how far the filter is filled after an opening, while the pool is in use.
//!
//! The stores are read a *window* of pages at a time, with no lock held, and their entries go into the filter in one
//! batch. Blocks are added and removed meanwhile. The treatment of such a change depends on the place of the block's
//! store page:
//!
//! | page is | a block is added | a block is removed |
//! |---|---|---|
//! | below the window | enters the filter | leaves it; if it is not there yet, once all entries have arrived |
//! | in the window | its page is *touched* | its page is touched |
//! | in the window, settled | enters the filter | leaves it |
//! | above the window | nothing: its page will be read | nothing |
//!
//! Bytes read of a touched page may be old, so they are dropped. Before the window is closed, the page is *settled*:
//! its entries are taken from the metadata cache under the metadata lock.

use std::collections::VecDeque;

use onefold_block::Fingerprint;

use super::Meta;
use super::shared_filter::FilterChange;
use crate::filter::{Filter, StorePageNo};

/// Maximum number of waiting removals. One beyond that is done at once, or forgotten if its entry has not arrived: the
/// entry will then name a page in vain.
const LATE_MAX: usize = 1 << 17;

/// When an entry is removed from the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemovalTime {
    /// With the operation that frees the block.
    Now,
    /// After that operation: removals would take most of the time of an operation that frees very many blocks.
    Later,
}

/// State of the filter's filling.
#[derive(Debug, Default)]
pub(crate) struct IndexingState {
    /// Store pages below this one are in the filter, or on their way into it.
    pages_ready: u64,
    /// Store pages below this one are in the filter.
    pages_complete: u64,
    /// Number of unreadable pages, which the filter will lack.
    pages_unusable: u64,
    window: Option<PageWindow>,
    /// Whether entries are on their way into the filter.
    is_arriving: bool,
    /// Removals to be done later: once all entries have arrived, or a few at a time after an operation that frees very
    /// many.
    late: VecDeque<(Fingerprint, StorePageNo)>,
}

/// The store pages that are being read.
#[derive(Debug)]
struct PageWindow {
    first: u64,
    end: u64,
    touched: PageSet,
    settled: PageSet,
}

/// A set of a window's pages.
#[derive(Debug)]
pub(crate) struct PageSet {
    first: u64,
    bits: Vec<u64>,
    count: u64,
}

impl PageSet {
    fn new(first: u64, end: u64) -> PageSet {
        let words = usize::try_from((end - first).div_ceil(64)).expect("a bit for each page fits memory");
        PageSet { first, bits: vec![0; words], count: 0 }
    }

    fn place(&self, page: u64) -> (usize, u64) {
        let at = page - self.first;
        (usize::try_from(at / 64).expect("within the window"), 1 << (at % 64))
    }

    fn add(&mut self, page: u64) {
        let (word, bit) = self.place(page);
        self.count += u64::from(self.bits[word] & bit == 0);
        self.bits[word] |= bit;
    }

    /// Returns whether the set has this page, which must be in the window.
    pub(crate) fn has(&self, page: StorePageNo) -> bool {
        if self.count == 0 {
            return false;
        }
        let (word, bit) = self.place(page.0);
        self.bits[word] & bit != 0
    }

    /// Returns the first page from `from` on that is in this set and not in `other`.
    fn next_without(&self, other: &PageSet) -> Option<u64> {
        let words = (0..).zip(self.bits.iter().zip(&other.bits));
        let found = words.map(|(at, (here, there))| (at, here & !there)).find(|(_, left)| *left != 0);
        found.map(|(at, left): (u64, u64)| self.first + at * 64 + u64::from(left.trailing_zeros()))
    }
}

impl IndexingState {
    /// Returns the first page that is neither in the filter nor on its way into it.
    pub(crate) fn pages_ready(&self) -> u64 {
        self.pages_ready
    }

    /// Returns the first page that is not in the filter.
    pub(crate) fn pages_complete(&self) -> u64 {
        self.pages_complete
    }

    /// Returns whether some stored blocks will not be found, because their entries were unreadable.
    pub(crate) fn has_unusable(&self) -> bool {
        self.pages_unusable > 0
    }

    /// Opens a window; none may be open.
    pub(crate) fn open_window(&mut self, end: u64) {
        let first = self.pages_ready;
        self.window =
            Some(PageWindow { first, end, touched: PageSet::new(first, end), settled: PageSet::new(first, end) });
    }

    /// Shortens the window: nothing has been read from `end` on.
    pub(crate) fn shorten_window(&mut self, end: u64) {
        if let Some(window) = &mut self.window {
            window.end = window.end.min(end);
        }
    }

    /// Notes that the bytes read of a page, now or later, may differ from its content.
    pub(crate) fn touch(&mut self, page: StorePageNo) {
        if let Some(window) = self.window.as_mut().filter(|window| (window.first..window.end).contains(&page.0)) {
            window.touched.add(page.0);
        }
    }

    /// Returns a touched page that is not settled.
    pub(crate) fn next_unsettled(&self) -> Option<StorePageNo> {
        let window = self.window.as_ref()?;
        window.touched.next_without(&window.settled).filter(|page| *page < window.end).map(StorePageNo)
    }

    /// Notes that all blocks of a page of the window are in the filter.
    pub(crate) fn settle(&mut self, page: StorePageNo) {
        if let Some(window) = &mut self.window {
            window.settled.add(page.0);
        }
    }

    /// Settles a page that cannot be read.
    pub(crate) fn give_up(&mut self, page: StorePageNo) {
        self.settle(page);
        self.pages_unusable += 1;
    }

    /// Closes the window. Its pages are on their way into the filter, except the returned ones, which are already
    /// there.
    pub(crate) fn close_window(&mut self) -> PageSet {
        let window = self.window.take();
        self.pages_ready = window.as_ref().map_or(self.pages_ready, |window| window.end);
        self.is_arriving = true;
        window.map_or_else(|| PageSet::new(0, 0), |window| window.touched)
    }

    /// Starts filling the filter from a saved one: all pages are on their way.
    pub(crate) fn begin_loading(&mut self, page_count: u64) {
        self.pages_ready = page_count;
        self.is_arriving = true;
    }

    /// Notes how many pages count as complete while a saved filter arrives.
    pub(crate) fn note_progress(&mut self, pages: u64) {
        self.pages_complete = pages;
    }

    /// Ends an arrival: all entries that were on their way are in the filter.
    pub(crate) fn all_arrived(&mut self) {
        self.is_arriving = false;
        self.pages_complete = self.pages_ready;
    }

    /// Notes that no page must be read: the pool has `page_count` store pages, and those in use are in the filter.
    pub(crate) fn complete(&mut self, page_count: u64) {
        self.pages_ready = page_count;
        self.pages_complete = page_count;
    }

    /// Notes that the pool has grown by empty store pages.
    pub(crate) fn grow(&mut self, page_count_before: u64, page_count: u64) {
        for pages in [&mut self.pages_ready, &mut self.pages_complete] {
            if *pages == page_count_before {
                *pages = page_count;
            }
        }
    }

    /// Returns whether waiting removals can be done now.
    pub(crate) fn has_late(&self) -> bool {
        !self.is_arriving && !self.late.is_empty()
    }

    /// Returns up to `count` waiting removals.
    pub(crate) fn take_late(&mut self, count: usize) -> Vec<(Fingerprint, StorePageNo)> {
        let count = count.min(self.late.len());
        self.late.drain(..count).collect()
    }

    /// Returns whether changes of a page's blocks go into the filter now; notes changes within the window.
    fn takes(&mut self, page: StorePageNo) -> bool {
        if page.0 < self.pages_ready {
            return true;
        }
        let is_settled = self
            .window
            .as_ref()
            .is_some_and(|window| (window.first..window.end).contains(&page.0) && window.settled.has(page));
        if !is_settled {
            self.touch(page);
        }
        is_settled
    }
}

impl IndexingState {
    /// Enters a newly stored block with this fingerprint.
    pub(crate) fn enter(&mut self, filter: &mut FilterChange<'_>, fingerprint: Fingerprint, page: StorePageNo) {
        if self.takes(page) {
            filter.insert(fingerprint, page);
        }
    }

    /// Removes a block with this fingerprint that is no longer stored. With [`RemovalTime::Later`] its entry stays
    /// until it is taken from [`IndexingState::take_late`], and names a page in vain meanwhile.
    pub(crate) fn leave(
        &mut self,
        filter: &mut FilterChange<'_>,
        fingerprint: Fingerprint,
        page: StorePageNo,
        when: RemovalTime,
    ) {
        if !self.takes(page) {
            return;
        }
        let has_room = self.late.len() < LATE_MAX;
        if when == RemovalTime::Later && has_room {
            self.late.push_back((fingerprint, page));
        } else if !self.is_arriving {
            filter.remove(fingerprint, page);
        } else if !filter.remove_if_there(fingerprint, page) && has_room {
            self.late.push_back((fingerprint, page));
        }
    }
}

impl Meta {
    /// Replaces the filter by an empty one that no store has been read into.
    pub(crate) fn begin_filter_anew(&mut self, filter: Filter) {
        *self.filter.write() = filter;
        self.indexing = IndexingState::default();
    }
}
