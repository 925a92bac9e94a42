//! Compares two trees.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::vec;

use onefold_block::Show;
use onefold_guest::filesystem::{FileKind, FileStat};
use onefold_guest::tree::{FileSet, GuestFile, Insertion, ResolvedFile, WalkError};
use serde_json::{Value, json};

use super::DiffSide;
use super::content::{self, ComparedFile, OfSide, SideError};
use crate::failure::{Exit, Failure};
use crate::output::{RowForm, StdoutListing};
use crate::verbs::guest::describe::{kind_name, path_members};
use crate::verbs::guest::ending::Ending;
use crate::verbs::guest::ls::below;
use crate::verbs::guest::streaming::PrintResult;

/// Maximum number of bytes of names in a directory that are compared, plus [`ENTRY_BYTES`] for each name: 500,000 usual
/// names. The names of both sides are in memory, beside the caches of both images.
const ENTRIES_BYTES_MAX: usize = 36 << 20;
const ENTRY_BYTES: usize = 64;
/// Length of a path at which a comparison goes no deeper. A path that programs can name has at most 4096 bytes.
const PATH_BYTES_MAX: usize = 64 << 10;
/// Maximum number of bytes of the paths of directories that wait to be compared, plus 64 for each.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// A comparison of two trees.
pub(super) struct TreeComparison<'s, 'g, 'a> {
    sides: &'s [DiffSide<'s, 'g, 'a>; 2],
    /// Whether the comparison reads all content.
    content: bool,
    listing: &'s mut StdoutListing,
    ending: &'s mut Ending,
    /// The directories of each side that were entered.
    entered: [FileSet; 2],
    /// The directories of both sides that are still to be compared; the last one comes next.
    waiting: Vec<(Vec<u8>, [GuestFile; 2])>,
    /// The memory that these take, see [`waiting_bytes`].
    waiting_bytes: usize,
}

/// A name in a directory.
struct ComparedName {
    name: Vec<u8>,
    file: GuestFile,
}

/// The entries of a directory, as many as there is room for.
struct ComparedNames {
    all: Vec<ComparedName>,
    bytes_left: usize,
    is_full: bool,
}

impl ComparedNames {
    fn new(bytes_max: usize) -> ComparedNames {
        ComparedNames { all: Vec::new(), bytes_left: bytes_max, is_full: false }
    }

    /// Adds an entry, or breaks if there is no room.
    fn add(&mut self, name: Vec<u8>, file: GuestFile) -> ControlFlow<()> {
        let Some(left) = self.bytes_left.checked_sub(name.len() + ENTRY_BYTES) else {
            self.is_full = true;
            return ControlFlow::Break(());
        };
        self.bytes_left = left;
        self.all.push(ComparedName { name, file });
        ControlFlow::Continue(())
    }
}

