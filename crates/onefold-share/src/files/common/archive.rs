//! Content that a user adds to a common volume, from package archives.
//!
//! The files of an archive are written into a file without a name on the same file system, each from the start of a
//! block. From there they enter the volume as those of an image do. An archive is hostile input: the lengths that it
//! claims are bounded, and an archive with a path out of its folder or with a device is refused.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use md5::{Digest as _, Md5};
use onefold_block::BLOCK_BYTES_U64;
use onefold_block::random::Random;
use onefold_substrate::{ArchivePart, PackageTools, Substrate, ToolError, VolumeTools};
use tar::EntryType;

use super::CommonError;
use super::add::AddReport;
use super::addition::ADDITIONS_MAX;
use super::draft::draft_path;
use super::generation::{Change, lock};
use super::names::{file_path, package_folder};
use super::plan::{Addition, Origin};
use crate::format::guest::Piece;
use crate::pace::Pace;
use crate::state::StateError;

/// Maximum length of a name in an archive, in bytes.
const NAME_BYTES_MAX: u64 = 4096;
/// Maximum length of a file that describes a package, in bytes.
const CONTROL_BYTES_MAX: u64 = 1 << 20;
/// Maximum size of the files of an archive, as a multiple of its length, and some more. Packages compress to a
/// thirtieth at best; an archive that expands a thousandfold is made to fill the file system.
const BYTES_FOR_LENGTH_MAX: u64 = 100;
const BYTES_MIN: u64 = 64 << 20;
/// Maximum size of all files of all archives, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 30;
/// Maximum number of entries of an archive.
const ENTRIES_MAX: u64 = 1 << 22;
/// Size of one write, in bytes.
const WRITE_BYTES: usize = 1 << 20;

/// Package archives that a user adds, and how.
pub struct ArchiveAddOptions<'a> {
    /// The volume, below the root of the file system.
    pub volume: &'a Path,
    /// The archives, with the names by which the user knows them.
    pub archives: &'a [(PathBuf, File)],
    /// The program that unpacks them.
    pub tools: &'a dyn PackageTools,
    /// For the names of drafts.
    pub random: &'a dyn Random,
    /// Asked before each file, and when it is read back.
    pub pace: &'a Pace<'a>,
}

/// Adds the files of package archives to a volume, except configuration files.
///
/// # Errors
/// See [`CommonError`]; the volume is unchanged then.
pub fn add_archives<S: Substrate + VolumeTools>(
    substrate: &S,
    adding: &ArchiveAddOptions<'_>,
) -> Result<AddReport, CommonError> {
    let volume = lock(substrate, adding.volume)?;
    let failed = |error| CommonError::io(adding.volume, error);
    let path = draft_path(adding.random, adding.volume)?;
    let file = substrate.create(&path).map_err(failed)?;
    substrate.remove(&path).map_err(failed)?;
    let mut spool =
        Spool { substrate, file, end: 0, bytes_left: 0, additions: Vec::new(), files: 0, pace: adding.pace };
    for (name, archive) in adding.archives {
        spool.add_archive(adding.tools, archive).map_err(|error| of_archive(name, error))?;
    }
    let Spool { file, additions, files, .. } = spool;
    let file = Rc::new(file);
    let mut open = |_| Some(Rc::clone(&file));
    let change = Change { removed: &[], additions: &additions, open: &mut open, check: &|| Ok(()), pace: adding.pace };
    let changed = change.make(substrate, adding.random, &volume)?;
    Ok(AddReport { files, misaligned: 0, changed })
}

