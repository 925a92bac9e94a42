//! The hint that keeps copies on write small (XFS). It is one field among attributes that the kernel sets only
//! together.
//!
//! No call sets the hint alone, and none sets attributes only if they still have the values that were read. A change
//! that another program makes between reading and setting would be lost. So this module first takes a write lease on
//! the file: a program that opens the file then waits for a moment, and makes its change afterwards. A file that
//! another program keeps open cannot be leased. For such a file, setting follows reading at once, and the attributes
//! are checked afterwards.

use std::io;
use std::thread;
use std::time::Duration;

use onefold_block::BLOCK_BYTES;
use rustix::io::Errno;

use crate::file::LinuxFile;
use crate::sys::{self, FsxAttributes};

/// Number of attempts to lease a file that another program has open: most programs have it open for a moment only.
const TAKES: u32 = 5;
const TAKE_PAUSE: Duration = Duration::from_millis(2);
/// Number of times the hint is set, as another program may overwrite it with attributes that it had read before.
const TRIES: u32 = 3;

/// The system calls that setting the hint takes.
trait Calls {
    /// Returns the attributes.
    fn read(&self) -> Result<FsxAttributes, Errno>;

    /// Sets the attributes.
    fn write(&self, attributes: FsxAttributes) -> Result<(), Errno>;

    /// Leases the file for this opening alone. Returns whether it succeeded.
    fn take(&self) -> bool;

    /// Ends the lease.
    fn give_up(&self);

    /// Waits for a program that has the file open.
    fn wait(&self);
}

impl Calls for LinuxFile {
    fn read(&self) -> Result<FsxAttributes, Errno> {
        sys::attributes(self)
    }

    fn write(&self, attributes: FsxAttributes) -> Result<(), Errno> {
        sys::set_attributes(self, attributes)
    }

    fn take(&self) -> bool {
        sys::locks::take_lease(self).is_ok()
    }

    fn give_up(&self) {
        // A lease that cannot be ended now ends when the file is closed.
        let _ = sys::locks::end_lease(self);
    }

    fn wait(&self) {
        thread::sleep(TAKE_PAUSE);
    }
}

/// Sets the hint on a file, unless the file has one. Returns whether the attributes were set.
pub(super) fn keep_copies_small(file: &LinuxFile) -> io::Result<bool> {
    Ok(set_hint(file)?)
}

fn set_hint(calls: &impl Calls) -> Result<bool, Errno> {
    if has_hint(&calls.read()?) {
        return Ok(false);
    }
    let mut is_taken = calls.take();
    for _ in 1..TAKES {
        if is_taken {
            break;
        }
        calls.wait();
        is_taken = calls.take();
    }
    let set = set_on_what_is_there(calls);
    if is_taken {
        calls.give_up();
    }
    set
}

fn set_on_what_is_there(calls: &impl Calls) -> Result<bool, Errno> {
    let mut is_set = false;
    for _ in 0..TRIES {
        let found = calls.read()?;
        if has_hint(&found) {
            break;
        }
        calls.write(FsxAttributes {
            flags: found.flags | sys::HAS_COW_EXTENT_BYTES,
            cow_extent_bytes: u32::try_from(BLOCK_BYTES).expect("a block is small"),
            ..found
        })?;
        is_set = true;
    }
    Ok(is_set)
}

