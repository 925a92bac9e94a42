//! Lists the files that a run may work on, without reading them, for finders that know their contents by other means.

use std::path::PathBuf;

use onefold_substrate::{FileStat, Substrate};

use super::find::{ListedImage, SelectedFiles, find};
use crate::domain::{Domain, DomainRules};
use crate::format::FileNo;
use crate::selection::Selection;
use crate::state::files::Marks;
use crate::state::locks::Subject;
use crate::state::{State, StateError};

/// A file that a run may work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Its number in the state folder.
    pub number: FileNo,
    /// Its path, below the root of the file system.
    pub path: PathBuf,
    /// Its state when it was found.
    pub stat: FileStat,
    /// Its sharing domain.
    pub domain: Domain,
}

/// Returns all files of a selection that are not opted out, in order of their paths, and each only once. New ones get
/// numbers. A file that cannot be examined is reported ([`Notice::Unreadable`](crate::state::Notice::Unreadable)).
///
/// # Errors
/// Errors of the state folder.
pub fn list<S: Substrate>(
    state: &State<'_, S>,
    files: &mut Marks,
    selection: &Selection<'_>,
) -> Result<Vec<ListedFile>, StateError> {
    let domains = DomainRules::of(state)?;
    let SelectedFiles { found, .. } =
        find(state.substrate(), state.clock(), &|notice| state.notice(notice), files, &domains, selection)?;
    let numbered = found.into_iter().map(|found| {
        let number = files.number(state, &found.stat.handle, &found.path, &found.membership)?;
        if files.get(number).is_some_and(|mark| mark.path != found.path) {
            note_path(state, files, number, &found)?;
        }
        Ok(ListedFile { number, path: found.path, stat: found.stat, domain: found.membership.domain })
    });
    numbered.collect()
}

/// Notes the path of a file. A file that has come back is read by the next scan, because what was known of it is gone.
fn note_path<S: Substrate>(
    state: &State<'_, S>,
    files: &mut Marks,
    number: FileNo,
    found: &ListedImage,
) -> Result<(), StateError> {
    let Some(_lock) = state.try_lock(&Subject::File(found.stat.handle.clone()))? else {
        // The host that has it may be about to write its mark. This host finds it there all the same.
        files.see_at(number, &found.path);
        return Ok(());
    };
    match files.reload(state, number)? {
        Some(mark) if mark.is_forgotten() => files.note(state, number, &found.path, None),
        _ => files.note_path(state, number, &found.path),
    }
}
