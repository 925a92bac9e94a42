//! Conditions under which a user may rely on a state folder.
//!
//! A pass clones blocks of files into the arena before it reads them, and believes logs, marks and intents. So each
//! folder and file is checked when it is opened, through the descriptor by which it is used:
//!
//! 1. It belongs to the user for whom the work is done. Otherwise it is refused ([`Distrust`]).
//! 2. The group and others have no rights. If they only have rights, as after a restore from a backup, these are taken
//!    away, and the user gets a notice. A process may have opened the file before: an arena file keeps the sticky bit
//!    as a mark, and nothing more is put into it. Both are one change of one inode, so that no crash comes between. Its
//!    earlier blocks may still be sources. If a state is more than hints (sharing in two steps), a file to which others
//!    may write is refused.
//! 3. It has as many names as expected: one, or two if files get their names by `link`, for a moment or until the
//!    scratch file of a dead host is swept.
//!
//! The folders stay open, and all paths are resolved from their descriptors. So nobody can put others in their place.

use std::fmt;
use std::io;
use std::path::Path;

use onefold_substrate::{Access, Protection, Substrate, SubstrateKind, UserNo};
use rustix::io::Errno;

use super::{ARENA, Notice, State, StateError};

/// Folders of the state, and a file, whose files are created under their names or get them by `rename`: no file has two
/// names.
const WITH_ONE_NAME: [&str; 8] = [ARENA, "locks", "watches", "intents", "claims", "maps", "guests", "cursor"];

/// Why a folder or file of the state is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// It belongs to another user.
    Owner {
        /// The owner.
        owner: UserNo,
        /// The user for whom the work is done.
        user: UserNo,
    },
    /// It has more names than it should.
    Links {
        /// The number of its names.
        links: u64,
        /// The maximum number.
        most: u64,
    },
    /// Others may write to it, on a file system where the state is more than hints.
    Writable {
        /// Its permission bits.
        mode: u32,
    },
    /// It is not a folder, or not a regular file.
    Kind,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distrust::Owner { owner, user } => write!(f, "it belongs to {owner}, and this runs for {user}"),
            Distrust::Links { links, most: 1 } => write!(f, "it has {links} names, and should have one"),
            Distrust::Links { links, most } => write!(f, "it has {links} names, and should have at most {most}"),
            Distrust::Writable { mode } => write!(f, "others than its owner may write it (mode {mode:03o})"),
            Distrust::Kind => f.write_str("it is neither the folder nor the regular file that it should be"),
        }
    }
}

impl std::error::Error for Distrust {}

impl Distrust {
    /// Returns the [`Distrust`] in an error of opening a file, if that is the reason.
    pub(crate) fn of(error: &io::Error) -> Option<Distrust> {
        error.get_ref().and_then(|inner| inner.downcast_ref()).copied()
    }
}

impl From<Distrust> for io::Error {
    fn from(distrust: Distrust) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, distrust)
    }
}

/// The root folder of a file system in which another user can replace the state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritableRoot {
    /// Its owner.
    pub owner: UserNo,
    /// Its permission bits.
    pub mode: u32,
    /// The user for whom the work is done.
    pub user: UserNo,
}

impl fmt::Display for WritableRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if [UserNo::ROOT, self.user].contains(&self.owner) {
            write!(
                f,
                "others than {} may write into the root folder of the file system (mode {:03o})",
                self.owner, self.mode
            )
        } else {
            write!(f, "the root folder of the file system belongs to {}", self.owner)
        }
    }
}

/// Returns the root folder of a file system, if its rights let other users replace the state folder by an earlier one.
/// Other users are all except root and the user for whom the work is done. `None` if the rights do not.
///
/// # Errors
/// Errors of the device.
pub fn writable_root<S: Substrate>(substrate: &S) -> io::Result<Option<WritableRoot>> {
    if substrate.abilities().kind == SubstrateKind::Pool {
        return Ok(None);
    }
    let (protection, user) = (substrate.keep_folder(Path::new(""))?, substrate.user());
    let is_trusted = [UserNo::ROOT, user].contains(&protection.owner);
    // In a sticky folder, only the owners of a name and of the folder can rename it.
    let is_open = protection.is_writable_by_others() && !protection.is_sticky();
    let root = WritableRoot { owner: protection.owner, mode: protection.mode, user };
    Ok((!is_trusted || is_open).then_some(root))
}

/// The kind of thing that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Folder,
    File { links_max: u64 },
    ArenaFile,
}

