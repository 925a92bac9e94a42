//! Files that not all systems list: those with a record behind the end of their directory.
//!
//! A record that begins with a zero byte ends a directory, says the specification, and so say Windows, mtools and the
//! listings of this reader. Linux and `fsck.fat` skip that record and read on to the end of the directory's clusters.
//! The allocation map must suit both. It does not need whole chains: where an entry of a table leads to a cluster, that
//! cluster is in use already, so only the first cluster of such a file may still count as free.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::Fat;
use super::allocation::Clusters;
use super::directory::Record;
use super::layout::Root;
use crate::bytes::Bytes;
use crate::error::{DamageLog, GuestError};

impl Fat<'_> {
    /// Adds the first clusters of all records in the clusters of `directories` to those in use, and of all records in
    /// directories that only such records name. Returns the number of the new ones. Each cluster is read once. What
    /// cannot be read there is no damage: the pass over all listed files notes that.
    pub(super) fn add_unlisted(&self, directories: &HashSet<u32>, used: &mut Clusters) -> Result<u64, GuestError> {
        let mut waiting: Vec<u32> = directories.iter().copied().collect();
        waiting.sort_unstable_by(|one, other| other.cmp(one));
        let mut survey = UnlistedSurvey { used, seen: Clusters::new(self.layout.end()), waiting, added: 0 };
        for cluster in directories {
            survey.seen.add(*cluster);
        }
        let unnoted = DamageLog::default();
        if let Root::Fixed { start, length_bytes } = self.layout.root {
            unnoted.skip(self.survey_records(start, length_bytes, &mut survey))?;
        }
        while let Some(cluster) = survey.waiting.pop() {
            let place = self.layout.place(cluster);
            unnoted.skip(self.survey_records(place, self.layout.cluster_bytes, &mut survey))?;
            if let Some(Some(next)) = unnoted.skip(self.table.next(cluster, &unnoted))? {
                survey.visit(next);
            }
        }
        Ok(survey.added)
    }

    /// Adds the first clusters of all records in a part of a directory.
    fn survey_records(&self, place: u64, length_bytes: u64, survey: &mut UnlistedSurvey<'_>) -> Result<(), GuestError> {
        let mut visit = |_: u64, bytes: Bytes<'_>| {
            if let Some(Record::File(record)) = Record::decode(bytes, self.layout.kind)
                && self.layout.has(record.first_cluster)
            {
                survey.added += u64::from(survey.used.add(record.first_cluster));
                if record.is_directory {
                    survey.visit(record.first_cluster);
                }
            }
            ControlFlow::Continue(())
        };
        self.each_record_at(place, length_bytes, &mut visit).map(|_| ())
    }
}

/// A pass over all records of all directories.
struct UnlistedSurvey<'u> {
    used: &'u mut Clusters,
    /// The clusters of directories that were or will be read.
    seen: Clusters,
    /// Those that will be read.
    waiting: Vec<u32>,
    /// Number of clusters that are in use because of records alone.
    added: u64,
}

impl UnlistedSurvey<'_> {
    /// Has a cluster of a directory read, unless it was.
    fn visit(&mut self, cluster: u32) {
        if self.seen.add(cluster) {
            self.waiting.push(cluster);
        }
    }
}
