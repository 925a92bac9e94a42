//! Opt-outs: an extended attribute by which owners exclude their files from sharing.
//!
//! `user.onefold.share` is `off` or `on`. The attribute of a folder holds for everything below it; of several folders,
//! the nearest one counts. An opted-out file is neither read nor shared with. Blocks that it shares already stay as
//! they are. A file that is excluded and included again between two runs is not read again: see `noted_stamps`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use onefold_substrate::Substrate;

use crate::noted_stamps;

/// Name of the attribute.
pub const ATTRIBUTE: &str = "user.onefold.share";
const OFF: &[u8] = b"off";
const ON: &[u8] = b"on";

/// Finds out which files are opted out. Folders are asked only once.
pub(crate) struct OptOuts<'a, S: Substrate> {
    substrate: &'a S,
    /// For a folder, the folder that opts it out; `None` if there is none.
    folders: RefCell<BTreeMap<PathBuf, Option<PathBuf>>>,
}

impl<'a, S: Substrate> OptOuts<'a, S> {
    /// Returns opt-outs without cached folders.
    #[must_use]
    pub(crate) fn new(substrate: &'a S) -> OptOuts<'a, S> {
        OptOuts { substrate, folders: RefCell::default() }
    }

    /// Returns the path that opts a file out: the file itself, or the folder above it that has the attribute. `None` if
    /// it may be shared.
    ///
    /// # Errors
    /// Errors of reading the file's attribute. Unreadable folders count as having none.
    pub(crate) fn of(&self, file: &Path) -> io::Result<Option<PathBuf>> {
        match choice(self.substrate, file)? {
            Some(Choice::Off) => Ok(Some(file.to_owned())),
            Some(Choice::On) => Ok(None),
            None => self.of_folder(file.parent().unwrap_or(Path::new(""))),
        }
    }

    /// Drops cached folders, so that they are asked again.
    pub(crate) fn forget(&self) {
        self.folders.borrow_mut().clear();
    }

    fn of_folder(&self, folder: &Path) -> io::Result<Option<PathBuf>> {
        if let Some(known) = self.folders.borrow().get(folder) {
            return Ok(known.clone());
        }
        let own = match choice(self.substrate, folder) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            own => own?,
        };
        let found = match (own, folder.parent()) {
            (Some(Choice::Off), _) => Some(folder.to_owned()),
            (Some(Choice::On), _) | (None, None) => None,
            (None, Some(parent)) => self.of_folder(parent)?,
        };
        self.folders.borrow_mut().insert(folder.to_owned(), found.clone());
        Ok(found)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Off,
    On,
}

/// Returns the choice of a file or folder itself. Any value except `on` counts as `off`.
fn choice<S: Substrate>(substrate: &S, path: &Path) -> io::Result<Option<Choice>> {
    let value = substrate.attribute(path, ATTRIBUTE)?;
    Ok(value.map(|value| if value.trim_ascii().eq_ignore_ascii_case(ON) { Choice::On } else { Choice::Off }))
}

/// Opts a file out, or a folder with everything below it that has no attribute of its own.
///
/// # Errors
/// Errors of setting the attribute.
pub fn exclude<S: Substrate>(substrate: &S, path: &Path) -> io::Result<()> {
    noted_stamps::note(substrate, path);
    substrate.set_attribute(path, ATTRIBUTE, Some(OFF))
}

/// Returns whether a file or folder is opted out, by itself or by a folder above it.
///
/// # Errors
/// Errors of reading the attribute.
pub fn is_excluded<S: Substrate>(substrate: &S, path: &Path) -> io::Result<bool> {
    Ok(OptOuts::new(substrate).of(path)?.is_some())
}

/// Reverts [`exclude`]. If a folder above is opted out, the file becomes an exception.
///
/// # Errors
/// Errors of setting the attribute.
pub fn include<S: Substrate>(substrate: &S, path: &Path) -> io::Result<()> {
    if choice(substrate, path)?.is_some() || is_excluded(substrate, path)? {
        noted_stamps::note(substrate, path);
    }
    substrate.set_attribute(path, ATTRIBUTE, None)?;
    if is_excluded(substrate, path)? {
        substrate.set_attribute(path, ATTRIBUTE, Some(ON))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use onefold_substrate::Files;

    use onefold_substrate::Names;

    use super::*;
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    /// Returns the path that opts a file out, if these paths have these values.
    fn who(values: &[(&str, &str)], file: &str) -> Option<String> {
        let system = SimulatedFileSystem::new(&SimulationOptions::default());
        let substrate = system.observe().substrate;
        substrate.create_dir(Path::new("a")).unwrap();
        substrate.create_dir(Path::new("a/b")).unwrap();
        for name in ["one", "a/two", "a/b/three"] {
            substrate.create(Path::new(name)).unwrap();
        }
        for (path, value) in values {
            substrate.set_attribute(Path::new(path), ATTRIBUTE, Some(value.as_bytes())).unwrap();
        }
        let opt_outs = OptOuts::new(&substrate);
        let found = opt_outs.of(Path::new(file)).unwrap();
        assert_eq!(opt_outs.of(Path::new(file)).unwrap(), found, "asked again");
        found.map(|path| path.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_nearest_word_counts() {
        let three = "a/b/three";
        for (values, file, expected) in [
            (&[][..], three, None),
            (&[("a", "off")], three, Some("a")),
            (&[("a", "off")], "one", None),
            (&[("", "off")], "one", Some("")),
            (&[("", "off")], three, Some("")),
            (&[("a", "off"), ("a/b", "on")], three, None),
            (&[("a", "off"), ("a/b", "on")], "a/two", Some("a")),
            (&[("a", "off"), (three, "on")], three, None),
            (&[("a", "on"), (three, "off")], three, Some(three)),
            (&[(three, " ON\n")], three, None),
            (&[(three, "nonsense")], three, Some(three)),
            (&[(three, "")], three, Some(three)),
        ] {
            assert_eq!(who(values, file), expected.map(str::to_owned), "{values:?}");
        }
    }

    #[test]
    fn what_is_included_again_may_be_shared_whatever_its_folder_says() {
        let system = SimulatedFileSystem::new(&SimulationOptions::default());
        let substrate = system.observe().substrate;
        let (folder, file) = (Path::new("a"), Path::new("a/file"));
        substrate.create_dir(folder).unwrap();
        substrate.create(file).unwrap();
        let own = || substrate.attribute(file, ATTRIBUTE).unwrap();
        let is_out = || OptOuts::new(&substrate).of(file).unwrap().is_some();
        exclude(&substrate, file).unwrap();
        assert!(is_out() && own().as_deref() == Some(OFF));
        include(&substrate, file).unwrap();
        assert!(!is_out() && own().is_none());
        exclude(&substrate, folder).unwrap();
        assert!(is_out());
        include(&substrate, file).unwrap();
        assert!(!is_out() && own().as_deref() == Some(ON));
    }
}
