//! Sharing in two steps, end to end on a real file system: one that does so like OCFS2 is made of XFS, which does not.
//! A share punches first; the host may die there.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::time::Duration;

use onefold_block::clock::{Clock, ManualClock, SystemClock};
use onefold_block::random::SystemRandom;
use onefold_block::{BLOCK_BYTES, Timestamp};
use onefold_linux::{LinuxFile, LinuxSubstrate};
use onefold_share::mend::{DoubtfulImagePolicy, MendOutcome, MendReport, Patience, mend, mend_patiently};
use onefold_share::pace::Pace;
use onefold_share::pass::{PassError, PassOptions, PassReport, pass};
use onefold_share::scan::{ScanOptions, ScanReport, scan};
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_share::state::locks::Subject;
use onefold_substrate::{
    Abilities, Access, At, ComparisonResult, CopyHints, Exclusive, FileHandle, FileStat, Files, FolderEntry, Locks,
    MappedExtent, Names, Protection, Room, ShareError, Sharing, UserNo, WholeExtents,
};

use super::ground::{Ground, K, XFS, no_child, on, random_blocks};

/// A host on XFS that shares as on OCFS2.
struct TwoStepHost<'a> {
    inner: &'a LinuxSubstrate,
    abilities: Abilities,
    /// So many shares come to their end, and in the middle of the next one the host dies.
    shares_left: Cell<u32>,
    /// What the share says in whose middle something went wrong, where the host does not die.
    outcome: Option<Result<(), io::ErrorKind>>,
    is_dead: Cell<bool>,
    /// In the middle of which call another process gets the image that is held for exclusive use, having waited for it.
    loses_lease_in: Cell<Option<LongCall>>,
    is_lease_lost: Cell<bool>,
    /// What was done after that: calls that change a file.
    done_without_lease: RefCell<Vec<&'static str>>,
    /// What was made ready to be cloned, and what was cloned: files and ranges.
    prepared: RefCell<Vec<CloneSource>>,
    cloned: RefCell<Vec<CloneSource>>,
}

/// A call that takes as long as another process waits at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LongCall {
    /// A clone, which fails in the end.
    Clone,
    SetModified,
    Sync,
    /// Opening a file of this name.
    Open(&'static str),
}

/// What is cloned: a file, an offset in it and a length, in bytes.
type CloneSource = (FileHandle, u64, u64);

impl<'a> TwoStepHost<'a> {
    fn new(inner: &'a LinuxSubstrate, shares_left: u32) -> TwoStepHost<'a> {
        let abilities = Abilities { shares_in_two_steps: true, ..inner.abilities().clone() };
        TwoStepHost {
            inner,
            abilities,
            shares_left: Cell::new(shares_left),
            outcome: None,
            is_dead: Cell::new(false),
            loses_lease_in: Cell::new(None),
            is_lease_lost: Cell::new(false),
            done_without_lease: RefCell::default(),
            prepared: RefCell::default(),
            cloned: RefCell::default(),
        }
    }

    /// The dead do nothing.
    fn alive(&self) -> io::Result<&'a LinuxSubstrate> {
        if self.is_dead.get() { Err(io::ErrorKind::NotConnected.into()) } else { Ok(self.inner) }
    }

    /// Tells whether the lease is lost in the middle of this call.
    fn takes_long(&self, call: LongCall) -> bool {
        let is_it = self.loses_lease_in.get() == Some(call) && !self.is_lease_lost.get();
        self.is_lease_lost.set(is_it || self.is_lease_lost.get());
        is_it
    }

    fn note_change(&self, call: &'static str) {
        if self.is_lease_lost.get() {
            self.done_without_lease.borrow_mut().push(call);
        }
    }
}

