//! The file system as hosts call it: the traits, with the faults of each call. Sharing is in `sharing`.

mod sharing;

use std::io;
use std::path::Path;

use onefold_block::{BLOCK_BYTES_U64, Show, Timestamp};
use onefold_substrate::{
    Access, At, FileHandle, FileStat, Files, FolderEntry, HeldLock, Locks, Names, Protection, ROOT, Refusal, Room,
    ShareError, UserNo,
};
use rustix::io::Errno;

use super::checks::AllowedChanges;
use super::clock::{nanoseconds_of, timestamp};
use super::facts::set_in;
use super::files::FileNo;
use super::host::HostNo;
use super::mount::{SimulatedFile, SimulatedSubstrate};
use super::options::Mistake;
use super::rights::{Ownership, READ, WRITE};
use super::sharing::SharedRanges;
use super::world::{Actor, World};

/// Content of a reader's buffer after a failed read.
const GARBAGE: u8 = 0xa5;

impl<'run> SimulatedSubstrate<'run> {
    /// Makes a call that changes names.
    fn call_names<T>(
        &self,
        line: impl FnOnce() -> String,
        takes_room: bool,
        operate: impl FnOnce(&mut World, Actor) -> io::Result<T>,
    ) -> io::Result<T> {
        self.call(
            AllowedChanges::Content,
            |_| line(),
            |world, host| {
                io_fault(world, host)?;
                if takes_room && world.fails(host, |faults| faults.full) {
                    return Err(Errno::NOSPC.into());
                }
                operate(world, Actor::Engine(host))
            },
        )
    }

    /// Makes a call about an open file.
    fn call_file<T>(
        &self,
        file: &SimulatedFile<'_>,
        verb: &'static str,
        operate: impl FnOnce(&mut World, HostNo) -> io::Result<T>,
    ) -> io::Result<T> {
        self.own(file);
        self.call(AllowedChanges::Content, |world| format!("{verb} {}", world.names.path_of(file.no)), operate)
    }

    /// Makes a call that changes an open file.
    fn call_write<T>(
        &self,
        file: &SimulatedFile<'_>,
        line: impl FnOnce() -> String,
        operate: impl FnOnce(&mut World, Actor) -> io::Result<T>,
    ) -> io::Result<T> {
        self.own(file);
        let line = |world: &World| format!("{} in {}", line(), world.names.path_of(file.no));
        self.call(AllowedChanges::Content, line, |world, host| {
            if file.access != Access::Write {
                return Err(Errno::BADF.into());
            }
            if world.files.get(file.no).refusal == Some(Refusal::Immutable) {
                return Err(Errno::PERM.into());
            }
            operate(world, Actor::Engine(host))
        })
    }

    /// Checks two ranges and draws the faults that sharing and cloning have in common.
    fn ranges(
        &self,
        world: &mut World,
        source: At<'_, SimulatedFile<'run>>,
        into: At<'_, SimulatedFile<'run>>,
        length: u64,
    ) -> Result<SharedRanges, ShareError> {
        let host = self.mount.host;
        if into.file.access != Access::Write {
            return Err(ShareError::Refused(Refusal::NotPermitted));
        }
        let ranges = world.ranges((source.file.no, source.offset), (into.file.no, into.offset), length)?;
        if world.fails(host, |faults| faults.busy) {
            return Err(ShareError::Busy);
        }
        if world.fails(host, |faults| faults.full) {
            return Err(ShareError::Full);
        }
        if world.fails(host, |faults| faults.refused) {
            let refusals = [Refusal::Apart, Refusal::NotPermitted, Refusal::Swap, Refusal::Immutable];
            return Err(ShareError::Refused(refusals[world.dice.index(refusals.len())]));
        }
        Ok(ranges)
    }
}

/// Fails with the rate of I/O faults.
fn io_fault(world: &mut World, host: HostNo) -> io::Result<()> {
    if world.fails(host, |faults| faults.io) { Err(Errno::IO.into()) } else { Ok(()) }
}

