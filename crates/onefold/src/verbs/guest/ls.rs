//! `onefold guest ls`

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use onefold_block::Show;
use onefold_guest::filesystem::{FileKind, FileStat, VerityDigest};
use onefold_guest::tree::{Crossing, GuestFile, Links, ResolvedFile, Visitor, WalkEntry, WalkError, WalkStep};
use serde_json::Value;

use super::describe::{file_members, long_line};
use super::ending::Ending;
use super::scene::Scene;
use super::streaming::{self, PrintResult};
use crate::cli::Talk;
use crate::cli::guest::GuestLsArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, RowForm, StdoutListing};

/// Maximum number of entries of a directory that are sorted together. A larger directory is listed in pieces of this
/// size, each sorted.
const SORTED_MAX: usize = 500_000;

pub(super) fn run(arguments: &GuestLsArgs, talk: Talk) -> Outcome<Report> {
    if talk.json && arguments.null {
        return Err(Failure::usage("cannot list files").because_of("--json and --null exclude each other"));
    }
    let listing = StdoutListing::new(RowForm::of(talk, arguments.null), "files");
    streaming::list(&arguments.image, talk, listing, |scene, ending, listing| {
        let has_headings = arguments.recursive || arguments.paths.len() > 1;
        List { scene, ending, listing, long: arguments.long, has_headings, is_first: true }.all(arguments)
    })
}

/// A list that is being printed.
struct List<'s, 'g, 'a> {
    scene: &'s Scene<'g, 'a>,
    ending: &'s mut Ending,
    listing: &'s mut StdoutListing,
    long: bool,
    has_headings: bool,
    /// Whether nothing has been printed before.
    is_first: bool,
}

/// A name in a directory.
struct LsEntry {
    name: Vec<u8>,
    file: GuestFile,
}