/// Why an archive was not added. The error passes through the reader of a stream.
#[derive(Debug, thiserror::Error)]
enum ArchiveError {
    #[error("it names `{0}`, which leads out of its folder")]
    Outside(String),
    #[error("it has a device, `{0}`")]
    Device(String),
    #[error("{0}")]
    Bounds(&'static str),
    #[error("it does not say which package, version and architecture it is")]
    Nameless,
    #[error("interrupted")]
    Interrupted,
}

impl From<ArchiveError> for io::Error {
    fn from(error: ArchiveError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

fn of_archive(name: &Path, error: ToolError) -> CommonError {
    let why = match error {
        ToolError::Failed { complaint, .. } => complaint,
        ToolError::Io { source, .. } if CommonError::is_full(&source) => return CommonError::io(name, source),
        ToolError::Io { source, .. } => match source.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(ArchiveError::Interrupted) => return StateError::Interrupted.into(),
            _ => source.to_string(),
        },
        other => return other.into(),
    };
    CommonError::Archive { path: name.to_owned(), why }
}

/// The description of a package.
#[derive(Debug, Default, PartialEq, Eq)]
struct Control {
    folder: Option<String>,
    configuration: BTreeSet<Vec<u8>>,
}

impl Control {
    fn add(&mut self, name: &[u8], content: &[u8]) {
        match name {
            b"control" => {
                let text = String::from_utf8_lossy(content);
                let field = |name: &str| {
                    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim();
                    Some(value.to_owned()).filter(|value| !value.is_empty())
                };
                self.folder =
                    (|| Some(package_folder(&field("Package")?, &field("Version")?, &field("Architecture")?)))();
            }
            b"conffiles" => {
                let names = content.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
                // A line may begin with a flag: `remove-on-upgrade /etc/file`.
                let paths =
                    names.filter_map(|line| line.iter().position(|byte| *byte == b'/').and_then(|at| line.get(at..)));
                // The last description counts, as it does for dpkg.
                self.configuration = paths.map(<[u8]>::to_vec).collect();
            }
            _ => {}
        }
    }
}

/// The files of archives, in a file without a name.
struct Spool<'a, S: Substrate> {
    substrate: &'a S,
    file: S::File,
    /// Where the next file begins, in bytes; at the start of a block.
    end: u64,
    /// Bytes left for the files of the archive.
    bytes_left: u64,
    additions: Vec<Addition>,
    files: u64,
    pace: &'a Pace<'a>,
}

impl<S: Substrate> Spool<'_, S> {
    fn add_archive(&mut self, tools: &dyn PackageTools, archive: &File) -> Result<(), ToolError> {
        let length = archive.metadata().map_err(|source| ToolError::Io { tool: tools.tool(), source })?.len();
        self.bytes_left = length.saturating_mul(BYTES_FOR_LENGTH_MAX).saturating_add(BYTES_MIN);
        let mut control = Control::default();
        tools.unpack(archive, ArchivePart::Control, &mut |stream| {
            each_entry(stream, &mut |name, kind, length, content| {
                let name = name.strip_prefix(b"./").unwrap_or(name);
                if kind == EntryType::Regular && matches!(name, b"control" | b"conffiles") {
                    if length > CONTROL_BYTES_MAX {
                        return Err(ArchiveError::Bounds("what describes its package is too long").into());
                    }
                    let mut bytes = Vec::new();
                    content.read_to_end(&mut bytes)?;
                    control.add(name, &bytes);
                }
                Ok(())
            })
        })?;
        tools.unpack(archive, ArchivePart::Files, &mut |stream| {
            let folder = control.folder.as_deref().ok_or(ArchiveError::Nameless)?;
            each_entry(stream, &mut |name, kind, length, content| {
                if self.pace.reading().go_on().is_err() {
                    return Err(ArchiveError::Interrupted.into());
                }
                let shown = || String::from_utf8_lossy(name).into_owned();
                if name.split(|byte| *byte == b'/').any(|part| part == b"..") {
                    return Err(ArchiveError::Outside(shown()).into());
                }
                match kind {
                    EntryType::Char | EntryType::Block | EntryType::Fifo => Err(ArchiveError::Device(shown()).into()),
                    EntryType::Regular | EntryType::Continuous => {
                        let path = name.strip_prefix(b".").unwrap_or(name);
                        if length == 0 || control.configuration.contains(path) {
                            return Ok(());
                        }
                        self.add_file(file_path(folder, path), length, content)
                    }
                    _ => Ok(()),
                }
            })
        })
    }

    /// Writes a file behind the others.
    fn add_file(&mut self, path: String, length: u64, content: &mut dyn Read) -> io::Result<()> {
        let begin = self.end;
        if length > FILE_BYTES_MAX.saturating_sub(begin) || self.additions.len() >= ADDITIONS_MAX {
            return Err(ArchiveError::Bounds("its files are too many or too long").into());
        }
        let left = self.bytes_left.checked_sub(length);
        self.bytes_left = left.ok_or(ArchiveError::Bounds("its files are far longer than those of other archives"))?;
        let (mut hasher, mut buffer, mut done) = (Md5::new(), vec![0; WRITE_BYTES], 0);
        while done < length {
            let at_once = usize::try_from(length - done).unwrap_or(WRITE_BYTES).min(WRITE_BYTES);
            let Some(part) = buffer.get_mut(..at_once) else { break };
            content.read_exact(part)?;
            hasher.update(&*part);
            self.substrate.write_at(&self.file, begin.saturating_add(done), part)?;
            done += at_once as u64;
        }
        let count = length.div_ceil(BLOCK_BYTES_U64);
        self.end = begin.saturating_add(count.saturating_mul(BLOCK_BYTES_U64));
        self.substrate.set_len(&self.file, self.end)?;
        let piece = Piece { content: 0, block: begin / BLOCK_BYTES_U64, count };
        let id = (hasher.finalize().into(), length);
        self.additions.push(Addition { path, id, is_added: true, origin: Origin { image: 0, pieces: vec![piece] } });
        self.files += 1;
        Ok(())
    }
}