impl<'s, 'g, 'a> TreeComparison<'s, 'g, 'a> {
    pub(super) fn new(
        sides: &'s [DiffSide<'s, 'g, 'a>; 2],
        content: bool,
        listing: &'s mut StdoutListing,
        ending: &'s mut Ending,
    ) -> TreeComparison<'s, 'g, 'a> {
        TreeComparison {
            sides,
            content,
            listing,
            ending,
            entered: Default::default(),
            waiting: Vec::new(),
            waiting_bytes: 0,
        }
    }

    /// Compares two files, and everything below them if they are directories.
    pub(super) fn compare(mut self, roots: [ResolvedFile; 2]) -> PrintResult<()> {
        let [one, two] = roots;
        self.pair(one.path.clone(), [one.file, two.file])?;
        while let Some((path, pair)) = self.waiting.pop() {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(waiting_bytes(&path));
            self.directories(&path, pair)?;
        }
        Ok(())
    }

    /// Compares the entries of two directories.
    fn directories(&mut self, path: &[u8], pair: [GuestFile; 2]) -> PrintResult<()> {
        for (side, directory) in pair.into_iter().enumerate() {
            let error = match self.entered[side].insert(directory) {
                Insertion::New => continue,
                Insertion::Known => WalkError::EnteredBefore,
                Insertion::Full => WalkError::TooMany,
            };
            self.of(side).failed_walk(path, &error);
            return Ok(());
        }
        let [one, two] = [0, 1].map(|side| self.entries(side, path, pair[side]));
        let (mut one, mut two) = (one.into_iter().peekable(), two.into_iter().peekable());
        let first = self.waiting.len();
        while let Some((name, files)) = next_pair(&mut one, &mut two) {
            let path = below(path, &name);
            match files {
                [Some(one), Some(two)] => self.pair(path, [one, two])?,
                [Some(file), None] => self.alone(0, &path, file)?,
                [None, file] => file.map_or(Ok(()), |file| self.alone(1, &path, file))?,
            }
        }
        // Directories are taken from the end.
        self.waiting[first..].reverse();
        Ok(())
    }

    /// Returns the entries of a directory by name.
    fn entries(&mut self, side: usize, path: &[u8], directory: GuestFile) -> Vec<ComparedName> {
        let mut entries = ComparedNames::new(ENTRIES_BYTES_MAX);
        let read = self.sides[side].scene.tree.each_entry(directory, &mut |entry, file| entries.add(entry.name, file));
        if let Err(error) = read {
            self.of(side).failed_path(path, &error);
        }
        if entries.is_full {
            let failure = Failure::new(format!("cannot compare all of `{}`", path.shown()))
                .because_of("it has more names than a comparison remembers");
            self.of(side).failed(Failure { exit: Exit::Damage, ..failure });
        }
        entries.all.sort_unstable_by(|one, two| one.name.cmp(&two.name));
        entries.all
    }

    /// Reports a file that only one side has. Reports nothing below a directory.
    fn alone(&mut self, side: usize, path: &[u8], file: GuestFile) -> PrintResult<()> {
        let kind = match self.sides[side].scene.tree.stat(file) {
            Ok(stat) => stat.kind,
            Err(error) => {
                self.of(side).failed_path(path, &error);
                return Ok(());
            }
        };
        if self.listing.form() == RowForm::Json {
            let mut members = path_members("path", path);
            members.insert("only_in".to_owned(), ["one", "two"][side].into());
            members.insert("kind".to_owned(), kind_name(kind).into());
            return Ok(self.listing.json(&Value::Object(members))?);
        }
        let slash = if kind == FileKind::Directory { "/" } else { "" };
        let which = ["first", "second"][side];
        Ok(self.listing.line(&format!("only in the {which}: {}{slash}", path.shown()))?)
    }

    /// Compares two files with the same path.
    fn pair(&mut self, path: Vec<u8>, pair: [GuestFile; 2]) -> PrintResult<()> {
        let stat = |side: usize| self.sides[side].scene.tree.stat(pair[side]).of_side(side);
        let compared = stat(0).and_then(|one| Ok((one, stat(1)?)));
        let (one, two) = match compared {
            Ok(both) => both,
            Err(SideError { side, error }) => {
                self.of(side).failed_path(&path, &error);
                return Ok(());
            }
        };
        let mut changes = changes(&one, &two);
        match self.content_changes(pair, &one, &two) {
            Ok(change) => changes.extend(change),
            Err(SideError { side, error }) => self.of(side).failed_path(&path, &error),
        }
        if !changes.is_empty() {
            self.changed(&path, &changes)?;
        }
        if one.kind == FileKind::Directory && two.kind == FileKind::Directory {
            self.wait(path, pair);
        }
        Ok(())
    }

    /// Returns the ending, for messages about one side.
    fn of(&mut self, side: usize) -> &mut Ending {
        self.ending.turn_to(self.sides[side].image);
        self.ending
    }

    /// Notes two directories whose entries must be compared.
    fn wait(&mut self, path: Vec<u8>, pair: [GuestFile; 2]) {
        let bytes = self.waiting_bytes.saturating_add(waiting_bytes(&path));
        // The limits are those of the comparison, and not of one side.
        self.ending.leave();
        if path.len() > PATH_BYTES_MAX {
            self.ending.failed_walk(&path, &WalkError::TooDeep);
        } else if bytes > WAITING_BYTES_MAX {
            self.ending.failed_walk(&path, &WalkError::TooMany);
        } else {
            self.waiting_bytes = bytes;
            self.waiting.push((path, pair));
        }
    }

    /// Returns the differences in the content of two files of the same kind.
    fn content_changes(
        &self,
        pair: [GuestFile; 2],
        one: &FileStat,
        two: &FileStat,
    ) -> Result<Option<Value>, SideError> {
        if one.kind != two.kind {
            return Ok(None);
        }
        let system = |side: usize| self.sides[side].scene.tree.system(pair[side].system);
        if one.kind == FileKind::SymbolicLink {
            let target = |side: usize| system(side).read_link(pair[side].file).of_side(side);
            let targets = [target(0)?, target(1)?];
            let [one, two] = targets.each_ref().map(|target| String::from_utf8_lossy(target));
            return Ok((targets[0] != targets[1]).then(|| json!({ "what": "target", "one": one, "two": two })));
        }
        if one.kind != FileKind::Regular {
            return Ok(None);
        }
        if one.size_bytes != two.size_bytes {
            return Ok(Some(json!({ "what": "size_bytes", "one": one.size_bytes, "two": two.size_bytes })));
        }
        let side = |side: usize, stat| ComparedFile {
            side,
            system: system(side),
            file: pair[side],
            stat,
            digests: &self.sides[side].digests,
        };
        let (one, two) = (side(0, one), side(1, two));
        if !self.content && content::are_known_equal(&one, &two)? {
            return Ok(None);
        }
        Ok((!content::are_equal(&one, &two)?).then(|| json!({ "what": "content" })))
    }

    fn changed(&mut self, path: &[u8], changes: &[Value]) -> PrintResult<()> {
        if self.listing.form() == RowForm::Json {
            let mut members = path_members("path", path);
            members.insert("changes".to_owned(), changes.into());
            return Ok(self.listing.json(&Value::Object(members))?);
        }
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), |text| text.shown().to_string());
        let change = |change: &Value| match change.get("one") {
            Some(one) => format!("{} {} -> {}", text(&change["what"]), text(one), text(&change["two"])),
            None => text(&change["what"]),
        };
        let changes: Vec<String> = changes.iter().map(change).collect();
        Ok(self.listing.line(&format!("changed: {} ({})", path.shown(), changes.join(", ")))?)
    }
}