impl List<'_, '_, '_> {
    fn all(mut self, arguments: &GuestLsArgs) -> PrintResult<()> {
        // Like `ls`: follows a link that is named alone, unless its own line is requested.
        let links = if arguments.long { Links::Keep } else { Links::Follow };
        let mut directories = Vec::new();
        for path in &arguments.paths {
            match self.scene.find(path.as_bytes(), links) {
                Ok(found) if found.stat.kind == FileKind::Directory => directories.push(found),
                Ok(found) => self.row(&found.path, &found.path, found.file)?,
                Err(failure) => self.ending.failed(failure),
            }
        }
        for directory in &directories {
            match arguments.recursive {
                true => self.recursive(directory)?,
                false => self.one(directory)?,
            }
        }
        Ok(())
    }

    /// Lists one directory.
    fn one(&mut self, directory: &ResolvedFile) -> PrintResult<()> {
        self.heading(&directory.path)?;
        let (mut entries, mut outcome) = (Vec::new(), Ok(()));
        let scene = self.scene;
        let read = scene.tree.each_entry(directory.file, &mut |entry, file| {
            entries.push(LsEntry { name: entry.name, file });
            if entries.len() >= SORTED_MAX {
                outcome = self.entries(&directory.path, &mut entries);
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        outcome?;
        self.entries(&directory.path, &mut entries)?;
        if let Err(error) = read {
            self.ending.failed_path(&directory.path, &error);
        }
        Ok(())
    }

    /// Lists a directory and everything below it.
    fn recursive(&mut self, directory: &ResolvedFile) -> PrintResult<()> {
        let tree = &self.scene.tree;
        let mut lister =
            WalkLister { list: self, directory: Vec::new(), entries: Vec::new(), begun: Vec::new(), outcome: Ok(()) };
        let walked = tree.walk(directory, Crossing::Enter, &mut lister);
        lister.flush();
        lister.outcome?;
        if let Err(error) = walked {
            self.ending.failed_path(&directory.path, &error);
        }
        Ok(())
    }

    /// Prints the name of a directory before its entries, if several directories are listed.
    fn heading(&mut self, directory: &[u8]) -> PrintResult<()> {
        if !self.has_headings || self.listing.form() != RowForm::Lines {
            return Ok(());
        }
        if !self.is_first {
            self.listing.line("")?;
        }
        self.is_first = false;
        Ok(self.listing.line(&format!("{}:", directory.shown()))?)
    }

    /// Prints entries by name and clears the list.
    fn entries(&mut self, directory: &[u8], entries: &mut Vec<LsEntry>) -> PrintResult<()> {
        entries.sort_unstable_by(|one, two| one.name.cmp(&two.name));
        for entry in entries.drain(..) {
            let path = below(directory, &entry.name);
            self.row(&entry.name, &path, entry.file)?;
        }
        Ok(())
    }

    /// Prints a file.
    fn row(&mut self, name: &[u8], path: &[u8], file: GuestFile) -> PrintResult<()> {
        self.is_first = false;
        match self.listing.form() {
            RowForm::Raw => return Ok(self.listing.raw(path)?),
            RowForm::Lines if !self.long => return Ok(self.listing.line(&name.shown().to_string())?),
            _ => {}
        }
        let stat = match self.scene.tree.stat(file) {
            Ok(stat) => stat,
            Err(error) => {
                self.ending.failed_path(path, &error);
                return Ok(());
            }
        };
        let target = self.target(path, file, &stat);
        match self.listing.form() {
            RowForm::Json => {
                let mut members = file_members(path, &stat, target.as_deref());
                if let Some(digest) = self.verity(path, file, &stat) {
                    members.insert("verity".to_owned(), digest.to_string().into());
                }
                self.listing.json(&Value::Object(members))?;
            }
            _ => self.listing.line(&long_line(name, &stat, target.as_deref()))?,
        }
        Ok(())
    }

    /// Returns the digest that the file system keeps for a file.
    fn verity(&mut self, path: &[u8], file: GuestFile, stat: &FileStat) -> Option<VerityDigest> {
        if stat.kind != FileKind::Regular {
            return None;
        }
        let digest = self.scene.tree.system(file.system).verity(file.file);
        digest.unwrap_or_else(|error| {
            self.ending.failed_path(path, &error);
            None
        })
    }

    fn target(&mut self, path: &[u8], file: GuestFile, stat: &FileStat) -> Option<Vec<u8>> {
        if stat.kind != FileKind::SymbolicLink {
            return None;
        }
        match self.scene.tree.system(file.system).read_link(file.file) {
            Ok(target) => Some(target),
            Err(error) => {
                self.ending.failed_path(path, &error);
                None
            }
        }
    }
}

/// Returns the path of a name in a directory.
pub(super) fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// Lists the files that a walk visits. The entries of a directory arrive together.
struct WalkLister<'l, 's, 'g, 'a> {
    list: &'l mut List<'s, 'g, 'a>,
    /// The directory whose entries are being gathered; empty if none are.
    directory: Vec<u8>,
    entries: Vec<LsEntry>,
    /// For each directory from the first one down to the present one, whether it has had an entry.
    begun: Vec<bool>,
    outcome: PrintResult<()>,
}

impl WalkLister<'_, '_, '_, '_> {
    /// Prints the gathered entries.
    fn flush(&mut self) {
        if self.outcome.is_ok() {
            self.outcome = self.list.entries(&self.directory, &mut self.entries);
        }
    }

    fn begin(&mut self, directory: &[u8]) {
        self.flush();
        directory.clone_into(&mut self.directory);
        if self.outcome.is_ok() {
            self.outcome = self.list.heading(directory);
        }
    }
}

impl Visitor for WalkLister<'_, '_, '_, '_> {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        self.begun.resize(entry.depth, false);
        if !std::mem::replace(&mut self.begun[entry.depth - 1], true) {
            let end = entry.path.len().saturating_sub(entry.name.len() + 1).max(1);
            self.begin(&entry.path[..end]);
        }
        self.entries.push(LsEntry { name: entry.name.to_vec(), file: entry.file });
        if self.entries.len() >= SORTED_MAX {
            self.flush();
        }
        if self.outcome.is_ok() { WalkStep::Enter } else { WalkStep::Stop }
    }

    fn leave(&mut self, path: &[u8], depth: usize) {
        self.begun.resize(depth + 1, false);
        if !self.begun[depth] {
            self.begin(path);
        }
        self.begun.truncate(depth);
    }

    fn failed(&mut self, path: &[u8], error: WalkError) {
        self.list.ending.failed_walk(path, &error);
    }
}
