//! The database of dpkg (dpkg(1), deb-control(5)) in Debian and its derivatives.
//!
//! | file in `/var/lib/dpkg` | has | module |
//! |---|---|---|
//! | `status`, `updates/*` | the packages; `updates` has changes that are not merged yet | `status` |
//! | `status-old` | the packages before the last change, where `status` is damaged | here |
//! | `status.d/*` | a package in each file, in images that were made without dpkg | `status` |
//! | `info/NAME.list`, `info/NAME.md5sums` | the paths of a package; digests of most of its files | `lists` |
//! | `info/format` | the version of this folder's format | here |
//! | `diversions` | paths whose file was renamed in favour of another package | `diversions` |
//! | `statoverride` | permissions that the administrator set | `overrides` |
//!
//! `/etc/dpkg` has the paths that are not installed at all (`excludes`), `/var/log/dpkg.log` and its older parts have
//! the history (`log`). If a package can be installed for several architectures at once, the names of its files contain
//! its name, `:` and the architecture.

mod diversions;
mod excludes;
mod lists;
mod log;
mod overrides;
mod status;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use diversions::Diversions;
use excludes::Excludes;
use overrides::Overrides;
use status::{Record, Records};

use super::{InstallationTime, OwnedPath, Package, PackageDatabase, PackageEvent, PackageState};
use crate::error::GuestError;
use crate::filesystem::FileKind;
use crate::tree::{GuestFile, Links, Problem, ProblemLog, Tree};

const FOLDER: &[u8] = b"/var/lib/dpkg";
const INFO: &[u8] = b"/var/lib/dpkg/info";
const STATUS_FOLDER: &[u8] = b"/var/lib/dpkg/status.d";
/// Maximum length of a text that is read whole. The largest, `status`, has some MiB on a desktop.
const TEXT_BYTES_MAX: usize = 64 << 20;
/// Maximum length of a text with settings of the administrator and packages for single files. Each line takes some
/// hundred bytes of memory, and a system has some dozen lines.
const SETTINGS_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of lists and digests that are read in total, for each request. A hostile guest may have a hundred
/// thousand files that share the same long content. The limit allows a hundred reads of those of a large desktop.
const INFO_BYTES_MAX: u64 = 4 << 30;
/// Maximum number of files in a folder that are examined. A package has two.
const FILES_MAX: usize = 2 * status::PACKAGES_MAX;
/// The highest known version of `info`. A folder without a number has version 0, which does not differ in the files
/// that are read here.
const FORMAT_MAX: u32 = 1;

/// The database of dpkg in a tree.
pub(super) struct Dpkg<'t> {
    tree: &'t Tree<'t>,
    records: Records,
    problems: ProblemLog,
    /// Data that is read when paths are requested.
    folders: OnceLock<Folders>,
    /// Remaining limit for bytes of lists and digests.
    info_bytes_left: AtomicU64,
}

/// A text that was read whole.
struct Text {
    path: Vec<u8>,
    bytes: Vec<u8>,
}

/// Facts on which the paths of packages depend.
struct Folders {
    /// Lists and digests in `info`, by their names.
    info: HashMap<Vec<u8>, GuestFile>,
    /// Those in `status.d`.
    status_folder: HashMap<Vec<u8>, GuestFile>,
    diversions: Diversions,
    overrides: Overrides,
    excludes: Excludes,
}

