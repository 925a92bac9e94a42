//! The simulated file system's interface for tests that make every call themselves, and for the scheduler.

use std::cell::{Ref, RefCell, RefMut};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onefold_block::random::SeededRandom;
use onefold_substrate::UserNo;
use rustix::io::Errno;

use super::checks::AllowedChanges;
use super::clock::SimulatedClock;
use super::dice::nanoseconds;
use super::host::{Host, HostNo};
use super::mount::{HostMount, SimulatedSubstrate};
use super::options::SimulationOptions;
use super::outcome::{Census, Counters};
use super::rights::Ownership;
use super::world::{Actor, World};
use super::writers::Writers;

/// Path of the identity of root's state folder.
const IDENTITY: &str = ".onefold/identity";

/// A file system in memory that hosts mount.
///
/// Without a [`Simulation`](super::Simulation) nothing happens by itself: a test mounts it as one or more hosts, calls
/// in any order, writes images, and crashes hosts. A call that breaks an invariant panics.
#[derive(Debug)]
pub struct SimulatedFileSystem {
    world: Rc<RefCell<World>>,
    writers: RefCell<Writers>,
}

impl SimulatedFileSystem {
    /// Makes a file system with the number of images in the options.
    #[must_use]
    pub fn new(options: &SimulationOptions) -> SimulatedFileSystem {
        let mut world = World::new(options);
        let writers = Writers::new(&mut world);
        world.verify(AllowedChanges::Content);
        SimulatedFileSystem { world: Rc::new(RefCell::new(world)), writers: RefCell::new(writers) }
    }

