//! Whether the knowledge about a file still holds.

use onefold_block::Timestamp;
use onefold_substrate::{FileStat, Substrate};

use super::age::Age;
use crate::domain::Membership;
use crate::format::FileNo;
use crate::format::mark::Mark;
use crate::format::reading::ReadingState;
use crate::format::stamp::Stamp;
use crate::noted_stamps;
use crate::state::files::Marks;
use crate::state::logs::LogList;
use crate::state::{State, StateError};

/// Schedules a full reading after a loss of the index: all content that is not in logs is read again. If a pass has
/// published an index before, logs may cover only parts of their files, and everything is read.
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
        |mark: &&Mark| (mark.scanned.is_some() || mark.reading != ReadingState::default()) && !mark.is_forgotten();
    let known = files.iter().filter(is_known).map(|mark| mark.number);
    let lost: Vec<FileNo> = known.filter(|number| had_index || !logs.has(*number)).collect();
    lost.into_iter().try_for_each(|number| files.forget_scan(state, number))
}

/// Returns whether a file is as it was when it was read, in the domain in which it was read, with nothing due to be
/// read again. If its time was ahead when it was read, it counts as changed once the clock has reached that time: a
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

/// Returns the stamp with which a file was read, as a whole or in the current round, if only its owner has changed
/// since, within its domain. libvirt changes the owner of each image of a machine that starts or stops. If somebody has
/// also written to the file and set the time back, that costs savings until the next change.
pub(super) fn before_another_owner(files: &Marks, stat: &FileStat, membership: &Membership) -> Option<Stamp> {
    let mark = files.of(&stat.handle).filter(|mark| mark.membership.domain == membership.domain)?;
    let then = mark.scanned.or(mark.reading.round.map(|round| round.stamp))?;
    let same = (then.length, then.modified) == (stat.length, stat.modified);
    (same && mark.membership.owner != stat.owner && !mark.flags.is_ahead).then_some(then)
}

/// Returns the stamp with which a file was read, as a whole or in the current round, if it is one of the stamps that
/// Onefold noted at the file before it changed an attribute: see [`crate::noted_stamps`].
pub(super) fn before_own_change<S: Substrate>(
    files: &Marks,
    substrate: &S,
    file: &S::File,
    stat: &FileStat,
    membership: &Membership,
) -> Option<Stamp> {
    let mark = files.of(&stat.handle).filter(|mark| mark.membership.domain == membership.domain)?;
    let (then, now) = (mark.scanned.or(mark.reading.round.map(|round| round.stamp))?, Stamp::of(stat));
    (!mark.flags.is_ahead && noted_stamps::is_own_change(substrate, file, &then, &now)).then_some(then)
}