impl<'t> Dpkg<'t> {
    /// Opens the database; `None` if there is none.
    ///
    /// # Errors
    /// When its format is unknown, or its list of packages cannot be read.
    pub(super) fn open(tree: &'t Tree<'t>) -> Result<Option<Dpkg<'t>>, GuestError> {
        let problems = ProblemLog::default();
        let status = read_status(tree, &problems)?;
        let has_folder = tree.find(STATUS_FOLDER, Links::Follow).is_ok();
        if status.is_none() && !has_folder {
            return Ok(None);
        }
        check_format(tree, &problems)?;
        let mut records = Records::default();
        if let Some(status) = status {
            records.add(&status.bytes, None, &status.path, &problems);
        }
        add_folder(tree, &[FOLDER, b"/updates"].concat(), &mut records, &problems, is_update);
        if has_folder {
            add_folder(tree, STATUS_FOLDER, &mut records, &problems, is_package);
        }
        records.sort();
        let info_bytes_left = AtomicU64::new(INFO_BYTES_MAX);
        Ok(Some(Dpkg { tree, records, problems, folders: OnceLock::new(), info_bytes_left }))
    }

    fn folders(&self) -> &Folders {
        self.folders.get_or_init(|| Folders {
            info: self.info_files(INFO),
            status_folder: self.info_files(STATUS_FOLDER),
            diversions: Diversions::read(self.tree, &self.problems),
            overrides: Overrides::read(self.tree, &self.problems),
            excludes: Excludes::read(self.tree, &self.problems),
        })
    }

    /// Returns the files with paths and digests in a folder.
    fn info_files(&self, folder: &[u8]) -> HashMap<Vec<u8>, GuestFile> {
        let mut files = HashMap::new();
        let Some(found) = self.problems.skip(folder, self.tree.find(folder, Links::Follow)) else { return files };
        let read = self.tree.each_entry(found.file, &mut |entry, file| {
            if !entry.name.ends_with(b".list") && !entry.name.ends_with(b".md5sums") {
                return ControlFlow::Continue(());
            }
            if files.len() >= FILES_MAX {
                self.problems.note(Problem::of_file(folder, "more lists and digests than are read"));
                return ControlFlow::Break(());
            }
            files.insert(entry.name, file);
            ControlFlow::Continue(())
        });
        self.problems.skip(folder, read);
        files
    }

    /// Returns a file of a package and its name, if it exists: the file with the architecture in its name if there is
    /// one.
    fn info_file(&self, record: &Record, suffix: &str) -> Option<(Vec<u8>, GuestFile)> {
        let (name, architecture) = (&record.package.name, &record.package.architecture);
        let names = match &record.file_name {
            Some(file_name) => vec![[file_name, suffix.as_bytes()].concat()],
            None => vec![format!("{name}:{architecture}{suffix}").into_bytes(), format!("{name}{suffix}").into_bytes()],
        };
        let folders = self.folders();
        let info = if record.file_name.is_some() { &folders.status_folder } else { &folders.info };
        names.into_iter().find_map(|name| info.get(&name).copied().map(|file| (name, file)))
    }

    /// Returns the text of a file of a package.
    fn info_text(&self, record: &Record, suffix: &str) -> Option<Text> {
        let (name, file) = self.info_file(record, suffix)?;
        let folder = if record.file_name.is_some() { STATUS_FOLDER } else { INFO };
        let path = [folder, b"/", &name].concat();
        let bytes_left = self.info_bytes_left.load(Ordering::Relaxed);
        let bytes_max = usize::try_from(bytes_left).unwrap_or(usize::MAX).min(TEXT_BYTES_MAX);
        let bytes = self.problems.skip(&path, self.tree.read_whole(file, bytes_max))?;
        // Two concurrent threads may read a little more.
        self.info_bytes_left.store(bytes_left.saturating_sub(bytes.len() as u64), Ordering::Relaxed);
        Some(Text { path, bytes })
    }

    /// Calls `visit` with each path of a package until it breaks. The package's list is given if there is one.
    fn each_path_with(
        &self,
        record: &Record,
        list: Option<&Text>,
        visit: &mut dyn FnMut(&OwnedPath<'_>) -> ControlFlow<()>,
    ) {
        let digests = self.info_text(record, ".md5sums");
        let texts = lists::Texts {
            list: list.map(|text| (text.path.as_slice(), text.bytes.as_slice())),
            digests: digests.as_ref().map(|text| (text.path.as_slice(), text.bytes.as_slice())),
            conffiles: record.conffiles,
        };
        lists::each_path(&texts, record.package, self.folders(), &self.problems, visit);
    }
}

