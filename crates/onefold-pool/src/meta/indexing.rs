//! How far the filter is filled after an opening, while the pool is in use.
//!
//! The stores are read a *window* of pages at a time, with no lock held, and what they say goes into the filter in one
//! batch. Meanwhile blocks come and go. What is done with a change of a block hangs on where its store page is:
//!
//! | page is | a block comes | a block goes |
//! |---|---|---|
//! | below the window | enters the filter | leaves it; if it is not there yet, as soon as all has arrived |
//! | in the window | its page is *touched* | its page is touched |
//! | in the window, settled | enters the filter | leaves it |
//! | above the window | nothing: its page will be read | nothing |
//!
//! What was read of a touched page may be old, so it is dropped: the page is *settled*, taken in from the metadata
//! cache under the metadata lock, before the window is closed.

use std::collections::VecDeque;

use onefold_block::Fingerprint;

use super::Meta;
use super::shared_filter::FilterChange;
use crate::filter::{Filter, StorePageNo};

/// Removals that wait. One beyond them is done at once, or forgotten where its entry has not arrived: that entry will
/// name a page for nothing.
const LATE_MAX: usize = 1 << 17;

/// When an entry is taken out of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// With the operation that frees the block.
    Now,
    /// After it: of an operation that frees very many blocks most of the time would go into this.
    Later,
}

/// What the filter knows of.
#[derive(Debug, Default)]
pub(crate) struct Indexing {
    /// Store pages below this one are in the filter, or on their way there.
    pages_ready: u64,
    /// Store pages below this one are in the filter.
    pages_complete: u64,
    /// Pages that could not be read: the filter will lack them.
    pages_unusable: u64,
    window: Option<Window>,
    /// Entries are on their way into the filter.
    is_arriving: bool,
    /// Removals to be done later: when all has arrived, or a few at a time after an operation that frees very many.
    late: VecDeque<(Fingerprint, StorePageNo)>,
}

/// Store pages that are being read.
#[derive(Debug)]
struct Window {
    first: u64,
    end: u64,
    touched: Pages,
    settled: Pages,
}

/// A set of a window's pages.
#[derive(Debug)]
pub(crate) struct Pages {
    first: u64,
    bits: Vec<u64>,
    count: u64,
}

impl Pages {
    fn new(first: u64, end: u64) -> Pages {
        let words = usize::try_from((end - first).div_ceil(64)).expect("a bit for each page fits memory");
        Pages { first, bits: vec![0; words], count: 0 }
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

    /// Returns whether the set has this page, which is one of the window's.
    pub(crate) fn has(&self, page: StorePageNo) -> bool {
        if self.count == 0 {
            return false;
        }
        let (word, bit) = self.place(page.0);
        self.bits[word] & bit != 0
    }

    /// Returns the first page from `from` on that is here and not in `other`.
    fn next_without(&self, other: &Pages) -> Option<u64> {
        let words = (0..).zip(self.bits.iter().zip(&other.bits));
        let found = words.map(|(at, (here, there))| (at, here & !there)).find(|(_, left)| *left != 0);
        found.map(|(at, left): (u64, u64)| self.first + at * 64 + u64::from(left.trailing_zeros()))
    }
}

impl Indexing {
    /// Returns the first page that is not in the filter or on its way there.
    pub(crate) fn pages_ready(&self) -> u64 {
        self.pages_ready
    }

    /// Returns the first page that is not in the filter.
    pub(crate) fn pages_complete(&self) -> u64 {
        self.pages_complete
    }

    /// Returns whether some stored blocks will not be found, because their entries could not be read.
    pub(crate) fn has_unusable(&self) -> bool {
        self.pages_unusable > 0
    }

    /// Opens a window. There is none.
    pub(crate) fn open_window(&mut self, end: u64) {
        let first = self.pages_ready;
        self.window = Some(Window { first, end, touched: Pages::new(first, end), settled: Pages::new(first, end) });
    }

    /// Makes the window shorter: from `end` on nothing has been read yet.
    pub(crate) fn shorten_window(&mut self, end: u64) {
        if let Some(window) = &mut self.window {
            window.end = window.end.min(end);
        }
    }

    /// Takes note that what was, or will be, read of a page may not be what it holds.
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

    /// Takes note that all blocks of a page of the window are in the filter.
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

    /// Closes the window: its pages are on their way into the filter, but for those that are returned, which are there.
    pub(crate) fn close_window(&mut self) -> Pages {
        let window = self.window.take();
        self.pages_ready = window.as_ref().map_or(self.pages_ready, |window| window.end);
        self.is_arriving = true;
        window.map_or_else(|| Pages::new(0, 0), |window| window.touched)
    }

    /// Begins to fill the filter with what was saved: all pages are on their way there.
    pub(crate) fn begin_loading(&mut self, page_count: u64) {
        self.pages_ready = page_count;
        self.is_arriving = true;
    }

    /// Takes note of how many pages may be called complete while a saved filter arrives.
    pub(crate) fn note_progress(&mut self, pages: u64) {
        self.pages_complete = pages;
    }

    /// Ends an arrival: all that was on its way is in the filter.
    pub(crate) fn all_arrived(&mut self) {
        self.is_arriving = false;
        self.pages_complete = self.pages_ready;
    }

    /// Takes note that there is nothing to read: the pool has `page_count` store pages, those in use are in the filter.
    pub(crate) fn complete(&mut self, page_count: u64) {
        self.pages_ready = page_count;
        self.pages_complete = page_count;
    }

    /// Takes note that the pool has grown by store pages that hold nothing.
    pub(crate) fn grow(&mut self, page_count_before: u64, page_count: u64) {
        for pages in [&mut self.pages_ready, &mut self.pages_complete] {
            if *pages == page_count_before {
                *pages = page_count;
            }
        }
    }

    /// Returns whether removals wait for nothing but somebody who does them.
    pub(crate) fn has_late(&self) -> bool {
        !self.is_arriving && !self.late.is_empty()
    }

    /// Returns up to `count` removals that wait.
    pub(crate) fn take_late(&mut self, count: usize) -> Vec<(Fingerprint, StorePageNo)> {
        let count = count.min(self.late.len());
        self.late.drain(..count).collect()
    }

    /// Returns whether changes of a page's blocks go into the filter now; takes note of those in the window.
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

impl Indexing {
    /// A block with this fingerprint is stored now.
    pub(crate) fn enter(&mut self, filter: &mut FilterChange<'_>, fingerprint: Fingerprint, page: StorePageNo) {
        if self.takes(page) {
            filter.insert(fingerprint, page);
        }
    }

    /// A block with this fingerprint is stored no more. With [`Leave::Later`] its entry stays until it is taken from
    /// [`Indexing::take_late`]: meanwhile it names a page for nothing.
    pub(crate) fn leave(
        &mut self,
        filter: &mut FilterChange<'_>,
        fingerprint: Fingerprint,
        page: StorePageNo,
        when: Leave,
    ) {
        if !self.takes(page) {
            return;
        }
        let has_room = self.late.len() < LATE_MAX;
        if when == Leave::Later && has_room {
            self.late.push_back((fingerprint, page));
        } else if !self.is_arriving {
            filter.remove(fingerprint, page);
        } else if !filter.remove_if_there(fingerprint, page) && has_room {
            self.late.push_back((fingerprint, page));
        }
    }
}

impl Meta {
    /// Forgets all that the filter holds, and that any of it was read.
    pub(crate) fn begin_filter_anew(&mut self, filter: Filter) {
        *self.filter.write() = filter;
        self.indexing = Indexing::default();
    }
}
