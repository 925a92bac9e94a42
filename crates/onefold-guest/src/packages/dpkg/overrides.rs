//! Permissions that the administrator set instead of the packaged ones (dpkg-statoverride(1)): a line for each path
//! with user, group, mode in octal digits, and the path.

use std::collections::HashMap;

use super::{FOLDER, SETTINGS_BYTES_MAX};
use crate::tree::{ProblemLog, Tree};

/// The modes that were set.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    modes: HashMap<Vec<u8>, u16>,
}

impl Overrides {
    /// Reads the overrides of a system.
    pub(super) fn read(tree: &Tree<'_>, problems: &ProblemLog) -> Overrides {
        let path = [FOLDER, b"/statoverride"].concat();
        let text = problems.skip(&path, tree.read_path(&path, SETTINGS_BYTES_MAX)).unwrap_or_default();
        Overrides::parse(&text, &path, problems)
    }

    fn parse(text: &[u8], path: &[u8], problems: &ProblemLog) -> Overrides {
        let mut modes = HashMap::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')).filter(|(_, line)| !line.is_empty()) {
            // The path comes last and may contain blanks.
            let mut words = line.splitn(4, |byte| *byte == b' ').skip(2);
            let mode = words.next().and_then(|digits| std::str::from_utf8(digits).ok());
            let mode = mode.and_then(|digits| u16::from_str_radix(digits, 8).ok()).filter(|mode| *mode <= 0o7777);
            match (mode, words.next()) {
                (Some(mode), Some(overridden)) => _ = modes.insert(overridden.to_vec(), mode),
                _ => problems.note_line(path, number, "this line sets no permissions"),
            }
        }
        Overrides { modes }
    }

    /// Returns the mode that was set for a path.
    pub(super) fn mode(&self, path: &[u8]) -> Option<u16> {
        if self.modes.is_empty() { None } else { self.modes.get(path).copied() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_sets_the_mode_of_a_path() {
        let problems = ProblemLog::default();
        let text =
            b"root crontab 2755 /usr/bin/crontab\nroot root 755 /a b\nbroken\nroot root 9 /x\nroot root 17777 /y\n";
        let overrides = Overrides::parse(text, b"statoverride", &problems);
        assert_eq!(overrides.mode(b"/usr/bin/crontab"), Some(0o2755));
        assert_eq!(overrides.mode(b"/a b"), Some(0o755));
        assert_eq!(overrides.mode(b"/x"), None);
        assert_eq!(problems.count(), 3);
    }
}