impl PackageDatabase for Dpkg<'_> {
    fn manager(&self) -> &'static str {
        "dpkg"
    }

    fn packages(&self) -> &[Package] {
        self.records.packages()
    }

    fn problems(&self) -> &ProblemLog {
        &self.problems
    }

    fn each_path(&self, package: usize, visit: &mut dyn FnMut(&OwnedPath<'_>) -> ControlFlow<()>) {
        let Some(record) = self.records.get(package) else { return };
        let list = self.info_text(&record, ".list");
        self.each_path_with(&record, list.as_ref(), visit);
    }

    fn each_place(&self, package: usize, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {
        let Some(record) = self.records.get(package) else { return };
        match self.info_text(&record, ".list") {
            Some(list) => {
                let place = |path: &[u8]| visit(self.folders().diversions.place(path, &record.package.name));
                lists::each_listed_again((&list.path, &list.bytes), &self.problems, &mut { place });
            }
            None => self.each_path_with(&record, None, &mut |owned| visit(owned.path)),
        }
    }

    fn each_event(&self, visit: &mut dyn FnMut(&PackageEvent) -> ControlFlow<()>) {
        log::each_event(self.tree, &self.problems, visit);
    }

    fn installation_times(&self) -> Vec<Option<InstallationTime>> {
        let mut times = log::installation_times(self.tree, self.packages(), &self.problems);
        for (index, time) in times.iter_mut().enumerate() {
            let Some(record) = self.records.get(index) else { continue };
            if record.package.state == PackageState::ConfigurationOnly {
                *time = None;
            } else if time.is_none()
                && let Some((name, file)) = self.info_file(&record, ".list")
            {
                let stat = self.problems.skip(&[INFO, b"/", &name].concat(), self.tree.stat(file));
                *time = stat.map(|stat| InstallationTime::ListWritten(stat.modified));
            }
        }
        times
    }
}

/// Returns the list of packages and its path; `None` if there is none. If it is damaged, dpkg's own copy from before
/// the last change replaces it.
fn read_status(tree: &Tree<'_>, problems: &ProblemLog) -> Result<Option<Text>, GuestError> {
    let path = [FOLDER, b"/status"].concat();
    let error = match tree.read_path(&path, TEXT_BYTES_MAX) {
        Ok(bytes) => return Ok(Some(Text { path, bytes })),
        Err(GuestError::NotFound | GuestError::NotADirectory) => return Ok(None),
        Err(error) => error,
    };
    let copy = [FOLDER, b"/status-old"].concat();
    let Ok(bytes) = tree.read_path(&copy, TEXT_BYTES_MAX) else { return Err(error) };
    problems.note(Problem::of_file(&path, format!("{error}; its copy from before the last change is read instead")));
    Ok(Some(Text { path: copy, bytes }))
}

/// Checks the version of the folder `info`.
fn check_format(tree: &Tree<'_>, problems: &ProblemLog) -> Result<(), GuestError> {
    let path = [INFO, b"/format"].concat();
    let Some(text) = problems.skip(&path, tree.read_path(&path, TEXT_BYTES_MAX)) else { return Ok(()) };
    let version = std::str::from_utf8(text.trim_ascii()).ok().and_then(|text| text.parse::<u32>().ok());
    match version {
        Some(version) if version <= FORMAT_MAX => Ok(()),
        _ => Err(GuestError::Unsupported("a dpkg database of an unknown format")),
    }
}

/// Adds the packages of all files of a folder with wanted names, in the order of the names.
fn add_folder(
    tree: &Tree<'_>,
    folder: &[u8],
    records: &mut Records,
    problems: &ProblemLog,
    is_wanted: fn(&[u8]) -> bool,
) {
    let Some(found) = problems.skip(folder, tree.find(folder, Links::Follow)) else { return };
    let mut files = Vec::new();
    let read = tree.each_entry(found.file, &mut |entry, file| {
        if entry.kind != Some(FileKind::Directory) && is_wanted(&entry.name) {
            files.push((entry.name, file));
        }
        if files.len() <= FILES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    problems.skip(folder, read);
    if files.len() > FILES_MAX {
        files.truncate(FILES_MAX);
        problems.note(Problem::of_file(folder, "more files than are read"));
    }
    files.sort();
    let mut bytes = 0_usize;
    for (name, file) in files {
        let path = [folder, b"/", &name].concat();
        let Some(text) = problems.skip(&path, tree.read_whole(file, TEXT_BYTES_MAX)) else { continue };
        bytes = bytes.saturating_add(text.len());
        if bytes > TEXT_BYTES_MAX {
            problems.note(Problem::of_file(&path, "more text than is read"));
            return;
        }
        let file_name = (folder == STATUS_FOLDER).then_some(name.as_slice());
        records.add(&text, file_name, &path, problems);
    }
}

/// Returns whether a file of `updates` is complete: dpkg gives complete ones a number as their name.
fn is_update(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

/// Returns whether a file of `status.d` describes a package. The folder also contains digests.
fn is_package(name: &[u8]) -> bool {
    !name.ends_with(b".md5sums") && !name.starts_with(b".")
}