/// Returns the rights that opening a file requires.
fn rights_for(access: Access) -> u32 {
    match access {
        Access::Read => READ,
        Access::Write => READ | WRITE,
    }
}

fn changed_mode(owned: Ownership, user: UserNo, mode: u32) -> io::Result<Ownership> {
    if [UserNo::ROOT, owned.owner].contains(&user) { Ok(Ownership { mode, ..owned }) } else { Err(Errno::PERM.into()) }
}

/// Describes a share or clone.
fn pair_line(
    world: &World,
    verb: &str,
    source: At<'_, SimulatedFile<'_>>,
    into: At<'_, SimulatedFile<'_>>,
    length: u64,
) -> String {
    let [from, to] = [source, into].map(|at| format!("{} from {}", world.names.path_of(at.file.no), at.offset));
    format!("{verb} {length} bytes of {from} into {to}")
}

impl<'run> Files for SimulatedSubstrate<'run> {
    type File = SimulatedFile<'run>;

    fn user(&self) -> UserNo {
        self.mount.user
    }

    fn protection(&self, file: &SimulatedFile<'run>) -> io::Result<Protection> {
        let protection = self.ask(|world| Ok(world.file_protection(file.no)))?;
        file.is_unchecked.set(false);
        Ok(protection)
    }

    fn set_mode(&self, file: &SimulatedFile<'run>, mode: u32) -> io::Result<()> {
        self.ask(|world| {
            let owned = &mut world.files.get_mut(file.no).owned;
            *owned = changed_mode(*owned, self.mount.user, mode)?;
            Ok(())
        })
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<SimulatedFile<'run>> {
        self.call_names(
            || format!("open {}", path.shown()),
            false,
            |world, _| {
                let no = world.find_file(path)?;
                world.permit_file(no, rights_for(access))?;
                if access == Access::Write && world.files.get(no).refusal == Some(Refusal::Immutable) {
                    return Err(Errno::PERM.into());
                }
                Ok(self.opened_at(world, path, no, access))
            },
        )
    }

