//! A host's mount: its open files, and the step before each of its calls.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use corosensei::Yielder;
use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{Abilities, Access, SubstrateKind, UserNo};

use super::checks::AllowedChanges;
use super::clock::SimulatedClock;
use super::files::FileNo;
use super::host::{HostNo, OpenNo, SeenWrite};
use super::names::{CallingHost, FolderNo, KeptFolders};
use super::world::World;

/// Number of failed calls after which a crashed host's work is torn down.
const DEAD_CALLS_MAX: u32 = 1000;

/// A mount, valid until its host crashes.
pub(super) struct HostMount {
    world: Rc<RefCell<World>>,
    pub(super) host: HostNo,
    pub(super) user: UserNo,
    kept: RefCell<KeptFolders>,
    incarnation: u32,
    clock: Arc<SimulatedClock>,
    pub(super) abilities: Abilities,
    dead_calls: Cell<u32>,
    /// The images that the work may read and change; `None` for all.
    bounds: RefCell<Option<Bounds>>,
}

/// Returns whether the work may read and change an image that is opened by this path.
pub type Bounds = Rc<dyn Fn(&Path) -> bool>;

impl HostMount {
    pub(super) fn new(world: &Rc<RefCell<World>>, host: HostNo, clock: Arc<SimulatedClock>) -> HostMount {
        let borrowed = world.borrow();
        let habits = borrowed.options.habits;
        let abilities = Abilities {
            kind: SubstrateKind::Simulated,
            block_bytes: 4096,
            share_bytes_max: u64::from(habits.share_blocks_max) * BLOCK_BYTES_U64,
            tells_last_reference: habits.tells_last_reference,
            frees_whole_extents: habits.frees_whole_extents,
            is_clustered: borrowed.options.hosts > 1,
            shares_in_two_steps: habits.shares_in_two_steps,
            has_own_domains: false,
        };
        let machine = borrowed.machine(host);
        let (incarnation, user, kept) = (machine.incarnation, machine.user, RefCell::default());
        let (world, dead_calls, bounds) = (Rc::clone(world), Cell::new(0), RefCell::new(None));
        HostMount { world, host, user, kept, incarnation, clock, abilities, dead_calls, bounds }
    }

    fn is_alive(&self) -> bool {
        self.world.borrow().machine(self.host).incarnation == self.incarnation
    }
}

/// The simulated file system, as mounted by one incarnation of a host.
#[derive(Clone)]
pub struct SimulatedSubstrate<'run> {
    pub(super) mount: Rc<HostMount>,
    /// The way to the scheduler; `None` for an observer outside the schedule.
    yielder: Option<&'run Yielder<(), ()>>,
}

impl fmt::Debug for SimulatedSubstrate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedSubstrate({}, incarnation {})", self.mount.host, self.mount.incarnation)
    }
}

/// An open file of the simulated file system.
pub struct SimulatedFile<'run> {
    substrate: SimulatedSubstrate<'run>,
    pub(super) open: OpenNo,
    pub(super) no: FileNo,
    pub(super) access: Access,
    /// Whether it lies in a kept folder of the mount and the caller has not checked its protection yet.
    pub(super) is_unchecked: Cell<bool>,
    /// Whether it is an image that the work may not read and change.
    is_outside: bool,
}

impl fmt::Debug for SimulatedFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedFile({}, #{})", self.substrate.mount.host, self.no.0)
    }
}

impl Drop for SimulatedFile<'_> {
    fn drop(&mut self) {
        let mount = &self.substrate.mount;
        // A sleeping host holds its locks until its sleep ends. A host that is being torn down does not wait for that.
        if mount.is_alive() && mount.clock.asleep_until().is_some() && !std::thread::panicking() {
            self.substrate.wait();
        }
        if mount.is_alive() {
            let mut world = mount.world.borrow_mut();
            world.close(mount.host, self.open);
            world.verify(AllowedChanges::Content);
        }
    }
}