impl Files for TwoStepHost<'_> {
    type File = LinuxFile;

    fn user(&self) -> UserNo {
        self.inner.user()
    }

    fn protection(&self, file: &LinuxFile) -> io::Result<Protection> {
        self.alive()?.protection(file)
    }

    fn set_mode(&self, file: &LinuxFile, mode: u32) -> io::Result<()> {
        self.alive()?.set_mode(file, mode)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<LinuxFile> {
        if let Some(LongCall::Open(name)) = self.loses_lease_in.get().filter(|_| path.ends_with("locks/sweep.0")) {
            self.takes_long(LongCall::Open(name));
        }
        self.alive()?.open(path, access)
    }

    fn open_handle(&self, handle: &FileHandle, access: Access) -> io::Result<LinuxFile> {
        self.alive()?.open_handle(handle, access)
    }

    fn create(&self, path: &Path) -> io::Result<LinuxFile> {
        self.alive()?.create(path)
    }

    fn stat(&self, file: &LinuxFile) -> io::Result<FileStat> {
        self.alive()?.stat(file)
    }

    fn read_at(&self, file: &LinuxFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.alive()?.read_at(file, offset, into)
    }

    fn write_at(&self, file: &LinuxFile, offset: u64, from: &[u8]) -> io::Result<()> {
        self.note_change("write");
        self.alive()?.write_at(file, offset, from)
    }

    fn set_len(&self, file: &LinuxFile, length: u64) -> io::Result<()> {
        self.alive()?.set_len(file, length)
    }

    fn sync(&self, file: &LinuxFile) -> io::Result<()> {
        self.takes_long(LongCall::Sync);
        self.alive()?.sync(file)
    }

    fn set_modified(&self, file: &LinuxFile, modified: Timestamp) -> io::Result<()> {
        let done = self.alive()?.set_modified(file, modified);
        self.takes_long(LongCall::SetModified);
        done
    }
}

impl Names for TwoStepHost<'_> {
    fn keep_folder(&self, folder: &Path) -> io::Result<Protection> {
        self.alive()?.keep_folder(folder)
    }

    fn is_folder_kept(&self, folder: &Path) -> io::Result<bool> {
        self.alive()?.is_folder_kept(folder)
    }

    fn set_folder_mode(&self, folder: &Path, mode: u32) -> io::Result<()> {
        self.alive()?.set_folder_mode(folder, mode)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.alive()?.create_dir(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.alive()?.link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.alive()?.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.alive()?.remove(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        self.alive()?.list(folder)
    }
}

impl Locks for TwoStepHost<'_> {
    fn try_lock(&self, file: &LinuxFile) -> io::Result<bool> {
        self.alive()?.try_lock(file)
    }
}

impl Sharing for TwoStepHost<'_> {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn extents(&self, file: &LinuxFile, from: u64) -> io::Result<Vec<MappedExtent>> {
        self.alive()?.extents(file, from)
    }

    fn share(
        &self,
        source: At<'_, LinuxFile>,
        into: At<'_, LinuxFile>,
        length: u64,
    ) -> Result<ComparisonResult, ShareError> {
        let inner = self.alive()?;
        self.note_change("share");
        let [ours, theirs] = [source, into].map(|at| {
            let mut bytes = vec![0; usize::try_from(length).unwrap()];
            inner.read_at(at.file, at.offset, &mut bytes).map(|_| bytes)
        });
        if ours? != theirs? {
            return Ok(ComparisonResult::Differ);
        }
        let modified = inner.stat(into.file)?.modified;
        inner.punch(into.file, into.offset, length)?;
        inner.set_modified(into.file, modified)?;
        inner.sync(into.file)?;
        if self.shares_left.get() == 0 {
            return match self.outcome {
                Some(Ok(())) => Ok(ComparisonResult::Shared),
                Some(Err(kind)) => Err(ShareError::Io(kind.into())),
                None => {
                    self.is_dead.set(true);
                    Err(ShareError::Io(io::ErrorKind::NotConnected.into()))
                }
            };
        }
        self.shares_left.set(self.shares_left.get() - 1);
        inner.clone_range(source, into, length)?;
        inner.set_modified(into.file, modified)?;
        Ok(ComparisonResult::Shared)
    }

    fn clone_range(&self, source: At<'_, LinuxFile>, into: At<'_, LinuxFile>, length: u64) -> Result<(), ShareError> {
        let handle = self.alive()?.stat(source.file)?.handle;
        self.cloned.borrow_mut().push((handle, source.offset, length));
        if self.takes_long(LongCall::Clone) {
            return Err(ShareError::Io(io::ErrorKind::Other.into()));
        }
        self.alive()?.clone_range(source, into, length)
    }

    fn punch(&self, file: &LinuxFile, offset: u64, length: u64) -> io::Result<()> {
        self.alive()?.punch(file, offset, length)
    }

    fn room(&self) -> io::Result<Room> {
        self.alive()?.room()
    }
}