    fn open_handle(&self, handle: &FileHandle, access: Access) -> io::Result<SimulatedFile<'run>> {
        self.call(
            AllowedChanges::Content,
            |_| format!("open file {handle}"),
            |world, host| {
                io_fault(world, host)?;
                if self.mount.user != UserNo::ROOT {
                    return Err(Errno::PERM.into());
                }
                let found = world.files.all().find(|(no, file)| file.names > 0 && world.handle(*no) == *handle);
                let Some(no) = found.map(|(no, _)| no) else {
                    // A file that is reported as gone must stay gone.
                    world.settle_all_names();
                    return Err(Errno::NOENT.into());
                };
                if access == Access::Write && world.files.get(no).refusal == Some(Refusal::Immutable) {
                    return Err(Errno::PERM.into());
                }
                Ok(self.opened(world, no, access))
            },
        )
    }

    fn create(&self, path: &Path) -> io::Result<SimulatedFile<'run>> {
        self.call_names(
            || format!("create {}", path.shown()),
            true,
            |world, actor| {
                let no = world.create(actor, path)?;
                Ok(self.opened(world, no, Access::Write))
            },
        )
    }

    fn stat(&self, file: &SimulatedFile<'run>) -> io::Result<FileStat> {
        self.call_file(file, "stat", |world, host| {
            io_fault(world, host)?;
            Ok(world.stat(file.no))
        })
    }

    fn read_at(&self, file: &SimulatedFile<'run>, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.check_bounds(file);
        self.call_file(file, "read", |world, host| {
            io_fault(world, host).inspect_err(|_| into.fill(GARBAGE))?;
            if world.has_bad_block(file.no, offset, into.len()) {
                into.fill(GARBAGE);
                return Err(Errno::IO.into());
            }
            Ok(world.read(file.no, offset, into))
        })
    }

    fn write_at(&self, file: &SimulatedFile<'run>, offset: u64, from: &[u8]) -> io::Result<()> {
        let line = || format!("write {} bytes from {offset} on", from.len());
        self.call_write(file, line, |world, actor| {
            let failure = if world.fails(actor.host(), |faults| faults.io) {
                Some(Errno::IO)
            } else {
                world.fails(actor.host(), |faults| faults.full).then_some(Errno::NOSPC)
            };
            let Some(failure) = failure else { return world.write(actor, file.no, offset, from) };
            let written = world.dice.index(from.len() + 1);
            world.write(actor, file.no, offset, &from[..written])?;
            Err(failure.into())
        })
    }

    fn set_len(&self, file: &SimulatedFile<'run>, length: u64) -> io::Result<()> {
        let line = || format!("set length {length}");
        self.call_write(file, line, |world, actor| {
            io_fault(world, actor.host())?;
            if world.fails(actor.host(), |faults| faults.full) {
                return Err(Errno::NOSPC.into());
            }
            world.set_length(actor, file.no, length)
        })
    }

    fn sync(&self, file: &SimulatedFile<'run>) -> io::Result<()> {
        self.call_file(file, "sync", |world, host| {
            // A failed sync by a host loses nothing of an image: its writers would have to notice by a sync of their
            // own.
            if let Err(error) = io_fault(world, host) {
                if !world.files.get(file.no).is_image {
                    world.fail_sync(file.no);
                }
                return Err(error);
            }
            world.sync(host, file.no);
            Ok(())
        })
    }

    fn set_modified(&self, file: &SimulatedFile<'run>, modified: Timestamp) -> io::Result<()> {
        self.call_file(file, "set the time of", |world, host| {
            io_fault(world, host)?;
            world.take_over(host, file.no);
            world.mark_unsynced(host, file.no);
            let changed = world.file_time(host);
            let file = world.files.get_mut(file.no);
            (file.modified, file.changed) = (nanoseconds_of(modified), changed);
            Ok(())
        })
    }

    fn attribute_of(&self, file: &SimulatedFile<'run>, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.call_file(file, "attribute", |world, host| {
            io_fault(world, host)?;
            Ok(world.files.get(file.no).attributes.get(name).cloned())
        })
    }

    fn set_attribute_of(&self, file: &SimulatedFile<'run>, name: &str, value: Option<&[u8]>) -> io::Result<()> {
        self.call_file(file, "set an attribute of", |world, host| {
            io_fault(world, host)?;
            if world.fails(host, |faults| faults.full) {
                return Err(Errno::NOSPC.into());
            }
            set_in(world.file_attributes(Actor::Engine(host), file.no)?, name, value);
            Ok(())
        })
    }
}

impl<'run> Names for SimulatedSubstrate<'run> {
    fn keep_folder(&self, folder: &Path) -> io::Result<Protection> {
        let (no, protection) = self.ask(|world| {
            let no = world.names.find_folder_by_name(folder)?;
            Ok((no, world.folder_protection(no)))
        })?;
        if !folder.as_os_str().is_empty() {
            self.keep(folder, no);
        }
        Ok(protection)
    }

