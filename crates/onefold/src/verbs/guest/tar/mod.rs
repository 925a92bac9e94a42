//! `onefold guest tar`
//!
//! | module | is |
//! |---|---|
//! | `first_names` | what a second name of a file is a link to |
//! | `header` | what is kept of a file: the fields of ustar, and the records of pax for everything that does not fit |
//! | `content` | the content of a file without its holes |
//! | `places` | names that a member may not have a second time |

mod content;
mod first_names;
mod header;
mod places;

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;

use onefold_block::Show;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{FileKind, FileStat};
use onefold_guest::tree::{Crossing, GuestFile, Links, ResolvedFile, Visitor, WalkEntry, WalkError, WalkStep};
use tar::Builder;

use super::ending::Ending;
use super::scene::Scene;
use super::streaming::{self, PrintResult, PrintStop};
use crate::cli::Talk;
use crate::cli::guest::GuestTarArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Report;

use content::MemberContent;
use first_names::FirstNames;
use header::{MemberKind, StoredSize, TarMember};
use places::ArchiveNames;

/// Number of bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

pub(super) fn run(arguments: &GuestTarArgs, talk: Talk) -> Outcome<Report> {
    if talk.json {
        return Err(Failure::usage("cannot write an archive").because_of("the result is not a JSON document"));
    }
    let out = io::stdout();
    if out.is_terminal() {
        let failure = Failure::usage("cannot write an archive").because_of("standard output is a terminal");
        return Err(failure.hint("send it into a file with `>`, or to `tar -t` with `|`"));
    }
    streaming::with_scene(&arguments.image, talk, |scene, ending| {
        let builder = Builder::new(BufWriter::with_capacity(BUFFER_BYTES, out.lock()));
        let linked = FirstNames::new(scene.files_used());
        let mut archive = Archive { scene, ending, builder, linked, places: ArchiveNames::default(), outcome: Ok(()) };
        let outcome = archive.all(arguments);
        let is_full = archive.linked.is_full;
        drop(archive);
        if is_full {
            ending
                .warn("some files with several names are in the archive more than once: there are too many".to_owned());
        }
        match outcome {
            Ok(()) | Err(PrintStop::Closed) => {}
            Err(PrintStop::Failed(failure)) => ending.failed(failure),
        }
        scene.look_at(ending);
        ending.tell();
        Ok(streaming::ended(ending))
    })
}

/// An archive that is being written to standard output.
struct Archive<'s, 'g, 'a> {
    scene: &'s Scene<'g, 'a>,
    ending: &'s mut Ending,
    builder: Builder<BufWriter<StdoutLock<'static>>>,
    /// The first name of each file with several names.
    linked: FirstNames,
    /// The names that were given, and those of the folder being visited.
    places: ArchiveNames,
    outcome: PrintResult<()>,
}

impl<'g> Archive<'_, 'g, '_> {
    fn all(&mut self, arguments: &GuestTarArgs) -> PrintResult<()> {
        for path in &arguments.paths {
            match self.scene.find(path.as_bytes(), Links::Keep) {
                Ok(found) if self.places.has_named(&found.path) => {
                    let name = found.path.shown();
                    self.ending.warn(format!("`{name}` is left out here: an earlier argument includes it"));
                }
                Ok(found) => self.named(&found)?,
                Err(failure) => self.ending.failed(failure),
            }
        }
        self.builder.finish()?;
        Ok(self.builder.get_mut().flush()?)
    }

    /// Adds a file that was named, and everything below it.
    fn named(&mut self, found: &ResolvedFile) -> PrintResult<()> {
        self.places.note_named(&found.path, found.file);
        self.member(&found.path, found.file, &found.stat)?;
        if found.stat.kind != FileKind::Directory {
            return Ok(());
        }
        let tree = &self.scene.tree;
        if let Err(error) = tree.walk(found, Crossing::Enter, self) {
            self.ending.failed_path(&found.path, &error);
        }
        std::mem::replace(&mut self.outcome, Ok(()))
    }

    /// Adds one file. If it cannot be read, reports that and writes nothing of it.
    fn member(&mut self, path: &[u8], file: GuestFile, stat: &FileStat) -> PrintResult<()> {
        if path.split(|byte| *byte == b'/').any(|name| matches!(name, b"." | b"..")) {
            let failure = Failure::new(format!("cannot keep `{}`", path.shown()));
            self.ending.failed(failure.because_of("a path with this name would lead elsewhere"));
            return Ok(());
        }
        let cannot = |error| Failure::of_io("cannot remember the names of files", &error);
        let is_linked = stat.kind != FileKind::Directory && stat.links > 1;
        if is_linked && let Some(first) = self.linked.get(file).map_err(cannot)? {
            let (name, kind) = (header::name(path, stat.kind), MemberKind::HardLink(first));
            return self.write(path, &TarMember { name, kind, stat: stat.clone(), attributes: Vec::new() }, None);
        }
        match self.read(path, file, stat) {
            Ok(Some((member, content))) => {
                if is_linked {
                    self.linked.insert(file, &member.name).map_err(cannot)?;
                }
                self.write(path, &member, content)
            }
            Ok(None) => Ok(()),
            Err(error) => {
                self.ending.failed_path(path, &error);
                Ok(())
            }
        }
    }