impl Exclusive for TwoStepHost<'_> {
    fn try_exclusive(&self, file: &LinuxFile) -> io::Result<bool> {
        self.alive()?.try_exclusive(file)
    }

    fn is_exclusive_wanted(&self, file: &LinuxFile) -> bool {
        self.is_lease_lost.get() || self.inner.is_exclusive_wanted(file)
    }

    fn is_exclusive_lost(&self, _: &LinuxFile) -> bool {
        self.is_lease_lost.get()
    }

    fn leave_exclusive(&self, file: &LinuxFile) {
        self.inner.leave_exclusive(file);
    }

    fn prepare_clone(&self, source: At<'_, LinuxFile>, length: u64, scratch: &LinuxFile) -> Result<(), ShareError> {
        let handle = self.alive()?.stat(source.file)?.handle;
        self.prepared.borrow_mut().push((handle, source.offset, length));
        LinuxSubstrate::clone_whole_extents(source, length, scratch)
    }
}

impl WholeExtents for TwoStepHost<'_> {}

impl CopyHints for TwoStepHost<'_> {}

fn scan_all(state: &State<'_, TwoStepHost<'_>>, files: &mut Marks) -> ScanReport {
    let pace = Pace::unlimited();
    let options = ScanOptions { threads: 1, ..ScanOptions::new(&pace) };
    scan(state, files, &options).unwrap()
}

fn scan_and_pass(substrate: &TwoStepHost<'_>) -> Result<PassReport, PassError> {
    let state = State::open(substrate, &SystemClock, &SystemRandom, &|_| {})?;
    let mut files = Marks::load(&state)?;
    let pace = Pace::unlimited();
    scan_all(&state, &mut files);
    let options = PassOptions {
        memory_bytes: 16 << 20,
        call_bytes: 4 * K,
        ..PassOptions::new(Path::new("/var/tmp"), &pace, &SystemClock)
    };
    pass(&state, &mut files, &options)
}

fn mended(substrate: &LinuxSubstrate, doubtful: DoubtfulImagePolicy) -> MendReport {
    let host = TwoStepHost::new(substrate, u32::MAX);
    let state = State::open(&host, &SystemClock, &SystemRandom, &|_| {}).unwrap();
    mend(&state, doubtful).unwrap()
}

/// Runs a test on XFS, while no program is started: locks of a host that died are free then, or at once.
fn on_xfs(test: impl Fn(&Ground)) {
    on(XFS, |ground| {
        let _no_child = no_child();
        test(ground);
    });
}

/// Makes two images that are equal but for a few blocks; returns what is in them.
fn images(ground: &Ground) -> [Vec<u8>; 2] {
    let one = random_blocks(1, 64);
    let mut other = one.clone();
    other[20 * BLOCK_BYTES..22 * BLOCK_BYTES].fill(7);
    other[40 * BLOCK_BYTES..43 * BLOCK_BYTES].fill(0);
    for (name, content) in [("one", &one), ("other", &other)] {
        drop(ground.file(name, content));
    }
    [one, other]
}

/// What is left of the images after the host died in the middle of a share.
fn die(ground: &Ground, shares: u32) {
    let host = TwoStepHost::new(&ground.substrate, shares);
    assert!(scan_and_pass(&host).is_err() && host.is_dead.get(), "after {shares} shares");
}

fn are_whole(ground: &Ground, contents: &[Vec<u8>; 2]) -> bool {
    ["one", "other"].iter().zip(contents).all(|(name, content)| ground.content(name) == *content)
}

