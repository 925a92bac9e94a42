//! Names for the owners of blocks in one image: assigns numbers to them in bounded memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::analysis::{GroupName, MisalignedCause, OTHERS};

/// Owner of a block. If several files have a block, the first one in the order of names owns it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct OwnerName {
    pub(super) group: GroupName,
    /// A part of the group.
    pub(super) part: String,
    /// A part of that part; empty if there is none.
    pub(super) sub: String,
    /// Why the bytes cross blocks, if they do.
    pub(super) cause: Option<MisalignedCause>,
}

impl OwnerName {
    pub(super) fn new(group: GroupName, part: &str, sub: &str, cause: Option<MisalignedCause>) -> OwnerName {
        OwnerName { group, part: part.to_owned(), sub: sub.to_owned(), cause }
    }

    /// Returns the name under which small owners of the same group are counted together.
    pub(super) fn others(&self) -> OwnerName {
        OwnerName::new(self.group, OTHERS, "", self.cause)
    }

    /// Returns the approximate memory of its text.
    pub(super) fn text_bytes(&self) -> usize {
        self.part.len() + self.sub.len()
    }
}

/// The name of bytes about which nothing is known.
pub(super) const UNKNOWN: &str = "unknown content";

/// Maximum number of owners of files in one image. It is below the number for which a record has room.
const FILE_OWNERS_MAX: usize = 56_000;
/// Maximum bytes of a package's name that are kept.
const PACKAGE_BYTES_MAX: usize = 128;
/// Memory of an owner without its text.
const OWNER_BYTES: usize = 200;

/// The package of a file, by its number among the packages of its system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PackageId {
    pub(super) system: usize,
    pub(super) package: usize,
}

/// The owners of an image, numbered in the order in which they are found.
pub(super) struct Names {
    names: Vec<OwnerName>,
    numbers: HashMap<OwnerName, u32>,
    /// The owners of files. A known folder needs no new name.
    of_files: FileOwners,
    bytes_left: usize,
}

/// The numbers of the owners of files, by folder, package and cause.
#[derive(Default)]
struct FileOwners {
    folders: HashMap<Arc<[u8]>, usize>,
    /// One map for each folder.
    owners: Vec<HashMap<OwnerKey, u32>>,
    /// The folder of the last query. The next file is usually in the same folder.
    last: Option<(Arc<[u8]>, usize)>,
}

type OwnerKey = (Option<PackageId>, Option<MisalignedCause>);

impl FileOwners {
    fn get(&mut self, folder: &[u8], key: OwnerKey) -> Option<u32> {
        let place = self.place(folder)?;
        self.owners.get(place)?.get(&key).copied()
    }

    fn insert(&mut self, folder: &[u8], key: OwnerKey, number: u32) {
        let place = self.place(folder).unwrap_or_else(|| {
            self.folders.insert(folder.into(), self.owners.len());
            self.owners.push(HashMap::new());
            self.owners.len() - 1
        });
        if let Some(owners) = self.owners.get_mut(place) {
            owners.insert(key, number);
        }
    }

    /// Returns the index of a folder in the list, if it is there.
    fn place(&mut self, folder: &[u8]) -> Option<usize> {
        if let Some((last, place)) = &self.last
            && **last == *folder
        {
            return Some(*place);
        }
        let (name, place) = self.folders.get_key_value(folder)?;
        self.last = Some((Arc::clone(name), *place));
        Some(*place)
    }
}

impl Names {
    /// Returns an empty list that takes about `memory_bytes`.
    pub(super) fn new(memory_bytes: usize) -> Names {
        let of_files = FileOwners::default();
        Names { names: Vec::new(), numbers: HashMap::new(), of_files, bytes_left: memory_bytes }
    }

    /// Returns the number of an owner. Only for names of which there can only be few.
    pub(super) fn fixed(&mut self, name: OwnerName) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    /// Returns the number of the owner of files in a folder that belong to `package`. `name_of` returns the package's
    /// name.
    pub(super) fn file(
        &mut self,
        package: Option<PackageId>,
        cause: Option<MisalignedCause>,
        folder: &[u8],
        name_of: impl Fn(PackageId) -> String,
    ) -> u32 {
        let key = (package, cause);
        if let Some(number) = self.of_files.get(folder, key) {
            return number;
        }
        let text = String::from_utf8_lossy(folder);
        let name = match package {
            Some(id) => OwnerName::new(GroupName::Packages, &cut(name_of(id)), &text, cause),
            None => OwnerName::new(GroupName::Files, first_name(&text), &text, cause),
        };
        let bytes = OWNER_BYTES + 3 * name.text_bytes() + folder.len();
        if self.names.len() >= FILE_OWNERS_MAX || self.bytes_left < bytes {
            let others = name.others();
            return self.fixed(others);
        }
        self.bytes_left -= bytes;
        let number = self.fixed(name);
        self.of_files.insert(folder, key, number);
        number
    }

    /// Returns the sorted owners, and the rank of each number.
    pub(super) fn ranked(self) -> (Vec<OwnerName>, Vec<u32>) {
        let mut order: Vec<(OwnerName, usize)> = self.names.into_iter().zip(0..).collect();
        order.sort_unstable();
        let mut ranks = vec![0; order.len()];
        for (rank, (_, number)) in (0..).zip(&order) {
            if let Some(place) = ranks.get_mut(*number) {
                *place = rank;
            }
        }
        (order.into_iter().map(|(name, _)| name).collect(), ranks)
    }
}

