//! Reasons why all bytes of a volume count as allocated.

use super::Guest;
use crate::content::VolumeContent;

/// Reason for a volume that shares bytes with another one.
const OVERLAPS: &str = "it overlaps another volume";
const NO_GROUP: &str = "no description of its group was found in it";

impl Guest<'_> {
    /// Returns whether all bytes of a volume count as allocated. This is so if the disk may be something else than its
    /// partitions, the volume overlaps another one, its own map is uncertain, or its group is not sure of the places of
    /// its logical volumes. It is also so for each physical volume, because its group has the map.
    #[must_use]
    pub fn counts_whole(&self, at: usize) -> bool {
        let content = |volume: &super::GuestVolume<'_>| volume.content.whole_because();
        self.doubt.is_some()
            || self.overlaps(at)
            || self.unsure.get(at) == Some(&true)
            || self.volumes.get(at).is_none_or(|v| content(v).is_some())
    }

    /// Returns all reasons why a volume counts as allocated as a whole, in one text that may contain names of the
    /// guest. Returns `None` if a map describes the allocated bytes; for a physical volume, the map of its group.
    #[must_use]
    pub fn whole_because(&self, at: usize) -> Option<String> {
        let mut reasons: Vec<String> = self.doubt.iter().cloned().collect();
        if self.overlaps(at) {
            reasons.push(OVERLAPS.to_owned());
        }
        let volume = self.volumes.get(at)?;
        if matches!(volume.content, VolumeContent::PhysicalVolume(_)) {
            reasons.extend(self.physical_because(at));
        } else {
            reasons.extend(self.logical_because(at));
            reasons.extend(volume.content.whole_because());
        }
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Returns why no extent of a physical volume counts as free.
    fn physical_because(&self, at: usize) -> Vec<String> {
        let mut groups = self.groups.iter().filter(|group| group.physical.contains(&at)).peekable();
        if groups.peek().is_none() {
            return vec![NO_GROUP.to_owned()];
        }
        let of_group = |group: &super::Group| {
            let group = &group.group;
            group.doubts.iter().chain(&group.unsure).map(|why| format!("its group {}: {why}", group.name)).collect()
        };
        groups.flat_map::<Vec<String>, _>(of_group).collect()
    }

    /// Returns why a group is not sure of its logical volume; nothing for all other volumes.
    fn logical_because(&self, at: usize) -> Vec<String> {
        let groups = self.groups.iter().filter(|group| group.logical.contains(&at)).map(|group| &group.group);
        groups.flat_map(|group| group.unsure.iter().map(|why| format!("its group {}: {why}", group.name))).collect()
    }
}
