//! Commands of `debugfs`, as text. Every path in them is one of `names`.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::contents::Contents;

/// Minimum bytes of entries in a new block of a folder: one more entry of the longest kind may not fit.
const ENTRY_BYTES_OF_BLOCK: u64 = 3900;
/// Maximum bytes of an entry beside its name.
const ENTRY_BYTES: u64 = 12;

/// Commands in order.
#[derive(Debug, Default)]
pub(super) struct Commands(String);

/// Consecutive blocks of a content in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedContent {
    /// The first block, as a block of the content.
    pub(super) content: u64,
    /// The first block, as a block of the volume.
    pub(super) block: u64,
    /// The number of blocks.
    pub(super) count: u64,
}

impl Commands {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.0.write_fmt(line);
        self.0.push('\n');
    }

    /// Makes and removes folders, so that those of `after` are there instead of those of `before`.
    pub(super) fn change_folders(&mut self, before: &BTreeSet<&str>, after: &BTreeSet<&str>) {
        // A set lists a folder before those below it.
        let gone: Vec<_> = before.difference(after).collect();
        gone.iter().rev().for_each(|folder| self.line(format_args!("rmdir {folder}")));
        after.difference(before).for_each(|folder| self.line(format_args!("mkdir {folder}")));
    }

    /// Makes a file with preallocated blocks, which read as zeros.
    pub(super) fn make_file(&mut self, path: &str, length: u64, blocks: u64) {
        self.line(format_args!("write /dev/null {path}"));
        self.line(format_args!("set_inode_field {path} mode 0100444"));
        self.line(format_args!("set_inode_field {path} size {length}"));
        if let Some(last) = blocks.checked_sub(1) {
            self.line(format_args!("fallocate {path} 0 {last}"));
        }
    }

    /// Gives a folder blocks for more names of `lengths` bytes each, which [`Commands::link`] does not do.
    pub(super) fn make_room(&mut self, folder: &str, lengths: &[usize]) {
        let bytes = lengths.iter().map(|length| *length as u64 + ENTRY_BYTES).fold(0, u64::saturating_add);
        (0..bytes.div_ceil(ENTRY_BYTES_OF_BLOCK)).for_each(|_| self.line(format_args!("expand_dir {folder}")));
    }

    /// Gives a file more names, so that it has `count` of them. Their folders need room for them.
    pub(super) fn link(&mut self, path: &str, names: &[String], count: usize) {
        names.iter().for_each(|name| self.line(format_args!("ln {path} {name}")));
        self.line(format_args!("set_inode_field {path} links_count {count}"));
    }

    /// Makes preallocated blocks count as written.
    pub(super) fn make_written(&mut self, path: &str, places: &[PlacedContent]) {
        self.line(format_args!("extent_open {path}"));
        for PlacedContent { content, block, count } in places {
            self.line(format_args!("goto_block {content}"));
            self.line(format_args!("replace_node {content} {count} {block}"));
        }
        self.line(format_args!("extent_close"));
    }

    /// Removes names; a file goes with its last name.
    pub(super) fn remove(&mut self, paths: &[String]) {
        paths.iter().for_each(|path| self.line(format_args!("rm {path}")));
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

/// Returns the folders of a volume with these contents, and with the folder of its record.
pub(super) fn all_folders<'c>(contents: &'c Contents, record_folder: Option<&'c str>) -> BTreeSet<&'c str> {
    let mut folders = contents.folders();
    folders.extend(record_folder);
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_made_from_the_top_and_removed_from_below() {
        let mut commands = Commands::default();
        commands.change_folders(&BTreeSet::from(["/a", "/a/b", "/a/b/c"]), &BTreeSet::from(["/a", "/a/d", "/a/d/e"]));
        assert_eq!(commands.text(), "rmdir /a/b/c\nrmdir /a/b\nmkdir /a/d\nmkdir /a/d/e\n");
    }
}