    /// Returns the archived form of a file, and its content if it has any; `None` for files that archives cannot hold.
    fn read(
        &mut self,
        path: &[u8],
        file: GuestFile,
        stat: &FileStat,
    ) -> Result<Option<(TarMember, Option<MemberContent<'g>>)>, GuestError> {
        let system = self.scene.tree.system(file.system);
        let name = header::name(path, stat.kind);
        let kind = match stat.kind {
            FileKind::SymbolicLink => MemberKind::SymbolicLink(system.read_link(file.file)?),
            kind => match unfit_because(stat)? {
                None => MemberKind::Plain(kind),
                Some(why) => {
                    self.ending.warn(format!("`{}` is left out: {why}", path.shown()));
                    return Ok(None);
                }
            },
        };
        let content = match stat.kind {
            FileKind::Regular => Some(MemberContent::of(system, file.file, stat)?),
            _ => None,
        };
        let attributes = system.attributes(file.file)?;
        Ok(Some((TarMember { name, kind, stat: stat.clone(), attributes }, content)))
    }

    fn write(&mut self, path: &[u8], member: &TarMember, content: Option<MemberContent<'_>>) -> PrintResult<()> {
        let Some(mut content) = content else {
            let stored = StoredSize { bytes: 0, is_sparse: false };
            return Ok(member.write(&mut self.builder, stored, io::empty())?);
        };
        member.write(&mut self.builder, content.stored(), &mut content)?;
        if let Some(error) = content.failure() {
            self.ending.failed_path(path, error);
        }
        if content.is_short() {
            self.ending.damaged(format!("the end of `{}` is zeros in the archive", path.shown()));
        }
        Ok(())
    }
}

/// Returns why an archive cannot hold a file like this one; `None` if it can.
///
/// # Errors
/// When the file has content that cannot be read.
fn unfit_because(stat: &FileStat) -> Result<Option<&'static str>, GuestError> {
    match (stat.kind, stat.device) {
        (FileKind::Socket, _) => Ok(Some("archives have no such files")),
        (FileKind::CharacterDevice | FileKind::BlockDevice, None) => Ok(Some("the number of the device is not known")),
        (FileKind::Other, _) => Err(GuestError::Unsupported("a file whose content a driver of the guest provides")),
        _ => Ok(None),
    }
}

impl Visitor for Archive<'_, '_, '_> {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        // The kind in the directory entry may differ from that of the file itself, which is the one that is written.
        let stat = match self.scene.tree.stat(entry.file) {
            Ok(stat) => stat,
            Err(error) => {
                self.ending.failed_path(entry.path, &error);
                return WalkStep::Skip;
            }
        };
        if let Some(why) = self.places.refuse(entry.path, entry.file, &stat) {
            let failure = Failure::new(format!("cannot keep `{}`", entry.path.shown())).because_of(why);
            self.ending.failed(Failure { exit: Exit::Damage, ..failure });
            return WalkStep::Skip;
        }
        if self.places.is_named(entry.path) {
            return WalkStep::Skip;
        }
        self.outcome = self.member(entry.path, entry.file, &stat);
        if self.outcome.is_ok() { WalkStep::Enter } else { WalkStep::Stop }
    }

    fn failed(&mut self, path: &[u8], error: WalkError) {
        self.ending.failed_walk(path, &error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_guest::memory::MemoryFileSystem;
    use onefold_guest::tree::Tree;

    #[test]
    fn a_device_without_a_number_and_content_of_a_driver_are_not_kept() {
        let mut system = MemoryFileSystem::default();
        system.write("/file", "");
        let plain = Tree::new(&system).find(b"/file", Links::Keep).unwrap().stat;
        let of = |kind, device| unfit_because(&FileStat { kind, device, ..plain.clone() });
        assert_eq!(of(FileKind::Regular, None).unwrap(), None);
        assert_eq!(of(FileKind::BlockDevice, Some((0, 0))).unwrap(), None);
        assert!(of(FileKind::BlockDevice, None).unwrap().is_some());
        assert!(of(FileKind::CharacterDevice, None).unwrap().is_some());
        assert!(matches!(of(FileKind::Other, None), Err(GuestError::Unsupported(_))));
    }
}
