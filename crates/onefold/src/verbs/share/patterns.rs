//! The patterns of `--include` and `--exclude`, and which of them have matched.

use std::cell::Cell;
use std::path::Path;

use glob::Pattern;
use onefold_block::shown::ShownText;
use onefold_substrate::ListedKind;

use crate::cli::share_work::WorkArgs;

/// Decides which files of a file system are wanted.
#[derive(Debug)]
pub(super) struct NamePatterns<'a> {
    root: &'a Path,
    include: &'a [Pattern],
    exclude: &'a [Pattern],
    /// For each pattern of `include`, whether a file has matched it.
    matched: Vec<Cell<bool>>,
}

impl<'a> NamePatterns<'a> {
    /// Returns the patterns of a verb that works on the file system `root`.
    pub(super) fn new(root: &'a Path, arguments: &'a WorkArgs) -> NamePatterns<'a> {
        NamePatterns::of(root, &arguments.include, &arguments.exclude)
    }

    fn of(root: &'a Path, include: &'a [Pattern], exclude: &'a [Pattern]) -> NamePatterns<'a> {
        NamePatterns { root, include, exclude, matched: vec![Cell::new(false); include.len()] }
    }

    /// Returns whether a file or folder, given by its path below the root, is to be scanned. For folders, only
    /// `--exclude` counts. Patterns may also match the whole path, as users write them.
    pub(super) fn wants(&self, path: &Path, kind: ListedKind) -> bool {
        let whole = self.root.join(path);
        let matches = |pattern: &Pattern| {
            let mut names = [path, &whole].into_iter().chain(path.file_name().map(Path::new));
            names.any(|name| pattern.matches_path(name))
        };
        let mut is_included = kind == ListedKind::Folder || self.include.is_empty();
        if kind != ListedKind::Folder {
            // All are tried, so that each is known to match something.
            for (pattern, matched) in self.include.iter().zip(&self.matched) {
                let is_match = matches(pattern);
                matched.set(matched.get() || is_match);
                is_included |= is_match;
            }
        }
        is_included && !self.exclude.iter().any(matches)
    }

    /// Returns a line for each pattern of `--include` that no file has matched: most likely a spelling error.
    pub(super) fn unmatched_lines(&self) -> Vec<String> {
        let unmatched = self.include.iter().zip(&self.matched).filter(|(_, matched)| !matched.get());
        let line = |pattern: &Pattern| format!("no file matches --include `{}`", ShownText::line(pattern.as_str()));
        unmatched.map(|(pattern, _)| line(pattern)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| Pattern::new(text).unwrap()).collect()
    }

    #[test]
    fn patterns_are_of_names_of_paths_below_the_root_and_of_whole_paths() {
        let is_wanted = |path: &str, kind, include: &[&str], exclude: &[&str]| {
            let (include, exclude) = (patterns(include), patterns(exclude));
            NamePatterns::of(Path::new("/srv/vm"), &include, &exclude).wants(Path::new(path), kind)
        };
        for pattern in ["*.raw", "images/*.raw", "/srv/vm/images/*.raw", "/srv/*.raw"] {
            assert!(is_wanted("images/a.raw", ListedKind::File, &[pattern], &[]), "{pattern}");
            assert!(!is_wanted("images/a.raw", ListedKind::File, &[], &[pattern]), "{pattern}");
            assert!(!is_wanted("images/a.img", ListedKind::File, &[pattern], &[]), "{pattern}");
        }
        assert!(!is_wanted("images/a.raw", ListedKind::File, &["/images/*.raw"], &[]));
        assert!(is_wanted("images", ListedKind::Folder, &["*.raw"], &[]));
        assert!(!is_wanted("images", ListedKind::Folder, &[], &["/srv/vm/images"]));
    }

    #[test]
    fn patterns_that_no_file_has_matched_are_named() {
        let include = patterns(&["*.raw", "a*", "*.rwa", "images"]);
        let names = NamePatterns::of(Path::new("/srv"), &include, &[]);
        assert!(names.wants(Path::new("images"), ListedKind::Folder));
        assert!(names.wants(Path::new("images/a.raw"), ListedKind::File));
        assert_eq!(
            names.unmatched_lines(),
            ["no file matches --include `*.rwa`", "no file matches --include `images`"]
        );
    }
}