/// Truncates a name that is too long to keep.
fn cut(mut name: String) -> String {
    if name.len() > PACKAGE_BYTES_MAX {
        let end = (0..=PACKAGE_BYTES_MAX).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        name.truncate(end);
        name.push('…');
    }
    name
}

/// Returns the folder of a path in the form of owners: at most its first two names. `/var/log` for
/// `/var/log/apt/term.log`, `/` for `/swapfile`.
pub(super) fn folder_of(path: &[u8]) -> &[u8] {
    let mut slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    match (slashes.nth(1), slashes.next()) {
        (None, _) => b"/",
        (Some(end), None) | (_, Some(end)) => path.get(..end).unwrap_or(b"/"),
    }
}

/// Returns the first folder of a folder: `/var` of `/var/log`.
fn first_name(folder: &str) -> &str {
    let end = folder.get(1..).and_then(|rest| rest.find('/')).map_or(folder.len(), |at| at + 1);
    folder.get(..end).unwrap_or(folder)
}

/// The largest owners of an image with their new numbers, and the owners with which all others are counted.
pub(super) struct LargestOwners {
    /// By the new number.
    pub(super) names: Vec<OwnerName>,
    /// The new number of each original owner.
    pub(super) numbers: Vec<u16>,
}

/// Keeps all owners in `names` that are not owners of files. Of the others, keeps those with the most `blocks`, as long
/// as `fits` accepts them. The rest is counted together. Number 0 is the owner about which nothing is known.
pub(super) fn keep_largest(
    names: &[OwnerName],
    blocks: &[u64],
    mut fits: impl FnMut(&OwnerName) -> bool,
) -> LargestOwners {
    let size_of = |at: usize| blocks.get(at).copied().unwrap_or(0);
    let is_small =
        |name: &OwnerName| matches!(name.group, GroupName::Packages | GroupName::Files) && !name.sub.is_empty();
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|at| (is_small(&names[*at]), std::cmp::Reverse(size_of(*at)), *at));
    let unknown = OwnerName::new(GroupName::NotRead, UNKNOWN, "", None);
    let mut kept: BTreeMap<OwnerName, u16> = BTreeMap::from([(unknown.clone(), 0)]);
    let mut list: Vec<OwnerName> = vec![unknown];
    let mut numbers = vec![0; names.len()];
    let mut is_full = false;
    for at in order {
        let name = &names[at];
        // An owner without a block gets no number, because nothing refers to it.
        if size_of(at) == 0 {
            continue;
        }
        is_full |= is_small(name) && (list.len() >= FILE_OWNERS_MAX || !fits(name));
        let name = if is_full && is_small(name) { name.others() } else { name.clone() };
        let number = *kept.entry(name).or_insert_with_key(|name| {
            list.push(name.clone());
            u16::try_from(list.len() - 1).unwrap_or(u16::MAX)
        });
        numbers[at] = number;
    }
    LargestOwners { names: list, numbers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_at_most_two_names() {
        for (path, folder, first) in [
            ("/swapfile", "/", "/"),
            ("/etc/passwd", "/etc", "/etc"),
            ("/var/log/syslog", "/var/log", "/var"),
            ("/var/log/apt/term.log", "/var/log", "/var"),
            ("odd", "/", "/"),
            ("", "/", "/"),
        ] {
            assert_eq!(folder_of(path.as_bytes()), folder.as_bytes(), "{path}");
            assert_eq!(first_name(folder), first, "{path}");
        }
    }

    #[test]
    fn owners_are_numbered_once_and_the_rest_is_others() {
        let mut names = Names::new(2 * (OWNER_BYTES + 100));
        let name_of = |id: PackageId| format!("package-{}", id.package);
        let package = |package| Some(PackageId { system: 0, package });
        let first = names.file(package(1), None, b"/usr/bin", name_of);
        assert_eq!(names.file(package(1), None, b"/usr/bin", name_of), first);
        let second = names.file(None, None, b"/var/log", name_of);
        assert_ne!(first, second);
        let third = names.file(package(2), None, b"/usr/bin", name_of);
        let fourth = names.file(package(3), None, b"/usr/lib", name_of);
        assert_eq!(third, fourth, "there is no more room");
        let (ranked, ranks) = names.ranked();
        let of = |number: u32| &ranked[ranks[number as usize] as usize];
        assert_eq!((of(first).part.as_str(), of(first).sub.as_str()), ("package-1", "/usr/bin"));
        assert_eq!((of(second).part.as_str(), of(second).sub.as_str()), ("/var", "/var/log"));
        assert_eq!(of(third).part, OTHERS);
        assert!(ranked.is_sorted());
    }

    #[test]
    fn the_largest_owners_are_kept_by_name() {
        let file = |sub: &str| OwnerName::new(GroupName::Files, first_name(sub), sub, None);
        let names =
            vec![file("/a"), file("/b"), file("/c"), file("/d"), OwnerName::new(GroupName::Gaps, "x", "", None)];
        let mut room = 2;
        let kept = keep_largest(&names, &[5, 9, 1, 0, 1], |_| {
            room -= 1;
            room >= 0
        });
        let name = |at: usize| &kept.names[usize::from(kept.numbers[at])];
        assert_eq!(name(0), &names[0]);
        assert_eq!(name(1), &names[1]);
        assert_eq!(name(2), &names[2].others());
        assert_eq!(name(4), &names[4], "what is no file is always kept");
        assert_eq!(kept.names.len(), 5);
        assert_eq!(kept.names[0].part, UNKNOWN);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(cut("short".to_owned()), "short");
        let long = cut("ä".repeat(100));
        assert!(long.len() <= PACKAGE_BYTES_MAX + 3 && long.ends_with('…'));
    }
}