impl<'run> SimulatedSubstrate<'run> {
    pub(super) fn new(mount: HostMount, yielder: Option<&'run Yielder<(), ()>>) -> SimulatedSubstrate<'run> {
        SimulatedSubstrate { mount: Rc::new(mount), yielder }
    }

    pub(super) fn take_writes(&self) -> Vec<SeenWrite> {
        let mut world = self.mount.world.borrow_mut();
        let machine = world.machine_mut(self.mount.host);
        if machine.incarnation == self.mount.incarnation { machine.seen_writes.drain(..).collect() } else { Vec::new() }
    }

    /// Yields to the other hosts, and lets time pass.
    fn wait(&self) {
        match self.yielder {
            Some(yielder) => yielder.suspend(()),
            None => {
                let world = self.mount.world.borrow();
                let until = self.mount.clock.asleep_until();
                let now = world.time.load(Ordering::Relaxed);
                world.pass(until.map_or(1000, |until| until - now));
            }
        }
    }

    /// Begins a call: other hosts may make theirs first, and the host may crash before the call takes effect.
    fn arrive(&self) -> io::Result<()> {
        if self.mount.is_alive() {
            self.wait();
        }
        if self.mount.is_alive() {
            return Ok(());
        }
        // The work has nothing left to do, but may not know how to end: it is torn down here.
        let dead_calls = self.mount.dead_calls.get() + 1;
        self.mount.dead_calls.set(dead_calls);
        if dead_calls >= DEAD_CALLS_MAX {
            self.wait();
        }
        Err(io::Error::new(io::ErrorKind::NotConnected, "this host has crashed"))
    }

    /// Makes a call in one step.
    pub(super) fn call<T, E: From<io::Error> + fmt::Display>(
        &self,
        allowed: AllowedChanges,
        line: impl FnOnce(&World) -> String,
        operate: impl FnOnce(&mut World, HostNo) -> Result<T, E>,
    ) -> Result<T, E> {
        self.arrive()?;
        let host = self.mount.host;
        let mut world = self.mount.world.borrow_mut();
        world.counters.calls += 1;
        world.tell(|world| format!("{host}: {}", line(world)));
        let kept = Rc::clone(&self.mount.kept.borrow());
        world.names.caller = Some(CallingHost { user: self.mount.user, kept });
        let result = operate(&mut world, host);
        world.names.caller = None;
        if let Err(error) = &result {
            world.tell(|_| format!("{host}: failed: {error}"));
        }
        world.verify(allowed);
        if self.yielder.is_none()
            && let Some(problem) = &world.violation
        {
            panic!("{problem}");
        }
        result
    }

    /// Answers a question that takes no step, from data that the system has in memory anyway.
    pub(super) fn ask<T>(&self, operate: impl FnOnce(&mut World) -> io::Result<T>) -> io::Result<T> {
        if !self.mount.is_alive() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut world = self.mount.world.borrow_mut();
        let kept = Rc::clone(&self.mount.kept.borrow());
        world.names.caller = Some(CallingHost { user: self.mount.user, kept });
        let result = operate(&mut world);
        world.names.caller = None;
        result
    }

    /// Resolves paths from a folder from now on, wherever its name leads.
    pub(super) fn keep(&self, path: &Path, folder: FolderNo) {
        let mut kept = self.mount.kept.borrow_mut();
        let others = kept.iter().filter(|(other, _)| !other.starts_with(path)).cloned();
        *kept = Rc::new(others.chain([(path.to_owned(), folder)]).collect());
    }

    /// Returns the folder that is kept under a path.
    pub(super) fn kept(&self, path: &Path) -> Option<FolderNo> {
        self.mount.kept.borrow().iter().find(|(kept, _)| kept == path).map(|(_, folder)| *folder)
    }

    pub(super) fn opened(&self, world: &mut World, no: FileNo, access: Access) -> SimulatedFile<'run> {
        let open = world.add_open(self.mount.host, no);
        // Opened without a path: the work only reads maps of such files.
        let is_outside = world.files.get(no).is_image && self.mount.bounds.borrow().is_some();
        SimulatedFile { substrate: self.clone(), open, no, access, is_unchecked: Cell::new(false), is_outside }
    }

    /// Like [`SimulatedSubstrate::opened`], for a file that was opened by its path.
    pub(super) fn opened_at(&self, world: &mut World, path: &Path, no: FileNo, access: Access) -> SimulatedFile<'run> {
        let is_kept = self.mount.kept.borrow().iter().any(|(kept, _)| path.starts_with(kept));
        let mut file = self.opened(world, no, access);
        file.is_unchecked.set(is_kept && world.options.wants_checks);
        file.is_outside &= self.mount.bounds.borrow().as_ref().is_some_and(|contain| !contain(path));
        file
    }

    /// From now on, treats it as a violation if this host reads or shares an image that it opens, unless `contain`
    /// accepts the path by which the image was opened. Without `contain`, the host may work on all images.
    pub fn bind(&self, contain: Option<Bounds>) {
        *self.mount.bounds.borrow_mut() = contain;
    }

    /// Checks these bounds; called before a file's bytes are read or shared.
    pub(super) fn check_bounds(&self, file: &SimulatedFile<'_>) {
        if file.is_outside && self.mount.is_alive() {
            let mut world = self.mount.world.borrow_mut();
            let path = world.names.path_of(file.no);
            world.violated(format!("{} works on {path}, which is outside of its selection", self.mount.host));
        }
    }

    /// Asserts that the file belongs to this mount: no file system could report such a mistake of the caller.
    pub(super) fn own(&self, file: &SimulatedFile<'_>) {
        assert!(Rc::ptr_eq(&self.mount, &file.substrate.mount), "{file:?} was not opened through {self:?}");
        if file.is_unchecked.get() && self.mount.is_alive() {
            let mut world = self.mount.world.borrow_mut();
            let path = world.names.path_of(file.no);
            world.violated(format!("{} uses {path} and has not looked whose it is", self.mount.host));
        }
    }
}
