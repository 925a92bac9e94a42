//! Paths through symbolic links and mounts, followed as a process of the guest would follow them.

use super::{GuestFile, Tree};
use crate::error::GuestError;
use crate::filesystem::{FileKind, FileStat, SEARCHED_BYTES_MAX};

/// Maximum number of symbolic links in one path, as in Linux.
const LINKS_MAX: u32 = 40;
/// Maximum length of a path, and of the target of a link, as in Linux.
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// Maximum number of steps for the look-up of one path. A name takes one step, plus one for each [`STEP_BYTES`] of its
/// directory, because not all directories have an index. A path through a dozen giant directories takes a fifth of the
/// limit.
pub(super) const STEPS_MAX: u64 = 1 << 22;
const STEP_BYTES: u64 = 4096;
/// Maximum number of steps for one directory. It may claim 2^60 bytes, but readers search only a limited number of
/// them.
const DIRECTORY_STEPS_MAX: u64 = SEARCHED_BYTES_MAX / STEP_BYTES;

/// Returns the steps for the bytes of a directory in which a name is looked up.
fn look_up_steps(stat: &FileStat) -> u64 {
    (stat.size_bytes / STEP_BYTES).min(DIRECTORY_STEPS_MAX)
}

/// Treatment of a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// The result is the file to which it leads.
    Follow,
    /// The result is the link itself.
    Keep,
}

/// The file at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedFile {
    /// The file.
    pub file: GuestFile,
    /// Its metadata.
    pub stat: FileStat,
    /// Its path without symbolic links, `.` and `..`; `/` for the root.
    pub path: Vec<u8>,
}

impl Tree<'_> {
    /// Returns the steps for the bytes of a directory in which a name is looked up. A directory of unknown length takes
    /// the steps of the longest possible directory.
    pub(super) fn look_up_steps(&self, directory: GuestFile) -> u64 {
        self.stat(directory).map_or(DIRECTORY_STEPS_MAX, |stat| look_up_steps(&stat))
    }

    /// Returns the steps for the bytes of a directory whose names are all listed.
    pub(super) fn listing_steps(&self, directory: GuestFile) -> u64 {
        self.stat(directory).map_or(DIRECTORY_STEPS_MAX, |stat| stat.size_bytes / STEP_BYTES)
    }

    /// Returns the file at a path. A path without a leading slash also begins at the root, and `..` at the root stays
    /// there.
    ///
    /// # Errors
    /// [`GuestError::NotFound`], [`GuestError::NotADirectory`], [`GuestError::TooManyLinks`],
    /// [`GuestError::Unsupported`] for a path of more than 4096 bytes or one that repeatedly leads through giant
    /// directories, and those of the readers.
    pub fn find(&self, path: &[u8], links: Links) -> Result<ResolvedFile, GuestError> {
        let mut steps_left = STEPS_MAX;
        self.find_within(path, links, &mut steps_left)
    }

    /// As [`Tree::find`]. Subtracts a step from `steps_left` for each name that it follows, and one more for each 4 KiB
    /// of the directory that contains the name. Many paths of a guest share these steps.
    ///
    /// # Errors
    /// Those of [`Tree::find`], and [`GuestError::Unsupported`] if no step is left.
    pub(crate) fn find_within(
        &self,
        path: &[u8],
        links: Links,
        steps_left: &mut u64,
    ) -> Result<ResolvedFile, GuestError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(GuestError::Unsupported("a path of more than 4096 bytes"));
        }
        let mut way = PathTrail::new(self)?;
        let mut ahead = PendingNames::new(path);
        while let Some(name) = ahead.next() {
            let steps = match name.as_slice() {
                b"." | b".." => 1,
                _ => 1 + look_up_steps(&way.here().stat),
            };
            let Some(left) = steps_left.checked_sub(steps) else {
                // Shorter paths that share the steps must not find any left, either.
                *steps_left = 0;
                return Err(GuestError::Unsupported("a path that leads through so many names and long directories"));
            };
            *steps_left = left;
            if way.here().stat.kind != FileKind::Directory {
                return Err(GuestError::NotADirectory);
            }
            match name.as_slice() {
                b"." => {}
                b".." => way.leave(),
                name => way.enter(name, &mut ahead, links)?,
            }
        }
        if ahead.ended_in_slash && way.here().stat.kind != FileKind::Directory {
            return Err(GuestError::NotADirectory);
        }
        Ok(way.into_found())
    }
}

/// The names that remain to be followed: first those of links on the way, then those of the path.
struct PendingNames {
    /// Texts and the next byte of each. The last text comes first.
    texts: Vec<(Vec<u8>, usize)>,
    links: u32,
    /// Whether a slash came after the last name, and no name has come since.
    ended_in_slash: bool,
}