fn has_hint(attributes: &FsxAttributes) -> bool {
    attributes.flags & sys::HAS_COW_EXTENT_BYTES != 0
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Another flag, which `chattr` sets.
    const NODUMP: u32 = 0x80;

    /// A change that another program makes to a file's attributes.
    type Act = Box<dyn FnOnce(&Cell<FsxAttributes>)>;

    /// A file, and another program that changes its attributes between two calls.
    struct ContendedFile {
        attributes: Cell<FsxAttributes>,
        /// Number of calls that this program makes before the other one acts.
        calls_left: Cell<u32>,
        /// The change that the other program makes; it waits while the file is leased.
        act: RefCell<Option<Act>>,
        /// Number of times the file refuses a lease.
        refusals: Cell<u32>,
        is_taken: Cell<bool>,
    }

    impl ContendedFile {
        fn step(&self) {
            let left = self.calls_left.get();
            self.calls_left.set(left.saturating_sub(1));
            if left == 0 && !self.is_taken.get() {
                self.act();
            }
        }

        fn act(&self) {
            if let Some(act) = self.act.take() {
                act(&self.attributes);
            }
        }
    }

    impl Calls for ContendedFile {
        fn read(&self) -> Result<FsxAttributes, Errno> {
            self.step();
            Ok(self.attributes.get())
        }

        fn write(&self, attributes: FsxAttributes) -> Result<(), Errno> {
            self.step();
            self.attributes.set(attributes);
            Ok(())
        }

        fn take(&self) -> bool {
            self.step();
            let refusals = self.refusals.get();
            self.refusals.set(refusals.saturating_sub(1));
            self.is_taken.set(refusals == 0);
            refusals == 0
        }

        fn give_up(&self) {
            self.is_taken.set(false);
            self.step();
        }

        fn wait(&self) {
            self.step();
        }
    }

    fn plain() -> FsxAttributes {
        FsxAttributes { flags: 1, extent_bytes: 8192, extents: 3, project: 5, cow_extent_bytes: 0, padding: [0; 8] }
    }

    /// Sets the hint while another program acts after `calls` calls. Returns the attributes that the file ends up with.
    fn among(calls: u32, refusals: u32, act: impl FnOnce(&Cell<FsxAttributes>) + 'static) -> FsxAttributes {
        let file = ContendedFile {
            attributes: Cell::new(plain()),
            calls_left: Cell::new(calls),
            act: RefCell::new(Some(Box::new(act))),
            refusals: Cell::new(refusals),
            is_taken: Cell::new(false),
        };
        set_hint(&file).unwrap();
        file.act();
        file.attributes.get()
    }

    #[test]
    fn a_change_of_another_program_is_not_lost_whenever_it_comes() {
        for refusals in 0..TAKES {
            for calls in 0..20 {
                let found = among(calls, refusals, |file| {
                    let mut change = file.get();
                    change.flags |= NODUMP;
                    change.project = 77;
                    file.set(change);
                });
                assert_eq!((found.flags & NODUMP, found.project), (NODUMP, 77), "{calls}, {refusals}: {found:?}");
                assert!(has_hint(&found) && found.cow_extent_bytes == 4096 && found.extent_bytes == 8192, "{found:?}");
            }
        }
    }

    /// A file that another program keeps open cannot be leased: a change between the two calls is lost, and no other.
    #[test]
    fn of_a_file_that_is_kept_open_one_moment_is_left() {
        let lost = (0..40).filter(|calls| {
            let found = among(*calls, u32::MAX, |file| {
                let mut change = file.get();
                change.flags |= NODUMP;
                file.set(change);
            });
            found.flags & NODUMP == 0
        });
        assert_eq!(lost.count(), 1);
    }

    /// Another program sets attributes that it had read before. They overwrite the hint, which is then set on top of
    /// them.
    #[test]
    fn the_hint_is_set_again_on_what_another_program_had_read_before() {
        let stale = |file: &Cell<FsxAttributes>| file.set(FsxAttributes { project: 9, ..plain() });
        // The writing call follows the first reading, five refusals with four pauses, and the second reading.
        let writing = 1 + 2 * TAKES - 1 + 1;
        let found = among(writing + 1, u32::MAX, stale);
        assert!(has_hint(&found) && found.project == 9, "{found:?}");
    }

    #[test]
    fn a_hint_that_somebody_has_set_stays() {
        let with_hint = FsxAttributes { flags: sys::HAS_COW_EXTENT_BYTES, cow_extent_bytes: 1 << 20, ..plain() };
        let file = ContendedFile {
            attributes: Cell::new(with_hint),
            calls_left: Cell::new(u32::MAX),
            act: RefCell::new(None),
            refusals: Cell::new(0),
            is_taken: Cell::new(false),
        };
        assert_eq!(set_hint(&file), Ok(false));
        assert_eq!(file.attributes.get().cow_extent_bytes, 1 << 20);
        // The other program sets its hint while the file refuses the lease.
        let found = among(2, 3, move |file| file.set(with_hint));
        assert_eq!(found.cow_extent_bytes, 1 << 20);
    }
}
