//! Remembers which openings of files have been read from, so that the door checks the access time once per opening.
//!
//! The kernel leaves access times to a FUSE file system. Asking the pool at every read would cost a look-up each time.
//! A guest that alternates writes and reads would make `relatime` change the inode continually.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onefold_block::Timestamp;
use onefold_pool::Attr;

/// Openings that can be told apart. If two openings share a place, the door checks at most one access time too few or
/// too many.
const PLACES: usize = 1 << 16;

/// Any read updates an access time older than this.
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The openings that have not been read from yet.
pub(super) struct AccessMarks {
    next_handle: AtomicU64,
    unread: Box<[AtomicBool]>,
}

impl AccessMarks {
    pub(super) fn new() -> AccessMarks {
        AccessMarks { next_handle: AtomicU64::new(1), unread: (0..PLACES).map(|_| AtomicBool::new(false)).collect() }
    }

    /// Returns a handle for a new opening of a folder. Folders are not read like files, so the handle gets no mark.
    pub(super) fn open_folder(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a handle for a new opening of a file, not yet read from.
    pub(super) fn open(&self) -> u64 {
        let handle = self.open_folder();
        self.place(handle).store(true, Ordering::Relaxed);
        handle
    }

    /// Returns whether this is the first read of `handle`.
    pub(super) fn is_first_read(&self, handle: u64) -> bool {
        let place = self.place(handle);
        // The plain load keeps the line shared between the threads of a hot file.
        place.load(Ordering::Relaxed) && place.swap(false, Ordering::Relaxed)
    }

    fn place(&self, handle: u64) -> &AtomicBool {
        let place = usize::try_from(handle % PLACES as u64).expect("below a usize");
        &self.unread[place]
    }
}

/// Returns whether `relatime` requires a read at `now` to update the access time of a file with these attributes.
pub(super) fn relatime_wants_update(attr: &Attr, now: Timestamp) -> bool {
    attr.accessed <= attr.modified
        || attr.accessed <= attr.changed
        || now.seconds.saturating_sub(attr.accessed.seconds) >= DAY_SECONDS
}

#[cfg(test)]
mod tests {
    use onefold_pool::{Dedup, FileKind, Ino, SpaceShown};

    use super::*;

    fn attr(accessed: i64, modified: i64, changed: i64) -> Attr {
        let at = |seconds| Timestamp { seconds, nanoseconds: 0 };
        Attr {
            ino: Ino(2),
            kind: FileKind::Regular,
            mode: 0o644,
            link_count: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size_bytes: 0,
            mapped_blocks: 0,
            accessed: at(accessed),
            modified: at(modified),
            changed: at(changed),
            created: at(0),
            domain: 0,
            dedup: Dedup::On,
            space_shown: SpaceShown::ByDoor,
        }
    }

    #[test]
    fn relatime_updates_after_a_change_or_a_day() {
        let now = Timestamp { seconds: 200_000, nanoseconds: 0 };
        let recent = 199_000;
        assert!(!relatime_wants_update(&attr(recent, 1000, 1000), now), "read since the last change");
        assert!(relatime_wants_update(&attr(recent, recent, 1000), now), "content changed at the same time");
        assert!(relatime_wants_update(&attr(recent, 1000, recent + 1), now), "attributes changed later");
        assert!(relatime_wants_update(&attr(200_000 - DAY_SECONDS, 1000, 1000), now), "a day old");
        assert!(!relatime_wants_update(&attr(200_001 - DAY_SECONDS, 1000, 1000), now), "a second less");
        assert!(!relatime_wants_update(&attr(i64::MAX, 1000, 1000), now), "an access time in the future");
    }

    #[test]
    fn only_the_first_read_of_an_opening_is_marked() {
        let marks = AccessMarks::new();
        let (one, two) = (marks.open(), marks.open());
        assert!(marks.is_first_read(one));
        assert!(!marks.is_first_read(one));
        assert!(marks.is_first_read(two));
        assert!(!marks.is_first_read(two));
    }

    #[test]
    fn handles_beyond_the_places_still_work() {
        let marks = AccessMarks::new();
        let handles: Vec<u64> = (0..PLACES + 10).map(|_| marks.open()).collect();
        assert!(marks.is_first_read(handles[PLACES + 9]));
        assert!(!marks.is_first_read(handles[9]), "shares the place of the one before");
    }
}