#[test]
fn what_a_host_that_died_has_punched_is_put_back() {
    on_xfs(|ground| {
        let contents = images(ground);
        // The first share of all is of zeros, which leaves nothing that was not there before.
        for shares in [1, 1, 7] {
            die(ground, shares);
            assert!(!are_whole(ground, &contents), "the share has left a hole");
            // The pass waits for a process that is in the way.
            let opened = ground.open("other", Access::Read);
            let busy = mended(&ground.substrate, DoubtfulImagePolicy::Keep);
            assert!(matches!(busy.images[..], [ref image] if matches!(image.became, MendOutcome::Busy)), "{busy:?}");
            drop(opened);
            let before = ground.substrate.stat(&ground.open("other", Access::Read)).unwrap();
            let done = mended(&ground.substrate, DoubtfulImagePolicy::Keep);
            let [image] = &done.images[..] else { panic!("{done:?}") };
            assert!(matches!(image.became, MendOutcome::Whole) && image.filled > 0, "{done:?}");
            assert_eq!(image.path, Path::new("other"));
            assert!(are_whole(ground, &contents));
            let after = ground.substrate.stat(&ground.open("other", Access::Read)).unwrap();
            assert_eq!((before.modified, before.length), (after.modified, after.length));
            assert!(mended(&ground.substrate, DoubtfulImagePolicy::Keep).images.is_empty());
        }
        let host = TwoStepHost::new(&ground.substrate, u32::MAX);
        let passed = scan_and_pass(&host).unwrap();
        assert!(passed.shared.now + passed.shared.before >= 59 * K && passed.trouble.busy.is_empty(), "{passed:?}");
        assert!(are_whole(ground, &contents));
        let left = std::fs::read_dir(ground.root.join(".onefold/intents")).unwrap().count();
        assert_eq!(left, 0, "nothing is declared any more");
    });
}

/// Another process waits for the image that is mended, and gets it in the middle of a call: a hole may be its wish from
/// then on.
#[test]
fn what_another_process_may_have_changed_is_not_undone() {
    on_xfs(|ground| {
        let contents = images(ground);
        die(ground, 1);
        let modified = || ground.substrate.stat(&ground.open("other", Access::Read)).unwrap().modified;
        let left = || std::fs::read_dir(ground.root.join(".onefold/intents")).unwrap().count();
        let before = modified();
        let mend_losing = |call| {
            let host = TwoStepHost::new(&ground.substrate, u32::MAX);
            let state = State::open(&host, &SystemClock, &SystemRandom, &|_| {}).unwrap();
            host.loses_lease_in.set(Some(call));
            let mended = mend(&state, DoubtfulImagePolicy::Fill).unwrap();
            assert!(host.is_lease_lost.get(), "{call:?}");
            let [image] = &mended.images[..] else { panic!("one image was to be mended") };
            let failed = matches!(&image.became, MendOutcome::Failed(why) if why.kind() == io::ErrorKind::ResourceBusy);
            assert!(failed && left() == 1, "{call:?}: {mended:?}");
            host.done_without_lease.take()
        };
        assert_eq!(mend_losing(LongCall::Clone), [] as [&str; 0], "no bytes are written in place of the clone");
        assert!(!are_whole(ground, &contents) && modified() == before);
        drop(mend_losing(LongCall::SetModified));
        assert_ne!(modified(), before, "nobody takes it for unchanged");
        let images = mended(&ground.substrate, DoubtfulImagePolicy::Keep).images;
        assert!(matches!(images[..], [ref image] if matches!(image.became, MendOutcome::Changed)));
        drop(mend_losing(LongCall::Sync));
        let done = mended(&ground.substrate, DoubtfulImagePolicy::Fill);
        assert!(matches!(&done.images[..], [image] if matches!(image.became, MendOutcome::Whole)), "{done:?}");
        assert!(are_whole(ground, &contents) && left() == 0);
    });
}

/// The same while a host is about to share: it leaves the image for another time, and takes what was written for a
/// change.
#[test]
fn an_image_that_another_process_got_is_not_shared_in() {
    on_xfs(|ground| {
        let contents = images(ground);
        for call in [LongCall::SetModified, LongCall::Open("sweep.0")] {
            let host = TwoStepHost::new(&ground.substrate, u32::MAX);
            host.loses_lease_in.set(Some(call));
            let passed = scan_and_pass(&host).unwrap();
            assert!(host.is_lease_lost.get() && !passed.trouble.busy.is_empty(), "{call:?}: {passed:?}");
            let done = host.done_without_lease.take();
            assert!(!done.contains(&"share"), "{call:?}: {done:?}");
            assert!(
                are_whole(ground, &contents) && mended(&ground.substrate, DoubtfulImagePolicy::Keep).images.is_empty()
            );
        }
        let host = TwoStepHost::new(&ground.substrate, u32::MAX);
        let passed = scan_and_pass(&host).unwrap();
        assert!(passed.shared.now + passed.shared.before >= 59 * K, "{passed:?}");
    });
}

