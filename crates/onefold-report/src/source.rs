//! Where an analysis gets its bytes: disk images that somebody else opens and reads.

use std::ops::Range;

/// Why an image, or a part of it, cannot be read; told to the user as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(pub String);

/// The bytes of one disk. Reads come from several threads.
pub trait Source: Sync {
    /// Returns the length in bytes.
    fn size_bytes(&self) -> u64;

    /// Returns the next range at or after `offset` that may hold something else than zeros; `None` when only zeros
    /// follow. The range is not empty and does not end past the disk.
    ///
    /// # Errors
    /// When the image is damaged or its device fails.
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, SourceError>;

    /// Fills `into` from `offset`. What lies past the end reads as zeros.
    ///
    /// # Errors
    /// When the image is damaged or its device fails.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), SourceError>;

    /// Tells whether somebody changed the image since it was opened: then its numbers are of no single moment.
    fn has_changed(&self) -> bool;
}

/// What opens an image when its turn comes. It may be called several times.
pub type Open = Box<dyn Fn() -> Result<Box<dyn Source>, SourceError> + Sync>;

/// An image that is to be analysed.
pub struct Image {
    /// Its name, as results show it.
    pub name: String,
    /// About how long it is, for the time left; opening it tells exactly.
    pub about_bytes: u64,
    /// What its files occupy now.
    pub allocated_bytes: u64,
    /// Its group: an index into the names of groups.
    pub group: Option<usize>,
    /// Whether its blocks lie in a plain file, so that a file system could share them there.
    pub is_plain: bool,
    /// Opens it.
    pub open: Open,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A disk with zeros put before it: all its content lies `pad_bytes` further on.
pub(crate) struct Padded<'a> {
    source: &'a dyn Source,
    pad_bytes: u64,
}

impl<'a> Padded<'a> {
    pub(crate) fn new(source: &'a dyn Source, pad_bytes: u64) -> Padded<'a> {
        Padded { source, pad_bytes }
    }
}

impl Source for Padded<'_> {
    fn size_bytes(&self) -> u64 {
        self.source.size_bytes().saturating_add(self.pad_bytes)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, SourceError> {
        let data = self.source.next_data(offset.saturating_sub(self.pad_bytes))?;
        Ok(data.map(|data| (data.start + self.pad_bytes).max(offset)..data.end + self.pad_bytes))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), SourceError> {
        let zeros = usize::try_from(self.pad_bytes.saturating_sub(offset)).map_or(into.len(), |n| n.min(into.len()));
        let (pad, rest) = into.split_at_mut(zeros);
        pad.fill(0);
        if rest.is_empty() {
            return Ok(());
        }
        self.source.read(offset.saturating_sub(self.pad_bytes), rest)
    }

    fn has_changed(&self) -> bool {
        self.source.has_changed()
    }
}