    fn is_folder_kept(&self, folder: &Path) -> io::Result<bool> {
        let found = self.ask(|world| world.names.find_folder_by_name(folder));
        match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            found => Ok(folder.as_os_str().is_empty() || Some(found?) == self.kept(folder)),
        }
    }

    fn set_folder_mode(&self, folder: &Path, mode: u32) -> io::Result<()> {
        let no = self.kept(folder).ok_or(Errno::NOENT)?;
        self.ask(|world| {
            let owned = &mut world.names.folder_mut(no).owned;
            *owned = changed_mode(*owned, self.mount.user, mode)?;
            Ok(())
        })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call_names(
            || format!("create folder {}", path.shown()),
            true,
            |world, actor| world.create_folder(actor, path).map(drop),
        )
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call_names(
            || format!("link {} to {}", from.shown(), to.shown()),
            true,
            |world, actor| world.link(actor, from, to),
        )
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call_names(
            || format!("rename {} to {}", from.shown(), to.shown()),
            true,
            |world, actor| {
                if world.fails(actor.host(), |faults| faults.rename_denied) {
                    return Err(Errno::ACCESS.into());
                }
                world.rename(actor, from, to)
            },
        )
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call_names(|| format!("remove {}", path.shown()), false, |world, actor| world.remove(actor, path))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        self.call_names(
            || format!("list {}", folder.shown()),
            false,
            |world, _| {
                world.counters.lists += 1;
                let mut listed = world.list(folder)?;
                // Varies the order: no caller may rely on one.
                let first = world.dice.index(listed.len());
                listed.rotate_left(first);
                Ok(listed)
            },
        )
    }

    fn attribute(&self, path: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.call_names(
            || format!("attribute {name} of {}", path.shown()),
            false,
            |world, _| Ok(world.attributes(path)?.get(name).cloned()),
        )
    }

    fn set_attribute(&self, path: &Path, name: &str, value: Option<&[u8]>) -> io::Result<()> {
        self.call_names(
            || format!("set attribute {name} of {}", path.shown()),
            true,
            |world, actor| world.set_attribute(actor, path, name, value),
        )
    }

    fn path_protection(&self, path: &Path) -> io::Result<Protection> {
        self.call_names(|| format!("owner of {}", path.shown()), false, |world, _| world.path_protection(path))
    }

    /// Knows the users that libvirt has on two distributions.
    fn user_named(&self, name: &str) -> Option<u32> {
        match name {
            "libvirt-qemu" => Some(64055),
            "qemu" => Some(107),
            _ => None,
        }
    }
}

impl<'run> Locks for SimulatedSubstrate<'run> {
    fn try_lock(&self, file: &SimulatedFile<'run>) -> io::Result<bool> {
        self.call_file(file, "lock", |world, host| {
            io_fault(world, host)?;
            let is_taken = world.try_lock(host, file.open, file.no);
            world.tell(|_| format!("{host}: {}", if is_taken { "has it" } else { "another has it" }));
            Ok(is_taken)
        })
    }

    fn is_locked(&self, file: &SimulatedFile<'run>) -> io::Result<bool> {
        self.call_file(file, "ask for the lock of", |world, host| {
            io_fault(world, host)?;
            Ok(world.is_locked(host, file.no))
        })
    }

    fn held_locks(&self, folder: &Path) -> io::Result<Vec<HeldLock>> {
        self.call_names(|| format!("locks in {}", folder.shown()), false, |world, _| world.held_locks(folder))
    }
}

impl World {
    fn stat(&self, no: FileNo) -> FileStat {
        let file = self.files.get(no);
        FileStat {
            handle: self.handle(no),
            length: file.length,
            allocated: file.map.used() * BLOCK_BYTES_U64,
            modified: timestamp(file.modified),
            changed: timestamp(file.changed),
            owner: if self.options.mistake == Some(Mistake::OwnersHidden) { ROOT } else { file.owner },
            names: file.names,
        }
    }

    /// Returns a file's handle: its number, and the number of earlier files that had it.
    pub(super) fn handle(&self, no: FileNo) -> FileHandle {
        let bytes = [no.0.to_le_bytes(), self.files.get(no).generation.to_le_bytes()].concat();
        FileHandle::new(&bytes).expect("eight bytes are not too many")
    }

    fn room(&self) -> Room {
        let bytes = |blocks: u32| u64::from(blocks) * BLOCK_BYTES_U64;
        Room { total: bytes(self.blocks.limit()), free: bytes(self.blocks.limit() - self.blocks.used()) }
    }
}
