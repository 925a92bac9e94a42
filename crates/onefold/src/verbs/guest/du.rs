//! `onefold guest du`

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;

use onefold_block::Show;
use onefold_guest::filesystem::{FileKind, FileStat};
use onefold_guest::tree::{
    Crossing, FileSet, GuestFile, Insertion, Links, ResolvedFile, Visitor, WalkEntry, WalkError, WalkStep,
};
use serde_json::{Value, json};

use super::describe::path_members;
use super::ending::Ending;
use super::scene::Scene;
use super::streaming::{self, PrintResult};
use crate::cli::Talk;
use crate::cli::guest::GuestDuArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, RowForm, StdoutListing};
use crate::size::human;

pub(super) fn run(arguments: &GuestDuArgs, talk: Talk) -> Outcome<Report> {
    if talk.json && arguments.null {
        return Err(Failure::usage("cannot add up files").because_of("--json and --null exclude each other"));
    }
    let listing = StdoutListing::new(RowForm::of(talk, arguments.null), "folders");
    streaming::list(&arguments.image, talk, listing, |scene, ending, listing| {
        let depth_max = arguments.depth.map_or(usize::MAX, |depth| usize::try_from(depth).unwrap_or(usize::MAX));
        let mut counted = CountedFiles::default();
        for path in &arguments.paths {
            match scene.find(path.as_bytes(), Links::Keep) {
                Ok(found) => {
                    let mut sums = SumPrinter::new(scene, ending, listing, depth_max, &mut counted);
                    sums.all(&found)?;
                }
                Err(failure) => ending.failed(failure),
            }
        }
        if counted.is_full {
            ending.warn("files with several names counted once for each name: there are too many of them".to_owned());
        }
        Ok(())
    })
}

/// Files with several names that have been counted.
#[derive(Default)]
struct CountedFiles {
    files: FileSet,
    /// Whether some of them are not remembered.
    is_full: bool,
}

impl CountedFiles {
    /// Returns whether a file has been counted under another name.
    fn has(&mut self, file: GuestFile) -> bool {
        let insertion = self.files.insert(file);
        self.is_full |= insertion == Insertion::Full;
        insertion == Insertion::Known
    }
}

/// Space of the files below a folder.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    allocated_bytes: u64,
    size_bytes: u64,
    files: u64,
}

impl Sum {
    fn of(stat: &FileStat) -> Sum {
        Sum { allocated_bytes: stat.allocated_bytes, size_bytes: stat.size_bytes, files: 1 }
    }

    fn add(&mut self, other: Sum) {
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
        self.size_bytes = self.size_bytes.saturating_add(other.size_bytes);
        self.files += other.files;
    }
}

/// A folder whose files are being added up.
#[derive(Default)]
struct FolderSum {
    sum: Sum,
    /// The space of each folder in it, without the files below, until all of these are known.
    folders: HashMap<Vec<u8>, Sum>,
}

/// Sums that are being printed.
struct SumPrinter<'s, 'g, 'a> {
    scene: &'s Scene<'g, 'a>,
    ending: &'s mut Ending,
    listing: &'s mut StdoutListing,
    depth_max: usize,
    counted: &'s mut CountedFiles,
    /// The folders from the first one down to the present one.
    open: Vec<FolderSum>,
    outcome: PrintResult<()>,
}

impl<'s, 'g, 'a> SumPrinter<'s, 'g, 'a> {
    fn new(
        scene: &'s Scene<'g, 'a>,
        ending: &'s mut Ending,
        listing: &'s mut StdoutListing,
        depth_max: usize,
        counted: &'s mut CountedFiles,
    ) -> SumPrinter<'s, 'g, 'a> {
        SumPrinter { scene, ending, listing, depth_max, counted, open: vec![FolderSum::default()], outcome: Ok(()) }
    }

    /// Adds up a file, or a folder with everything below it.
    fn all(&mut self, found: &ResolvedFile) -> PrintResult<()> {
        let own = Sum::of(&found.stat);
        if found.stat.kind != FileKind::Directory {
            return self.print(&found.path, own);
        }
        if let Some(folder) = self.open.first_mut() {
            folder.sum = own;
        }
        let tree = &self.scene.tree;
        if let Err(error) = tree.walk(found, Crossing::Enter, self) {
            self.ending.failed_path(&found.path, &error);
        }
        std::mem::replace(&mut self.outcome, Ok(()))
    }

    fn print(&mut self, path: &[u8], sum: Sum) -> PrintResult<()> {
        let is_in_use = self.scene.image.is_in_use();
        match self.listing.form() {
            RowForm::Lines => {
                let mark = if is_in_use { " ?" } else { "" };
                return Ok(self.listing.line(&format!(
                    "{:>11}{mark}  {}",
                    human(sum.allocated_bytes),
                    path.shown()
                ))?);
            }
            RowForm::Raw => {
                return Ok(self.listing.raw(&[format!("{}\t", sum.allocated_bytes).as_bytes(), path].concat())?);
            }
            RowForm::Json => {}
        }
        let mut members = path_members("path", path);
        let numbers = json!({
            "allocated_bytes": sum.allocated_bytes,
            "size_bytes": sum.size_bytes,
            "files": sum.files,
            "in_use": is_in_use,
        });
        members.extend(numbers.as_object().cloned().unwrap_or_default());
        Ok(self.listing.json(&Value::Object(members))?)
    }
}

impl Visitor for SumPrinter<'_, '_, '_> {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        let stat = match self.scene.tree.stat(entry.file) {
            Ok(stat) => stat,
            Err(error) => {
                self.ending.failed_path(entry.path, &error);
                return WalkStep::Skip;
            }
        };
        self.open.resize_with(self.open.len().max(entry.depth), FolderSum::default);
        let is_folder = stat.kind == FileKind::Directory;
        let counts = is_folder || stat.links < 2 || !self.counted.has(entry.file);
        if let Some(folder) = self.open.get_mut(entry.depth - 1) {
            match (is_folder, counts) {
                (true, _) => _ = folder.folders.insert(entry.name.to_vec(), Sum::of(&stat)),
                (false, true) => folder.sum.add(Sum::of(&stat)),
                (false, false) => {}
            }
        }
        // Without a reader of the sums there is nothing to add up.
        if self.outcome.is_ok() { WalkStep::Enter } else { WalkStep::Stop }
    }

    fn leave(&mut self, path: &[u8], depth: usize) {
        let folder = if self.open.len() > depth { self.open.pop() } else { None };
        let mut sum = Sum::default();
        if let Some(folder) = folder {
            sum = folder.sum;
            // Folders that could not be entered still take their own blocks.
            folder.folders.into_values().for_each(|own| sum.add(own));
        }
        if let Some(above) = depth.checked_sub(1).and_then(|above| self.open.get_mut(above)) {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            if let Some(own) = above.folders.remove(name) {
                sum.add(own);
            }
            above.sum.add(sum);
        }
        if depth <= self.depth_max && self.outcome.is_ok() {
            self.outcome = self.print(path, sum);
        }
    }

    fn failed(&mut self, path: &[u8], error: WalkError) {
        self.ending.failed_walk(path, &error);
    }
}
