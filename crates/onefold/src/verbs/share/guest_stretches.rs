//! The files of the guest that lie in the longest stretches of an image that are not shared.

use std::path::Path;

use onefold_share::explain::{ExplainedFile, FileStretch};
use serde_json::{Value, json};

use crate::size::{grouped, human};
use crate::verbs::guest::{OwnedByte, owned_bytes};

/// Stretches that are not shared, with the guest's use of their middles: a stretch often begins with metadata.
#[derive(Debug)]
pub(super) struct GuestStretches<'a> {
    stretches: &'a [FileStretch],
    /// An error says why it is not known for any of them.
    owned: Result<Vec<Result<OwnedByte, String>>, String>,
}

fn middle(stretch: &FileStretch) -> u64 {
    stretch.offset.saturating_add(stretch.length / 2)
}

impl<'a> GuestStretches<'a> {
    /// Looks into the image at `path`, if it has such stretches.
    pub(super) fn of(path: &Path, found: &'a ExplainedFile) -> GuestStretches<'a> {
        let stretches = found.unshared.as_slice();
        let offsets: Vec<u64> = stretches.iter().map(middle).collect();
        let owned = if offsets.is_empty() { Ok(Vec::new()) } else { owned_bytes(path, &offsets) };
        GuestStretches { stretches, owned }
    }

    /// Returns the stretches for people; nothing about an image whose guest cannot be read.
    pub(super) fn lines(&self) -> Vec<String> {
        let Ok(owned) = &self.owned else { return Vec::new() };
        let known =
            self.stretches.iter().zip(owned).filter_map(|(stretch, owned)| Some((stretch, owned.as_ref().ok()?)));
        let known = known.filter(|(_, owned)| owned.is_known());
        let line = |(stretch, owned): (&FileStretch, &OwnedByte)| {
            let (length, offset) = (human(stretch.length), grouped(stretch.offset));
            format!("  {length} from byte {offset}: {}", owned.short())
        };
        let lines: Vec<String> = known.map(line).collect();
        let heading = (!lines.is_empty()).then(|| {
            "longest stretches that are not shared, and the file of the guest in the middle of each:".to_owned()
        });
        heading.into_iter().chain(lines).collect()
    }

    /// Returns the stretches for machines.
    pub(super) fn json(&self) -> Value {
        let guest = |at: usize| match &self.owned {
            Ok(owned) => owned.get(at).map_or(Err("it is not known"), |owned| owned.as_ref().map_err(String::as_str)),
            Err(why) => Err(why.as_str()),
        };
        let stretch = |(at, stretch): (usize, &FileStretch)| {
            json!({
                "offset": stretch.offset,
                "bytes": stretch.length,
                "middle": middle(stretch),
                "guest": guest(at).ok().map(OwnedByte::json),
                "guest_error": guest(at).err(),
            })
        };
        self.stretches.iter().enumerate().map(stretch).collect()
    }
}
