//! Pages in memory that can refuse an access, revert an operation and count the bytes for the journal.

use std::ops::Range;

use onefold_block::{BLOCK_BYTES, BlockNo};

use super::super::{Pages, TreeError};

/// Content of the common header, which exposes a tree that touches it.
const COMMON_HEADER: [u8; 16] = [0xc5; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryError {
    Tree(TreeError),
    NoSuchPage(BlockNo),
    Refused,
}

impl From<TreeError> for MemoryError {
    fn from(error: TreeError) -> MemoryError {
        MemoryError::Tree(error)
    }
}

type Page = Box<[u8; BLOCK_BYTES]>;

enum PageUndo {
    Edit { at: usize, start: usize, old: Vec<u8> },
    Allocate { at: usize },
    Free { at: usize, old: Page },
}

#[derive(Default)]
pub(super) struct MemoryPages {
    pages: Vec<Option<Page>>,
    undo: Vec<PageUndo>,
    /// Number of accesses until one is refused.
    refuse_in: Option<usize>,
    pub(super) bytes_edited: usize,
    pub(super) edits: usize,
}

impl MemoryPages {
    /// Refuses the access after `count` more of any kind.
    pub(super) fn refuse_after(&mut self, count: usize) {
        self.refuse_in = Some(count);
    }

    /// Makes all changes final.
    pub(super) fn commit(&mut self) {
        self.refuse_in = None;
        self.undo.clear();
    }

    /// Reverts all changes since the last commit.
    pub(super) fn roll_back(&mut self) {
        self.refuse_in = None;
        for undo in std::mem::take(&mut self.undo).into_iter().rev() {
            match undo {
                PageUndo::Edit { at, start, old } => {
                    let page = self.pages[at].as_mut().unwrap();
                    page[start..start + old.len()].copy_from_slice(&old);
                }
                PageUndo::Allocate { at } => self.pages[at] = None,
                PageUndo::Free { at, old } => self.pages[at] = Some(old),
            }
        }
    }

    /// Returns the block numbers of all pages in use.
    pub(super) fn in_use(&self) -> Vec<BlockNo> {
        (0..self.pages.len()).filter(|&at| self.pages[at].is_some()).map(|at| BlockNo(at as u64)).collect()
    }

    /// Gives direct access to a page, for damaging it.
    pub(super) fn raw(&mut self, at: BlockNo) -> &mut [u8; BLOCK_BYTES] {
        self.slot(at).unwrap()
    }

    /// Returns a copy of everything.
    pub(super) fn image(&self) -> Vec<Option<Page>> {
        // A page that was allocated and reverted is as if it had never existed.
        let end = self.pages.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.pages[..end].to_vec()
    }

    pub(super) fn of_image(image: &[Option<Page>]) -> MemoryPages {
        MemoryPages { pages: image.to_vec(), ..MemoryPages::default() }
    }

    fn slot(&mut self, at: BlockNo) -> Result<&mut Page, MemoryError> {
        let index = usize::try_from(at.0).unwrap();
        self.pages.get_mut(index).and_then(Option::as_mut).ok_or(MemoryError::NoSuchPage(at))
    }

    fn count_access(&mut self) -> Result<(), MemoryError> {
        match &mut self.refuse_in {
            Some(0) => return Err(MemoryError::Refused),
            Some(count) => *count -= 1,
            None => {}
        }
        Ok(())
    }
}

impl Pages for MemoryPages {
    type Error = MemoryError;

    fn page(&mut self, at: BlockNo) -> Result<&[u8; BLOCK_BYTES], MemoryError> {
        self.count_access()?;
        self.slot(at).map(|page| &**page)
    }

    fn edit(&mut self, at: BlockNo, range: Range<usize>) -> Result<&mut [u8], MemoryError> {
        assert!(COMMON_HEADER.len() <= range.start && range.start < range.end && range.end <= BLOCK_BYTES, "{range:?}");
        self.count_access()?;
        self.bytes_edited += range.len();
        self.edits += 1;
        let old = self.slot(at)?[range.clone()].to_vec();
        self.undo.push(PageUndo::Edit { at: usize::try_from(at.0).unwrap(), start: range.start, old });
        Ok(&mut self.slot(at)?[range])
    }

    fn allocate(&mut self) -> Result<BlockNo, MemoryError> {
        self.count_access()?;
        // The lowest free number: a freed page is soon reused, which exposes stale pointers to it.
        let at = self.pages.iter().position(Option::is_none).unwrap_or_else(|| {
            self.pages.push(None);
            self.pages.len() - 1
        });
        let mut page = Box::new([0; BLOCK_BYTES]);
        page[..COMMON_HEADER.len()].copy_from_slice(&COMMON_HEADER);
        self.pages[at] = Some(page);
        self.undo.push(PageUndo::Allocate { at });
        Ok(BlockNo(at as u64))
    }

    fn free(&mut self, at: BlockNo) -> Result<(), MemoryError> {
        self.count_access()?;
        let index = usize::try_from(at.0).unwrap();
        let old = self.pages.get_mut(index).and_then(Option::take).ok_or(MemoryError::NoSuchPage(at))?;
        assert_eq!(old[..COMMON_HEADER.len()], COMMON_HEADER);
        self.undo.push(PageUndo::Free { at: index, old });
        Ok(())
    }
}