/// Callback that gets the name, the kind, the length and the content of an entry.
type VisitEntry<'a> = dyn FnMut(&[u8], EntryType, u64, &mut dyn Read) -> io::Result<()> + 'a;

/// Visits the entries of a tar stream, and reads it to its end. Long names are read here, in bounded memory.
fn each_entry(stream: &mut dyn Read, visit: &mut VisitEntry<'_>) -> io::Result<()> {
    let mut archive = tar::Archive::new(stream);
    let mut long_name: Option<Vec<u8>> = None;
    let mut count: u64 = 0;
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        count += 1;
        if count > ENTRIES_MAX {
            return Err(ArchiveError::Bounds("it has too many entries").into());
        }
        let (kind, length) = (entry.header().entry_type(), entry.header().entry_size()?);
        if kind == EntryType::GNULongName {
            if length > NAME_BYTES_MAX {
                return Err(ArchiveError::Bounds("it has a name that is too long").into());
            }
            let mut name = Vec::new();
            entry.read_to_end(&mut name)?;
            name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
            long_name = Some(name);
            continue;
        }
        if kind == EntryType::GNULongLink {
            continue;
        }
        let name = long_name.take().unwrap_or_else(|| entry.header().path_bytes().into_owned());
        visit(&name, kind, length, &mut entry)?;
    }
    io::copy(&mut archive.into_inner().take(FILE_BYTES_MAX), &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(tar: &[u8]) -> io::Result<Vec<(Vec<u8>, u64)>> {
        let mut found = Vec::new();
        each_entry(&mut &*tar, &mut |name, _, length, _| {
            found.push((name.to_vec(), length));
            Ok(())
        })
        .map(|()| found)
    }

    #[test]
    fn long_names_are_read_and_too_long_ones_refused() {
        for (length, is_read) in [(300_usize, true), (5000, false)] {
            let mut builder = tar::Builder::new(Vec::new());
            let mut header = tar::Header::new_gnu();
            header.set_size(3);
            let name = "n/".repeat(length / 2) + "f";
            builder.append_data(&mut header, &name, &b"abc"[..]).unwrap();
            let found = entries(&builder.into_inner().unwrap());
            assert_eq!(found.ok().map(|found| found == [(name.into_bytes(), 3)]), is_read.then_some(true), "{length}");
        }
    }

    #[test]
    fn hostile_streams_are_errors_or_entries() {
        let random = onefold_block::random::SeededRandom::new(5);
        for _ in 0..500 {
            let mut builder = tar::Builder::new(Vec::new());
            let mut header = tar::Header::new_gnu();
            header.set_size(700);
            builder.append_data(&mut header, "usr/file", &[7; 700][..]).unwrap();
            let mut bytes = builder.into_inner().unwrap();
            for _ in 0..1 + random.below(20) {
                let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
                bytes[at] = u8::try_from(random.below(256)).unwrap();
            }
            bytes.truncate(usize::try_from(random.below(bytes.len() as u64 + 1)).unwrap());
            let _: io::Result<_> = entries(&bytes);
        }
    }

    #[test]
    fn a_package_is_named_by_its_fields_and_configuration_files_are_known() {
        let mut control = Control::default();
        control.add(b"control", b"Package: a\nVersion: 1:2\nDescription: x\n Package: z\nArchitecture: all\n");
        control.add(b"conffiles", b"/etc/a\nremove-on-upgrade /etc/b\n");
        assert_eq!(control.folder.as_deref(), Some("/dpkg/a_1:2_all"));
        assert_eq!(control.configuration, BTreeSet::from([b"/etc/a".to_vec(), b"/etc/b".to_vec()]));
        let mut nameless = Control::default();
        nameless.add(b"control", b"Package: a\nVersion:\nArchitecture: all\n");
        assert_eq!(nameless.folder, None);
    }
}