/// The kernel's code of OCFS2 brings the host down where parts of extents are cloned that were never cloned as wholes.
#[test]
fn extents_are_cloned_as_wholes_before_a_part_of_them_is() {
    on_xfs(|ground| {
        // One extent, of which a part is in another image; its end is not at the end of a block.
        let one = [random_blocks(1, 64), vec![9; 100]].concat();
        let contents = [one.clone(), [random_blocks(2, 10), one[30 * BLOCK_BYTES..40 * BLOCK_BYTES].to_vec()].concat()];
        let handles = ["one", "other"].iter().zip(&contents).map(|(name, content)| {
            drop(ground.file(name, content));
            ground.substrate.stat(&ground.open(name, Access::Read)).unwrap().handle
        });
        let handles: Vec<FileHandle> = handles.collect();
        let host = TwoStepHost::new(&ground.substrate, u32::MAX);
        let passed = scan_and_pass(&host).unwrap();
        assert_eq!(passed.shared.now, 10 * K, "{passed:?}");
        assert!(are_whole(ground, &contents));
        let of_images = |list: &RefCell<Vec<CloneSource>>| -> Vec<CloneSource> {
            list.borrow().iter().filter(|(handle, ..)| handles.contains(handle)).cloned().collect()
        };
        let (prepared, cloned) = (of_images(&host.prepared), of_images(&host.cloned));
        assert_eq!(prepared, cloned, "each clone was made ready, and nothing else");
        assert_eq!(cloned.iter().map(|(_, _, length)| length).sum::<u64>(), 10 * K, "{cloned:?}");
    });
}

/// What lies behind the first block of the scratch file is cut off again; the image's last block may be short.
#[test]
fn a_clone_of_a_whole_extent_leaves_nothing_behind() {
    on_xfs(|ground| {
        let content = [random_blocks(1, 64), vec![9; 100]].concat();
        let image = ground.file("one", &content);
        ground.substrate.sync(&image).unwrap();
        let scratch = ground.file("scratch", &random_blocks(5, 1));
        for (offset, length) in [(0, K), (30 * K, 8 * K), (60 * K, 4 * K), (63 * K, K), (64 * K, K)] {
            LinuxSubstrate::clone_whole_extents(At { file: &image, offset }, length, &scratch).unwrap();
            assert_eq!(ground.substrate.stat(&scratch).unwrap().length, K);
        }
        assert!(ground.content("one") == content && ground.content("scratch") == random_blocks(5, 1));
    });
}

/// Another host has the image: it mends it itself, or lets go of it, or works on it for longer than is waited.
#[test]
fn an_image_that_another_host_has_is_waited_for_and_then_left_to_it() {
    on_xfs(|ground| {
        let contents = images(ground);
        let patiently = |stop: &dyn Fn() -> bool| {
            let (clock, host) = (ManualClock::default(), TwoStepHost::new(&ground.substrate, u32::MAX));
            let state = State::open(&host, &SystemClock, &SystemRandom, &|_| {}).unwrap();
            let patience = Patience { clock: &clock, most: Duration::from_secs(10), is_stopped: stop };
            let mended = mend_patiently(&state, DoubtfulImagePolicy::Keep, &patience).unwrap();
            (mended, clock.monotonic())
        };
        let other = TwoStepHost::new(&ground.substrate, u32::MAX);
        let state = State::open(&other, &SystemClock, &SystemRandom, &|_| {}).unwrap();
        let handle = || ground.substrate.stat(&ground.open("other", Access::Read)).unwrap().handle;
        let subject = Subject::File(handle());
        for mends in [false, true] {
            die(ground, 1);
            let held = RefCell::new(state.try_lock(&subject).unwrap());
            assert!(held.borrow().is_some());
            let rounds = Cell::new(0);
            let let_go = || {
                rounds.set(rounds.get() + 1);
                if rounds.get() == 5 {
                    held.take();
                    if mends {
                        assert!(matches!(mend(&state, DoubtfulImagePolicy::Keep).unwrap().images[..], [_]));
                    }
                }
                false
            };
            let (mended, waited) = patiently(&let_go);
            assert!(mended.images.len() == usize::from(!mends) && mended.waiting().next().is_none(), "{mended:?}");
            assert!(waited < Duration::from_secs(1) && are_whole(ground, &contents));
        }
        die(ground, 1);
        let held = state.try_lock(&subject).unwrap();
        for (is_stopped, at_least) in [(false, 10), (true, 0)] {
            let (mended, waited) = patiently(&|| is_stopped);
            assert!(
                matches!(mended.images[..], [ref image] if matches!(image.became, MendOutcome::Elsewhere)),
                "{mended:?}"
            );
            assert!(mended.left().next().is_none() && mended.waiting().next().is_some());
            let at_least = Duration::from_secs(at_least);
            assert!((at_least..at_least + Duration::from_secs(1)).contains(&waited), "{waited:?}");
        }
        drop(held);
        assert!(patiently(&|| false).0.waiting().next().is_none() && are_whole(ground, &contents));
    });
}

