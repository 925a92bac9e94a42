//! The log: determines whether `$LogFile` has changes that were not applied.
//!
//! After "NTFS Documentation" of the Linux-NTFS project (`$LogFile`). Only the two restart pages are read. The log is
//! never replayed.
//!
//! | bytes of a restart page | field |
//! |---|---|
//! | 0..4, 4..8 | `RSTR`, or `CHKD` after a check; fix-ups |
//! | 16..20 | bytes of a page of this kind |
//! | 24..26 | offset of the restart area |
//! | 26..28, 28..30 | minor and major version |
//!
//! | bytes of the restart area | field |
//! |---|---|
//! | 0..8 | newest sequence number |
//! | 12..14 | first client in use; `FFFF` without one |
//! | 14..16 | flags: 2 cleanly closed |
//!
//! The page with the higher sequence number counts. A page that cannot be read may be the newer one, so the log is
//! damaged then. A log of `FF` bytes is empty: NTFS-3G and formatting leave it like this. Version 2.0 means that the
//! log is in use: Windows then keeps metadata in memory, even while it is off before a fast start.

use std::cmp::Ordering;

use super::fixups;
use super::stream::{Clusters, Stream};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::Doubt;

const SIGNATURES: [[u8; 4]; 2] = [*b"RSTR", *b"CHKD"];
const PAGE_BYTES: [u32; 8] = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];
const PAGE_BYTES_USUAL: u32 = 4096;
const NO_CLIENT: u16 = 0xffff;
const CLOSED: u16 = 2;
const VERSION_IN_USE: (u16, u16) = (2, 0);

/// Content of a restart page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RestartPage {
    sequence: u64,
    is_clean: bool,
    version: (u16, u16),
}

impl RestartPage {
    fn doubt(self) -> Option<Doubt> {
        if !self.is_clean {
            Some(Doubt::DirtyLog)
        } else if self.version == VERSION_IN_USE {
            Some(Doubt::Hibernated)
        } else {
            None
        }
    }
}

/// Content of the place of a restart page.
enum RestartContent {
    Page(RestartPage),
    Empty,
    Damaged,
}

/// Returns why the log makes its volume doubtful, if it does.
pub(super) fn doubt(log: &Stream, clusters: Clusters<'_>) -> Result<Option<Doubt>, GuestError> {
    let head = read(log, clusters, 0, PAGE_BYTES_USUAL)?;
    let stated = Bytes(&head).le32(16).filter(|stated| PAGE_BYTES.contains(stated) && !is_empty(&head));
    let page_bytes = stated.unwrap_or(PAGE_BYTES_USUAL);
    let first = decode(read(log, clusters, 0, page_bytes)?);
    let second = decode(read(log, clusters, u64::from(page_bytes), page_bytes)?);
    Ok(doubt_of(&first, &second))
}

/// Combines the content of both places. Pages are written alternately, so an unreadable one may be the newer one: a
/// loss of power while Windows begins to use the log leaves it torn, next to the older page, which is clean.
fn doubt_of(first: &RestartContent, second: &RestartContent) -> Option<Doubt> {
    match (first, second) {
        (RestartContent::Page(one), RestartContent::Page(other)) => match one.sequence.cmp(&other.sequence) {
            Ordering::Less => other.doubt(),
            Ordering::Equal => one.doubt().or(other.doubt()),
            Ordering::Greater => one.doubt(),
        },
        (RestartContent::Empty, RestartContent::Empty) => None,
        _ => Some(Doubt::JournalDamaged),
    }
}

fn read(log: &Stream, clusters: Clusters<'_>, offset: u64, length: u32) -> Result<Vec<u8>, GuestError> {
    let mut page = vec![0; length as usize];
    log.read(clusters, offset, &mut page)?;
    Ok(page)
}

fn is_empty(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == 0xff)
}

fn decode(mut page: Vec<u8>) -> RestartContent {
    if is_empty(&page) {
        return RestartContent::Empty;
    }
    let is_page = page.first_chunk().is_some_and(|signature| SIGNATURES.contains(signature));
    if !is_page || fixups::undo(&mut page).is_err() {
        return RestartContent::Damaged;
    }
    decode_page(Bytes(&page)).map_or(RestartContent::Damaged, RestartContent::Page)
}

fn decode_page(page: Bytes<'_>) -> Option<RestartPage> {
    let area = page.from(usize::from(page.le16(24)?))?;
    let is_clean = area.le16(12)? == NO_CLIENT || area.le16(14)? & CLOSED != 0;
    Some(RestartPage { sequence: area.le64(0)?, is_clean, version: (page.le16(28)?, page.le16(26)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(sequence: u64, client: u16, flags: u16, version: (u8, u8)) -> Vec<u8> {
        let mut page = vec![0; 4096];
        page[..4].copy_from_slice(b"RSTR");
        page[4..8].copy_from_slice(&[30, 0, 9, 0]);
        (page[17], page[24], page[26], page[28]) = (0x10, 48, version.1, version.0);
        page[48..56].copy_from_slice(&sequence.to_le_bytes());
        page[60..62].copy_from_slice(&client.to_le_bytes());
        page[62..64].copy_from_slice(&flags.to_le_bytes());
        page
    }

    fn doubt_of_both(first: Vec<u8>, second: Vec<u8>) -> Option<Doubt> {
        doubt_of(&decode(first), &decode(second))
    }

    fn torn(mut page: Vec<u8>) -> Vec<u8> {
        page[511] ^= 1;
        page
    }

    #[test]
    fn only_a_closed_log_is_clean() {
        let doubt_of = |page: Vec<u8>| doubt_of_both(page.clone(), page);
        assert_eq!(doubt_of(page(5, NO_CLIENT, 0, (1, 1))), None);
        assert_eq!(doubt_of(page(5, 0, CLOSED, (1, 1))), None);
        assert_eq!(doubt_of(page(5, 0, 0, (1, 1))), Some(Doubt::DirtyLog));
        assert_eq!(doubt_of(page(5, 0, CLOSED, (2, 0))), Some(Doubt::Hibernated));
        assert_eq!(doubt_of(vec![0xff; 4096]), None);
        assert_eq!(doubt_of(vec![0; 4096]), Some(Doubt::JournalDamaged));
        assert_eq!(doubt_of(torn(page(5, NO_CLIENT, 0, (1, 1)))), Some(Doubt::JournalDamaged));
    }

    #[test]
    fn the_newer_page_counts_and_a_page_alone_says_nothing() {
        let (clean, dirty) = (page(5, NO_CLIENT, 0, (1, 1)), page(9, 0, 0, (1, 1)));
        let cleaned = page(12, 0, CLOSED, (1, 1));
        for (one, other, expected) in [
            (&clean, &dirty, Some(Doubt::DirtyLog)),
            (&cleaned, &dirty, None),
            (&clean, &page(5, 0, 0, (1, 1)), Some(Doubt::DirtyLog)),
            (&clean, &torn(dirty.clone()), Some(Doubt::JournalDamaged)),
            (&clean, &vec![0xff; 4096], Some(Doubt::JournalDamaged)),
            (&torn(clean.clone()), &vec![0xff; 4096], Some(Doubt::JournalDamaged)),
        ] {
            assert_eq!(doubt_of_both(one.clone(), other.clone()), expected);
            assert_eq!(doubt_of_both(other.clone(), one.clone()), expected);
        }
    }
}
