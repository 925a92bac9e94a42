//! The changes of a generation, planned before anything is made.

use std::collections::{BTreeMap, BTreeSet};

use onefold_block::BLOCK_BYTES_U64;

use super::commands::{Commands, all_folders};
use super::contents::{self, ContentId, Contents, NAMES_MAX, RECORD_FOLDER};
use super::names::apart;
use crate::format::guest::Piece;

/// A content that is to be added to a volume.
pub(super) struct Addition {
    /// Its path in the volume, if no other content has that path.
    pub(super) path: String,
    pub(super) id: ContentId,
    /// Whether a user adds it.
    pub(super) is_added: bool,
    pub(super) origin: Origin,
}

/// The blocks from which a content is cloned.
pub(super) struct Origin {
    /// The file that has the blocks, by its index among those that give content.
    pub(super) image: usize,
    /// The places of the blocks: all of the content, in order.
    pub(super) pieces: Vec<Piece>,
}

/// Changes of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    /// Contents that were added.
    pub added: u64,
    /// Bytes of the added contents.
    pub added_bytes: u64,
    /// Names that were added to contents which the volume had already.
    pub linked: u64,
    /// Contents that were left out because they did not match their digests.
    pub differed: u64,
    /// Contents whose blocks the file system did not clone.
    pub refused: u64,
    /// Contents that were removed.
    pub removed: u64,
}

/// The changes of a generation.
pub(super) struct Plan<'a> {
    pub(super) contents: Contents,
    pub(super) removed: Vec<(ContentId, contents::Content)>,
    /// New contents, each with its path.
    pub(super) made: Vec<(&'a Addition, String)>,
    /// Contents that get more names.
    linked: BTreeSet<ContentId>,
    pub(super) changed: ChangeCounts,
}

impl<'a> Plan<'a> {
    pub(super) fn new(before: &Contents, removed: &[ContentId], additions: &'a [Addition]) -> Plan<'a> {
        let mut plan = Plan {
            contents: before.clone(),
            removed: Vec::new(),
            made: Vec::new(),
            linked: BTreeSet::new(),
            changed: ChangeCounts::default(),
        };
        for id in removed {
            plan.removed.extend(plan.contents.remove(id).map(|content| (*id, content)));
        }
        plan.changed.removed = plan.removed.len() as u64;
        additions.iter().for_each(|addition| plan.add(addition));
        plan
    }

    fn add(&mut self, addition: &'a Addition) {
        let Addition { path, id, is_added, .. } = addition;
        let is_new = match self.contents.get(id) {
            Some(content) if content.paths.contains(path) || content.paths.len() >= NAMES_MAX => {
                if *is_added {
                    self.contents.keep(id);
                }
                return;
            }
            other => other.is_none(),
        };
        let other = apart(path, &id.0);
        let free = [path, &other].into_iter().find(|path| self.contents.is_free(path));
        let Some(free) = free.filter(|free| self.contents.add(*id, *is_added, free)) else { return };
        if is_new {
            self.made.push((addition, free.clone()));
        } else {
            self.linked.insert(*id);
            self.changed.linked += 1;
        }
    }

    /// Adds the commands that make names, inodes and blocks.
    pub(super) fn make(&self, before: &Contents, commands: &mut Commands) {
        self.removed.iter().for_each(|(_, content)| commands.remove(&content.paths));
        let folders = |contents| all_folders(contents, Some(RECORD_FOLDER));
        commands.remove(&[contents::PATH.to_owned()]);
        commands.change_folders(&folders(before), &folders(&self.contents));
        for (addition, path) in &self.made {
            commands.make_file(path, addition.id.1, addition.id.1.div_ceil(BLOCK_BYTES_U64));
        }
        let mut lengths = BTreeMap::<&str, Vec<usize>>::new();
        for (folder, name) in self.links(before).flat_map(|(_, names)| names).filter_map(|name| name.rsplit_once('/')) {
            lengths.entry(folder).or_default().push(name.len());
        }
        lengths.iter().for_each(|(folder, lengths)| commands.make_room(folder, lengths));
        for (content, names) in self.links(before) {
            if let Some(path) = content.paths.first() {
                commands.link(path, names, content.paths.len());
            }
        }
    }

    /// Returns the contents that get more names, with these names.
    fn links(&self, before: &Contents) -> impl Iterator<Item = (&contents::Content, &[String])> {
        self.linked.iter().filter_map(|id| {
            let content = self.contents.get(id)?;
            let had = before.get(id).map_or(1, |content| content.paths.len());
            Some((content, content.paths.get(had..)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addition(path: &str, content: u8, is_added: bool) -> Addition {
        let origin = Origin { image: 0, pieces: Vec::new() };
        Addition { path: path.to_owned(), id: ([content; 16], 9), is_added, origin }
    }

    #[test]
    fn a_content_is_made_once_and_linked_for_other_names() {
        let mut before = Contents::default();
        assert!(before.add(([1; 16], 9), false, "/dpkg/a/f"));
        assert!(before.add(([2; 16], 9), false, "/dpkg/a/g"));
        let additions = [
            addition("/dpkg/a/f", 1, true),
            addition("/dpkg/b/f", 1, false),
            addition("/dpkg/c/f", 3, false),
            addition("/dpkg/c/g", 3, false),
            // Another content has this path.
            addition("/dpkg/c/f", 4, false),
        ];
        let plan = Plan::new(&before, &[([2; 16], 9)], &additions);
        let made: Vec<_> = plan.made.iter().map(|(addition, path)| (addition.id.0[0], path.as_str())).collect();
        let apart = apart("/dpkg/c/f", &[4; 16]);
        assert_eq!(made, [(3, "/dpkg/c/f"), (4, apart.as_str())]);
        assert!(plan.contents.get(&([1; 16], 9)).unwrap().is_added);
        assert_eq!((plan.changed.linked, plan.changed.removed), (2, 1));
        let mut commands = Commands::default();
        plan.make(&before, &mut commands);
        let text = commands.text();
        assert!(text.starts_with("rm /dpkg/a/g\nrm /onefold/contents\nmkdir /dpkg/b\nmkdir /dpkg/c\n"), "{text}");
        assert!(text.contains("expand_dir /dpkg/b\nexpand_dir /dpkg/c\nln "), "{text}");
        assert!(text.contains("ln /dpkg/a/f /dpkg/b/f\nset_inode_field /dpkg/a/f links_count 2\n"), "{text}");
        assert!(text.contains("ln /dpkg/c/f /dpkg/c/g\nset_inode_field /dpkg/c/f links_count 2\n"), "{text}");
    }
}