#[test]
fn what_somebody_wrote_since_is_left_until_he_says_so() {
    on_xfs(|ground| {
        let contents = images(ground);
        die(ground, 2);
        let file = ground.open("other", Access::Write);
        ground.substrate.write_at(&file, 63 * K, &[9; 10]).unwrap();
        drop(file);
        let with_holes = ground.content("other");
        let kept = mended(&ground.substrate, DoubtfulImagePolicy::Keep);
        assert!(matches!(kept.images[..], [ref image] if matches!(image.became, MendOutcome::Changed)), "{kept:?}");
        assert!(ground.content("other") == with_holes);
        // Nothing is shared in it meanwhile.
        let passed = scan_and_pass(&TwoStepHost::new(&ground.substrate, u32::MAX)).unwrap();
        assert!(passed.trouble.busy.keys().any(|path| path == Path::new("other")), "{passed:?}");
        let filled = mended(&ground.substrate, DoubtfulImagePolicy::Fill);
        assert!(matches!(filled.images[..], [ref image] if image.filled > 0), "{filled:?}");
        assert!(mended(&ground.substrate, DoubtfulImagePolicy::Keep).images.is_empty(), "it is not told of again");
        let mut expected = contents[1].clone();
        expected[63 * BLOCK_BYTES..63 * BLOCK_BYTES + 10].fill(9);
        assert!(ground.content("other") == expected);
    });
}

/// A call that fails in the middle, or says that it did not, leaves a hole that is filled before anybody can see it.
#[test]
fn what_a_share_that_failed_has_punched_is_filled_at_once() {
    on_xfs(|ground| {
        let contents = images(ground);
        for outcome in [Ok(()), Err(io::ErrorKind::StorageFull), Err(io::ErrorKind::Other)] {
            let mut host = TwoStepHost::new(&ground.substrate, 3);
            host.outcome = Some(outcome);
            let passed = scan_and_pass(&host).unwrap();
            assert!(are_whole(ground, &contents), "{outcome:?}: {passed:?}");
            assert!(mended(&ground.substrate, DoubtfulImagePolicy::Keep).images.is_empty());
            for name in ["one", "other"] {
                // So that all of it is tried again.
                let content = ground.content(name);
                ground.substrate.remove(Path::new(name)).unwrap();
                drop(ground.file(name, &content));
            }
        }
    });
}

/// A process that has an image open could punch a hole in it while it is declared, and read zeros where the host dies.
#[test]
fn an_image_that_somebody_has_open_is_left_alone() {
    on_xfs(|ground| {
        let contents = images(ground);
        let opened = ground.open("other", Access::Read);
        let host = TwoStepHost::new(&ground.substrate, u32::MAX);
        let passed = scan_and_pass(&host).unwrap();
        assert!(passed.trouble.busy.keys().eq([Path::new("other")]) && passed.shared.now <= 3 * K, "{passed:?}");
        drop(opened);
        let passed = scan_and_pass(&host).unwrap();
        assert!(passed.shared.now >= 59 * K && passed.trouble.busy.is_empty(), "{passed:?}");
        assert!(are_whole(ground, &contents));
    });
}
