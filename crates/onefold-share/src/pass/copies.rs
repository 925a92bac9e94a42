//! Files that share are told to be copied from in small pieces, so that later writes do not eat what was gained (XFS).
//!
//! That is an attribute of the file, and sets the time of its last change: a scan would read all of it again. So the
//! mark is brought up to date, where the file was as it says, and the time of its content stayed.

use std::collections::BTreeSet;

use onefold_substrate::{Access, Substrate};

use super::PassError;
use super::images::{Hold, Images};
use crate::format::FileNo;
use crate::format::mark::Stamp;
use crate::state::State;
use crate::state::files::StampChange;

/// Tells the file system so of all files of a list. One that cannot be told of is left: its writes cost more room.
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