    pub(super) fn world(&self) -> Ref<'_, World> {
        self.world.borrow()
    }

    pub(super) fn world_mut(&self) -> RefMut<'_, World> {
        self.world.borrow_mut()
    }

    pub(super) fn clock(&self, host: HostNo) -> Arc<SimulatedClock> {
        let world = self.world();
        Arc::new(SimulatedClock::new(Arc::clone(&world.time), Arc::clone(&world.machine(host).skew_ns)))
    }

    /// Starts a host and mounts the file system on it.
    pub(super) fn start(&self, host: HostNo, clock: Arc<SimulatedClock>) -> HostMount {
        let mut world = self.world_mut();
        world.counters.starts += 1;
        world.tell(|_| format!("{host} starts"));
        world.machine_mut(host).is_up = true;
        drop(world);
        HostMount::new(&self.world, host, clock)
    }

    /// Mounts as a host, without a schedule: each call takes effect at once, and sleeping lets time pass.
    #[must_use]
    pub fn mount(&self, host: HostNo) -> Host<'static> {
        let clock = self.clock(host);
        let mount = self.start(host, Arc::clone(&clock));
        let incarnation = self.world().machine(host).incarnation;
        let random = Arc::new(SeededRandom::new(u64::from(host.0) << 32 | u64::from(incarnation)));
        Host { no: host, incarnation, substrate: SimulatedSubstrate::new(mount, None), clock, random }
    }

    /// Mounts as an observer, which is none of the hosts and meets no faults.
    #[must_use]
    pub fn observe(&self) -> Host<'static> {
        let observer = self.world().observer();
        self.mount(observer)
    }

    /// Crashes a host: its unsynced changes are lost or kept, and its calls fail.
    pub fn crash(&self, host: HostNo) {
        let mut world = self.world_mut();
        world.crash(host);
        world.verify(AllowedChanges::Content);
    }

    /// Ends a host's work and closes the files that it left open.
    pub(super) fn end_work(&self, host: HostNo) {
        let mut world = self.world_mut();
        world.end_work(host);
        world.verify(AllowedChanges::Content);
    }

    /// Suspends a host: its locks will expire.
    pub fn stall(&self, host: HostNo) {
        self.world_mut().stall(host);
    }

    /// Resumes a suspended host.
    pub fn unstall(&self, host: HostNo) {
        self.world_mut().unstall(host);
    }

    /// Returns the number of files that a host has open.
    #[must_use]
    pub fn open_files(&self, host: HostNo) -> usize {
        self.world().machine(host).opens.len()
    }

    /// Returns the number of images. At first there may be fewer than requested: two may draw one name.
    #[must_use]
    pub fn images(&self) -> usize {
        self.world().reference.names().count()
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        self.world().pass(nanoseconds(time));
    }

    /// Makes one change as a writer, if any host is up.
    pub fn let_writers_write(&self) {
        let mut world = self.world_mut();
        self.writers.borrow_mut().step(&mut world);
        world.verify(AllowedChanges::Content);
    }

    /// Writes bytes into an image through a host, and creates it if it is missing. Its folder must exist; `images`
    /// does.
    ///
    /// # Errors
    /// See the substrate traits.
    pub fn write_image(&self, host: HostNo, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        let mut world = self.world_mut();
        let writer = Actor::Writer(host);
        let no = match world.find_file(path.as_ref()) {
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
                world.create(writer, path.as_ref())?
            }
            found => found?,
        };
        let result = world.write(writer, no, offset, bytes);
        world.verify(AllowedChanges::Content);
        result
    }

    /// Sets room aside in a hole of an image, as `fallocate` does, through a host: `blocks` blocks from `first` on.
    ///
    /// # Errors
    /// See the substrate traits.
    pub fn set_aside(&self, host: HostNo, path: impl AsRef<Path>, first: u64, blocks: u64) -> std::io::Result<()> {
        let mut world = self.world_mut();
        let (no, unwritten) = (world.find_file(path.as_ref())?, world.unwritten.clone());
        let result = (first..first + blocks)
            .try_for_each(|index| world.write_block(Actor::Writer(host), no, index, Some(unwritten.clone())));
        world.verify(AllowedChanges::Content);
        result
    }

    /// Gives an image to another user, through a host.
    ///
    /// # Errors
    /// See the substrate traits.
    pub fn give_image(&self, host: HostNo, path: impl AsRef<Path>, owner: u32) -> std::io::Result<()> {
        let mut world = self.world_mut();
        let no = world.find_file(path.as_ref())?;
        world.give(Actor::Writer(host), no, owner);
        Ok(())
    }

    /// Makes a block of an image unreadable, or readable again.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_readable(&self, path: impl AsRef<Path>, block: u64, is_readable: bool) -> std::io::Result<()> {
        let mut world = self.world_mut();
        let no = world.find_file(path.as_ref())?;
        if is_readable {
            world.bad.remove(&(no, block))
        } else {
            world.bad.insert((no, block))
        };
        Ok(())
    }

    /// Has the map of an image be readable or not.
    ///
    /// # Errors
    /// When there is no such image.
    pub fn set_mappable(&self, path: impl AsRef<Path>, is_mappable: bool) -> std::io::Result<()> {
        let mut world = self.world_mut();
        let no = world.find_file(path.as_ref())?;
        if is_mappable {
            world.unmappable.remove(&no)
        } else {
            world.unmappable.insert(no)
        };
        Ok(())
    }

    /// Removes an image, through a host.
    ///
    /// # Errors
    /// See the substrate traits.
    pub fn remove_image(&self, host: HostNo, path: impl AsRef<Path>) -> std::io::Result<()> {
        let mut world = self.world_mut();
        let result = world.remove(Actor::Writer(host), path.as_ref());
        world.verify(AllowedChanges::Content);
        result
    }

    /// Makes the file system full, or not full again: all calls that take room fail while it is.
    pub fn set_full(&self, is_full: bool) {
        self.world_mut().options.faults.full = if is_full { 1_000_000 } else { 0 };
    }

    /// Removes the identity of the state folder, as a repair of the file system may. Durable at once.
    pub fn lose_identity(&self) {
        let mut world = self.world_mut();
        let observer = Actor::Engine(world.observer());
        if world.remove(observer, Path::new(IDENTITY)).is_ok() {
            world.counters.identities_lost += 1;
            world.tell(|_| "the identity of the state folder is lost".to_owned());
        }
        world.verify(AllowedChanges::Content);
    }

    /// Sets a host's time of day ahead of that of the other hosts.
    pub fn set_clock_ahead(&self, host: HostNo, time: Duration) {
        let skew = i64::try_from(nanoseconds(time)).unwrap_or(i64::MAX);
        self.world().machine(host).skew_ns.store(skew, std::sync::atomic::Ordering::Relaxed);
    }

    /// Mounts like [`SimulatedFileSystem::mount`], and works for a user from then on.
    #[must_use]
    pub fn mount_for(&self, host: HostNo, user: UserNo) -> Host<'static> {
        self.world_mut().machine_mut(host).user = user;
        self.mount(host)
    }

    /// Sets the owner and permission bits of a file or folder, as an administrator does.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn protect(&self, path: impl AsRef<Path>, owner: UserNo, mode: u32) -> std::io::Result<()> {
        self.world_mut().set_owned(path.as_ref(), Ownership { owner, mode })
    }

    /// Renames a folder, as an administrator or the owner of the parent folder does.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists`.
    pub fn rename_folder(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> std::io::Result<()> {
        self.world_mut().rename_folder(from.as_ref(), to.as_ref())
    }

    /// Makes all changes durable.
    pub fn sync_all(&self) {
        let mut world = self.world_mut();
        world.settle_all_names();
        for host in world.hosts() {
            for no in world.machine(host).unsynced.clone() {
                world.make_durable(no);
            }
        }
        world.verify(AllowedChanges::Content);
    }

    /// Checks all invariants everywhere.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), String> {
        self.world_mut().check_all()
    }

    pub(super) fn violation(&self) -> Option<String> {
        self.world().violation.clone()
    }

    /// Returns the event counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.world().counters
    }

    /// Returns how many blocks of images are now holes that a share has left.
    #[must_use]
    pub fn holes_left(&self) -> usize {
        self.world().left.len()
    }

    /// Returns the content of the images and the blocks that they take.
    #[must_use]
    pub fn census(&self) -> Census {
        self.world().census()
    }
}