impl<S: Substrate> State<'_, S> {
    /// Opens a file of the state folder, after a check that it is private.
    ///
    /// # Errors
    /// [`Distrust`], as the inner error; errors of [`Files::open`].
    pub(crate) fn open_own(&self, path: &Path, access: Access) -> io::Result<S::File> {
        let file = open(self.substrate, path, access)?;
        let protection = self.substrate.protection(&file)?;
        self.check(path, self.kind_of(path), protection, &|mode| self.substrate.set_mode(&file, mode))?;
        Ok(file)
    }

    /// Opens a file without reading it, for example one that a dead host left behind. `None` if it cannot be opened.
    ///
    /// # Errors
    /// `Untrusted`.
    pub(super) fn open_left(&self, path: &Path) -> Result<Option<S::File>, StateError> {
        match self.open_own(path, Access::Write) {
            Ok(file) => Ok(Some(file)),
            Err(error) if Distrust::of(&error).is_some() => Err(StateError::at(path)(error)),
            Err(_) => Ok(None),
        }
    }

    /// Opens a folder of the state and keeps it open, after a check that it is private.
    ///
    /// # Errors
    /// `Untrusted`; errors of the device.
    pub(super) fn keep_own(&self, path: &Path) -> Result<(), StateError> {
        let kept = self.substrate.keep_folder(path).map_err(kind_error).and_then(|protection| {
            self.check(path, Kind::Folder, protection, &|mode| self.substrate.set_folder_mode(path, mode))
        });
        kept.map_err(StateError::at(path))
    }

    /// Gives a notice if another user can replace the state folder.
    pub(super) fn report_root(&self) -> Result<(), StateError> {
        let root = writable_root(self.substrate).map_err(StateError::at(Path::new("")))?;
        root.into_iter().for_each(|root| self.notice(Notice::WritableRoot { root }));
        Ok(())
    }

    fn kind_of(&self, path: &Path) -> Kind {
        let within = path.strip_prefix(self.folder.path()).unwrap_or(path);
        let first = within.components().next();
        if first.is_some_and(|first| first.as_os_str() == ARENA) {
            return Kind::ArenaFile;
        }
        let has_one = first.is_some_and(|first| WITH_ONE_NAME.iter().any(|name| first.as_os_str() == *name));
        Kind::File { links_max: if has_one { 1 } else { 2 } }
    }

    fn check(
        &self,
        path: &Path,
        kind: Kind,
        protection: Protection,
        set_mode: &dyn Fn(u32) -> io::Result<()>,
    ) -> io::Result<()> {
        let links_max = match kind {
            Kind::Folder => u64::MAX,
            Kind::File { links_max } => links_max,
            Kind::ArenaFile => 1,
        };
        check_owner(self.substrate, protection, links_max)?;
        if protection.is_private() {
            return Ok(());
        }
        if protection.is_writable_by_others() && self.policy().is_declared() {
            return Err(Distrust::Writable { mode: protection.mode }.into());
        }
        if self.useless.is_some() {
            // A read-only view changes nothing; the next run does.
            self.report_rights(path, |path| Notice::Exposed { path });
            return Ok(());
        }
        let is_retired = kind == Kind::ArenaFile;
        let mark = if is_retired { Protection::STICKY } else { 0 };
        set_mode(protection.mode & !Protection::OTHERS | mark)?;
        self.report_rights(path, |path| Notice::Tightened { path, is_retired });
        Ok(())
    }

    /// Gives a notice for the first such file or folder in a folder, not for each.
    fn report_rights(&self, path: &Path, notice: impl FnOnce(std::path::PathBuf) -> Notice) {
        let folder = path.parent().unwrap_or(path).to_owned();
        if self.reported.lock().insert(folder) {
            self.notice(notice(path.to_owned()));
        }
    }
}

/// Opens a file of this process again. Only its user can have changed it since.
///
/// # Errors
/// As [`State::open_own`].
pub(super) fn open_again<S: Substrate>(substrate: &S, path: &Path) -> io::Result<S::File> {
    let file = open(substrate, path, Access::Write)?;
    check_owner(substrate, substrate.protection(&file)?, 1)?;
    Ok(file)
}

fn open<S: Substrate>(substrate: &S, path: &Path, access: Access) -> io::Result<S::File> {
    substrate.open(path, access).map_err(kind_error)
}

fn check_owner<S: Substrate>(substrate: &S, protection: Protection, links_max: u64) -> io::Result<()> {
    let (owner, user) = (protection.owner, substrate.user());
    if owner != user {
        return Err(Distrust::Owner { owner, user }.into());
    }
    if protection.links > links_max {
        return Err(Distrust::Links { links: protection.links, most: links_max }.into());
    }
    Ok(())
}

/// Distinguishes a wrong kind from a failure to open.
fn kind_error(error: io::Error) -> io::Error {
    let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
    if is_link || matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput) {
        return Distrust::Kind.into();
    }
    error
}

#[cfg(test)]
mod tests {
    use onefold_block::clock::ManualClock;
    use onefold_block::random::SeededRandom;
    use onefold_substrate::{Files, Names};
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    use super::*;

    /// Files that get their names by `link` have two for a moment, and no others.
    #[test]
    fn a_file_has_as_many_names_as_the_way_in_which_it_got_its_name_leaves_it() {
        let options = SimulationOptions { images: 0, ..SimulationOptions::default() }.in_two_steps(|_| None);
        let file_system = SimulatedFileSystem::new(&options);
        let substrate = file_system.observe().substrate;
        let (clock, random) = (ManualClock::starting_at(5), SeededRandom::new(5));
        let state = State::open(&substrate, &clock, &random, &|_| {}).unwrap();
        let one = [
            "arena/0",
            "locks/index",
            "watches/1.1",
            "intents/1.1",
            "claims/1",
            "maps/1",
            "guests/1",
            "guests/run",
            "cursor",
        ];
        let two = ["files/1", "logs/1.1.1.1", "requests/1.1.1.1", "shards/whole.1", "batches/1", "scratch/1.1", "tree"];
        for (names, most) in [(&one[..], 1), (&two[..], 2)] {
            for name in names {
                let path = state.folder.path().join(name);
                if let Err(error) = substrate.create(&path) {
                    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
                }
                for links in 1..=3 {
                    let opened = state.open_own(&path, Access::Read);
                    match opened {
                        Ok(_) => assert!(links <= most, "{name} may have {links} names"),
                        Err(error) => assert_eq!(
                            (Distrust::of(&error), links > most),
                            (Some(Distrust::Links { links, most }), true),
                            "{name}"
                        ),
                    }
                    substrate
                        .link(&path, &Path::new("images").join(format!("{most}{links}{}", name.replace('/', "."))))
                        .unwrap();
                }
            }
        }
    }
}
