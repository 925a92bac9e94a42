//! Writes merge requests: places that another host is to look at, or this host another time.

use std::io;

use onefold_sort::Row;
use onefold_substrate::Substrate;

use super::PassError;
use super::rows::Candidate;
use crate::format::log::{LogKind, Note, WrittenBlock};
use crate::state::State;
use crate::state::logs::LogOrder;

/// Writes merge requests for all places of a list, which is in their order.
pub(super) fn write<S: Substrate>(
    state: &State<'_, S>,
    places: impl Iterator<Item = io::Result<Row>>,
) -> Result<(), PassError> {
    let mut places = places.map(|row| row.map(Candidate::of)).peekable();
    loop {
        let file = match places.peek() {
            None => return Ok(()),
            Some(Ok(first)) => first.file,
            Some(Err(_)) => {
                places.next().transpose()?;
                continue;
            }
        };
        let mut last = None;
        let mut notes = || -> io::Result<Option<Note>> {
            loop {
                let Some(next) = places.next_if(|next| next.as_ref().map_or(true, |next| next.file == file)) else {
                    return Ok(None);
                };
                let Candidate { block, digest, .. } = next?;
                // A place that is said to hold two contents is looked at for one of them.
                if last.replace(block) != Some(block) {
                    return Ok(Some(Note::Written(WrittenBlock { block, digest: Some(digest) })));
                }
            }
        };
        state.write_log(LogKind::Request, file, LogOrder::default(), &mut notes)?;
    }
}
