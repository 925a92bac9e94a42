//! Makes copy-on-write copies of shared files small, so that later writes do not use up the saved space (XFS).
//!
//! That is an attribute of the file. Setting it changes the time of the file's last change, so that a scan would read
//! all of the file again. So the mark is updated, if the file was as the mark says, and the time of its content has not
//! changed.

use std::collections::BTreeSet;

use onefold_substrate::{Access, Substrate};

use super::PassError;
use super::images::{Hold, Images};
use crate::format::FileNo;
use crate::format::stamp::Stamp;
use crate::state::State;
use crate::state::files::StampChange;

/// Sets the attribute on all files of a list. A file on which it cannot be set is left as it is: its writes cost more
/// space.
pub(super) fn keep_small<S: Substrate>(
    state: &State<'_, S>,
    images: &mut Images<'_, '_, S>,
    files: &BTreeSet<FileNo>,
) -> Result<(), PassError> {
    let substrate = state.substrate();
    for number in files {
        let Hold::Ours { _lock } = images.hold(*number)? else { continue };
        let Ok(file) = images.open(*number, Access::Write) else { continue };
        let Ok(before) = substrate.stat(&file) else { continue };
        if !matches!(substrate.keep_copies_small(&file), Ok(true)) {
            continue;
        }
        let Ok(after) = substrate.stat(&file) else { continue };
        images.restamp(*number, StampChange { before: Stamp::of(&before), after: Stamp::of(&after) })?;
    }
    Ok(())
}