impl PendingNames {
    fn new(path: &[u8]) -> PendingNames {
        PendingNames { texts: vec![(path.to_vec(), 0)], links: 0, ended_in_slash: false }
    }

    /// Takes the next name.
    fn next(&mut self) -> Option<Vec<u8>> {
        while let Some((text, at)) = self.texts.last_mut() {
            let rest = text.get(*at..).unwrap_or_default();
            let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
            let name: Vec<u8> = rest.iter().skip(slashes).take_while(|byte| **byte != b'/').copied().collect();
            if name.is_empty() {
                self.ended_in_slash |= slashes > 0;
                self.texts.pop();
                continue;
            }
            *at += slashes + name.len();
            self.ended_in_slash = false;
            return Some(name);
        }
        None
    }

    /// Returns whether neither a name nor a slash remains, so that the last name is the end of the path.
    fn is_at_end(&self) -> bool {
        self.texts.iter().all(|(text, at)| *at >= text.len())
    }

    /// Puts the target of a link before all other names.
    fn follow(&mut self, target: Vec<u8>) -> Result<(), GuestError> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(GuestError::TooManyLinks);
        }
        if target.is_empty() || target.len() > PATH_BYTES_MAX {
            return Err(GuestError::NotFound);
        }
        self.texts.push((target, 0));
        Ok(())
    }
}

/// The directories from the root to the current place of a path, which may finally be a file.
struct PathTrail<'t, 'a> {
    tree: &'t Tree<'a>,
    root: Step,
    steps: Vec<Step>,
    path: Vec<u8>,
}

struct Step {
    file: GuestFile,
    stat: FileStat,
    /// Length of the path of its parent directory.
    path_before: usize,
}

impl<'t, 'a> PathTrail<'t, 'a> {
    fn new(tree: &'t Tree<'a>) -> Result<PathTrail<'t, 'a>, GuestError> {
        let root = Step { file: tree.root(), stat: tree.stat(tree.root())?, path_before: 0 };
        Ok(PathTrail { tree, root, steps: Vec::new(), path: Vec::new() })
    }

    fn here(&self) -> &Step {
        self.steps.last().unwrap_or(&self.root)
    }

    fn leave(&mut self) {
        if let Some(step) = self.steps.pop() {
            self.path.truncate(step.path_before);
        }
    }

    /// Enters a name in the directory, or puts the target of the link there before the other names.
    fn enter(&mut self, name: &[u8], ahead: &mut PendingNames, links: Links) -> Result<(), GuestError> {
        let system = self.here().file.system;
        let reader = self.tree.system(system);
        let found = reader.look_up(self.here().file.file, name)?.ok_or(GuestError::NotFound)?;
        let file = self.tree.seen(GuestFile { system, file: found });
        let stat = self.tree.stat(file)?;
        if stat.kind == FileKind::SymbolicLink && (links == Links::Follow || !ahead.is_at_end()) {
            let target = self.tree.system(file.system).read_link(file.file)?;
            if target.starts_with(b"/") {
                self.steps.clear();
                self.path.clear();
            }
            return ahead.follow(target);
        }
        let path_before = self.path.len();
        self.path.push(b'/');
        self.path.extend_from_slice(name);
        self.steps.push(Step { file, stat, path_before });
        Ok(())
    }