/// Returns the memory of a waiting directory.
fn waiting_bytes(path: &[u8]) -> usize {
    path.len() + 64
}

/// Takes the next name of two sorted lists, with the files of that name.
fn next_pair(
    one: &mut Peekable<vec::IntoIter<ComparedName>>,
    two: &mut Peekable<vec::IntoIter<ComparedName>>,
) -> Option<(Vec<u8>, [Option<GuestFile>; 2])> {
    let order = match (one.peek(), two.peek()) {
        (Some(one), Some(two)) => one.name.cmp(&two.name),
        (Some(_), None) => Ordering::Less,
        (None, _) => Ordering::Greater,
    };
    let first = if order.is_le() { one.next() } else { None };
    let second = if order.is_ge() { two.next() } else { None };
    let files = [first.as_ref().map(|entry| entry.file), second.as_ref().map(|entry| entry.file)];
    Some((first.or(second)?.name, files))
}

/// Returns the differences of two files apart from their content and times.
fn changes(one: &FileStat, two: &FileStat) -> Vec<Value> {
    let mut changes = Vec::new();
    let mut note = |what: &str, one: Value, two: Value| {
        if one != two {
            changes.push(json!({ "what": what, "one": one, "two": two }));
        }
    };
    let mode = |stat: &FileStat| format!("{:04o}", stat.mode & 0o7777).into();
    note("kind", kind_name(one.kind).into(), kind_name(two.kind).into());
    note("mode", mode(one), mode(two));
    note("user", one.user.into(), two.user.into());
    note("group", one.group.into(), two.group.into());
    note("device", json!(one.device), json!(two.device));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_guest::filesystem::FileNumber;
    use onefold_guest::tree::SystemIndex;

    /// Regression: two directories of two million long names took more than a gigabyte.
    #[test]
    fn long_names_take_as_much_room_as_many() {
        let file = GuestFile { system: SystemIndex(0), file: FileNumber(1) };
        for (length, count) in [(0, 100), (64, 50), (255, 20), (6400, 0)] {
            let mut entries = ComparedNames::new(6400);
            let added = (0..1000).take_while(|_| entries.add(vec![b'n'; length], file).is_continue()).count();
            assert_eq!((added, entries.all.len(), entries.is_full), (count, count, true), "{length}");
        }
    }
}
