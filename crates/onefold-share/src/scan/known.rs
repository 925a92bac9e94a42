//! Whether what is known of a file still holds.

use onefold_block::Timestamp;
use onefold_substrate::{FileStat, Substrate};

use super::age::Age;
use crate::domain::Membership;
use crate::format::FileNo;
use crate::format::mark::{Mark, Stamp};
use crate::format::reading::Reading;
use crate::state::files::Marks;
use crate::state::logs::LogList;
use crate::state::{State, StateError};

/// An index that was lost is found again by reading all that is not in logs. Where a pass has published one before,
/// logs may tell of parts of their files only: then all is read.
pub(super) fn forget_what_the_index_lost<S: Substrate>(
    state: &State<'_, S>,
    files: &mut Marks,
    logs: &LogList,
) -> Result<(), StateError> {
    if state.has_index()? {
        return Ok(());
    }
    let had_index = state.had_index()?;
    let is_known =
        |mark: &&Mark| (mark.scanned.is_some() || mark.reading != Reading::default()) && !mark.is_forgotten();
    let known = files.iter().filter(is_known).map(|mark| mark.number);
    let lost: Vec<FileNo> = known.filter(|number| had_index || !logs.has(*number)).collect();
    lost.into_iter().try_for_each(|number| files.forget_scan(state, number))
}

/// Returns whether a file is as it was when it was read, in the domain in which it was read, and nothing of it is to be
/// read again by then. One whose time was ahead when it was read is not taken for that once the clock has come there: a
/// change at that moment would have had the same time.
pub(super) fn is_unchanged(
    files: &Marks,
    stat: &FileStat,
    membership: &Membership,
    now: Timestamp,
    due_by: Timestamp,
) -> bool {
    let stamp = Stamp::of(stat);
    let is_past = |mark: &Mark| mark.flags.is_ahead && Age::of(&stamp, now) != Age::Ahead;
    let mark = files.of(&stat.handle).filter(|mark| mark.membership.domain == membership.domain);
    mark.is_some_and(|mark| mark.scanned == Some(stamp) && !is_past(mark) && !mark.reading.is_due(due_by))
}

/// Returns the stamp with which a file was read, as a whole or in the round that is under way, where it was given to
/// another owner since, within its domain, and nothing tells of another change: libvirt does so with each image of a
/// machine that starts or stops. Where somebody has written and set the time back as well, that costs what could have
/// been shared, until the next change.
pub(super) fn before_another_owner(files: &Marks, stat: &FileStat, membership: &Membership) -> Option<Stamp> {
    let mark = files.of(&stat.handle).filter(|mark| mark.membership.domain == membership.domain)?;
    let then = mark.scanned.or(mark.reading.round.map(|round| round.stamp))?;
    let same = (then.length, then.modified) == (stat.length, stat.modified);
    (same && mark.membership.owner != stat.owner && !mark.flags.is_ahead).then_some(then)
}