    fn into_found(self) -> ResolvedFile {
        let step = self.steps.into_iter().next_back().unwrap_or(self.root);
        let path = if self.path.is_empty() { b"/".to_vec() } else { self.path };
        ResolvedFile { file: step.file, stat: step.stat, path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::FileSystem;
    use crate::memory::MemoryFileSystem;

    fn tree_of_links() -> MemoryFileSystem {
        let mut system = MemoryFileSystem::default();
        system.write("/usr/lib/modules/6.1/kernel.ko", "module");
        system.symlink("/lib", "usr/lib");
        system.symlink("/usr/lib/up", "../../lib");
        system.symlink("/etc/release", "/usr/lib/modules/../modules/6.1/kernel.ko");
        system.symlink("/out", "../../../../etc/release");
        system.symlink("/ring/one", "two");
        system.symlink("/ring/two", "one");
        system.symlink("/dangling", "nowhere");
        system.symlink("/empty", "");
        system.symlink("/folder-link", "usr/");
        system.symlink("/slash-link", "/etc/release/");
        system
    }

    #[test]
    fn paths_lead_through_links_and_never_out_of_the_root() {
        let system = tree_of_links();
        let tree = Tree::new(&system);
        let kernel = b"/usr/lib/modules/6.1/kernel.ko";
        for path in [
            &b"/lib/modules/6.1/kernel.ko"[..],
            b"lib/up/up/modules/6.1/kernel.ko",
            b"/etc/release",
            b"/out",
            b"/../../etc/./release",
            b"//usr///lib/../lib/modules/6.1/kernel.ko",
        ] {
            let found = tree.find(path, Links::Follow).unwrap();
            assert_eq!(found.path, kernel, "{}", String::from_utf8_lossy(path));
        }
        assert_eq!(tree.find(b"", Links::Keep).unwrap().path, b"/");
        assert_eq!(tree.find(b"/lib/modules", Links::Keep).unwrap().path, b"/usr/lib/modules");
    }

    #[test]
    fn the_last_link_is_kept_unless_it_is_to_be_followed_or_a_slash_comes_after_it() {
        let system = tree_of_links();
        let tree = Tree::new(&system);
        assert_eq!(tree.find(b"/lib", Links::Keep).unwrap().stat.kind, FileKind::SymbolicLink);
        assert_eq!(tree.find(b"/lib", Links::Follow).unwrap().path, b"/usr/lib");
        assert_eq!(tree.find(b"/lib/", Links::Keep).unwrap().path, b"/usr/lib");
        assert_eq!(tree.find(b"/folder-link", Links::Follow).unwrap().path, b"/usr");
        assert_eq!(tree.find(b"/folder-link", Links::Keep).unwrap().path, b"/folder-link");
    }

    #[test]
    fn a_path_that_leads_nowhere_says_why() {
        let system = tree_of_links();
        let tree = Tree::new(&system);
        let error = |path: &[u8]| tree.find(path, Links::Follow).unwrap_err().to_string();
        assert_eq!(error(b"/ring/one"), "too many levels of symbolic links");
        assert_eq!(error(b"/dangling"), "no such file or directory");
        assert_eq!(error(b"/empty"), "no such file or directory");
        assert_eq!(error(b"/none/at/all"), "no such file or directory");
        assert_eq!(error(b"/etc/release/.."), "not a directory");
        assert_eq!(error(b"/etc/release/"), "not a directory");
        assert_eq!(error(b"/etc/release/x"), "not a directory");
        assert_eq!(error(b"/slash-link"), "not a directory");
    }

    #[test]
    fn a_path_is_as_long_as_in_linux_and_all_paths_share_their_names() {
        let mut system = tree_of_links();
        system.write("/x", "");
        let tree = Tree::new(&system);
        let of_length = |length: usize| [b"/".repeat(length - 1).as_slice(), b"x"].concat();
        assert_eq!(tree.find(&of_length(4096), Links::Follow).unwrap().path, b"/x");
        assert!(matches!(tree.find(&of_length(4097), Links::Follow), Err(GuestError::Unsupported(_))));
        // `/lib/modules` has two names, and `usr/lib` of its link two more.
        let mut steps_left = 7;
        assert!(tree.find_within(b"/lib/modules", Links::Follow, &mut steps_left).is_ok());
        assert_eq!(steps_left, 3);
        let error = tree.find_within(b"/lib/modules", Links::Follow, &mut steps_left).unwrap_err();
        assert_eq!(error.to_string(), "a path that leads through so many names and long directories cannot be read");
        assert_eq!(steps_left, 0);
    }

    #[test]
    fn forty_links_are_followed_and_no_more() {
        let mut system = MemoryFileSystem::default();
        system.write("/0", "end");
        for number in 1..=41 {
            system.symlink(&format!("/{number}"), &format!("{}", number - 1));
        }
        let tree = Tree::new(&system);
        assert_eq!(tree.find(b"/40", Links::Follow).unwrap().path, b"/0");
        assert!(matches!(tree.find(b"/41", Links::Follow), Err(GuestError::TooManyLinks)));
    }

    /// Regression: a path that alternated a name and `..` read a directory of 16 MiB without an index for each of its
    /// names.
    #[test]
    fn a_path_leads_through_a_long_directory_a_few_times_only() {
        let mut system = tree_of_links();
        let root = system.root();
        system.stat_mut(root).unwrap().size_bytes = 64 << 20;
        let tree = Tree::new(&system);
        let again = |times: usize| tree.find(&b"/etc/..".repeat(times), Links::Follow);
        assert_eq!(again(255).unwrap().path, b"/");
        let error = again(256).unwrap_err().to_string();
        assert_eq!(error, "a path that leads through so many names and long directories cannot be read");
        system.stat_mut(root).unwrap().size_bytes = 1 << 60;
        assert_eq!(
            Tree::new(&system).find(b"/etc/release", Links::Follow).unwrap().path,
            b"/usr/lib/modules/6.1/kernel.ko"
        );
    }
}
