//! Finds volumes of a disk that share bytes with others, and so count as a whole.

use super::{Group, GuestVolume};

/// Role of a volume, which decides with whom it may share bytes: a logical volume is in the physical volumes of its own
/// group.
#[derive(Clone, Copy)]
enum Role {
    Plain,
    /// A physical volume of a group, with the group's index.
    Physical(usize),
    /// A logical volume of a group.
    Logical(usize),
}

/// A range of a volume.
struct VolumePiece {
    start: u64,
    end: u64,
    volume: usize,
}

/// Returns for each volume whether it shares bytes of the disk with another one. Logical volumes and the physical
/// volumes of their own group do not count. But if such a physical volume overlaps another volume, all logical volumes
/// of the group overlap, too.
pub(super) fn overlapping(volumes: &[GuestVolume<'_>], groups: &[Group]) -> Vec<bool> {
    let roles = roles(volumes, groups);
    let mut pieces = Vec::new();
    for (volume, found) in volumes.iter().enumerate() {
        let ranges = found.volume.ranges.iter();
        pieces.extend(ranges.map(|range| VolumePiece { start: range.start_bytes, end: range.end_bytes(), volume }));
    }
    pieces.sort_unstable_by_key(|piece| (piece.start, piece.end, piece.volume));
    let mut overlaps = vec![false; volumes.len()];
    // A piece overlaps an earlier one that ends behind the piece's start.
    let mut reached = Frontier::default();
    for piece in &pieces {
        mark(&mut overlaps, &roles, &mut reached, piece, piece.end, piece.start);
    }
    // It overlaps a later one that begins before the piece's end. Here, places count from the other end.
    let mut reached = Frontier::default();
    for piece in pieces.iter().rev() {
        mark(&mut overlaps, &roles, &mut reached, piece, !piece.start, !piece.end);
    }
    for group in groups {
        if group.physical.iter().any(|at| overlaps.get(*at).copied().unwrap_or(true)) {
            for at in &group.logical {
                if let Some(overlaps) = overlaps.get_mut(*at) {
                    *overlaps = true;
                }
            }
        }
    }
    overlaps
}

fn roles(volumes: &[GuestVolume<'_>], groups: &[Group]) -> Vec<Role> {
    let mut roles = vec![Role::Plain; volumes.len()];
    for (group, found) in groups.iter().enumerate() {
        let physical = found.physical.iter().map(|at| (at, Role::Physical(group)));
        for (at, role) in physical.chain(found.logical.iter().map(|at| (at, Role::Logical(group)))) {
            if let Some(known) = roles.get_mut(*at) {
                *known = role;
            }
        }
    }
    roles
}

/// Marks the volume of a piece if an earlier piece of another volume reaches past `from`. Then extends the reach to
/// `to`.
fn mark(overlaps: &mut [bool], roles: &[Role], reached: &mut Frontier, piece: &VolumePiece, to: u64, from: u64) {
    let (Some(role), Some(overlaps)) = (roles.get(piece.volume), overlaps.get_mut(piece.volume)) else { return };
    *overlaps |= reached.by_others(piece.volume, *role) > from;
    reached.add(piece.volume, *role, to);
}

/// The furthest places that the pieces so far reach.
#[derive(Default)]
struct Frontier {
    plain: FurthestEnds,
    physical: FurthestEnds,
    logical: FurthestEnds,
    physical_of_group: FurthestEnds,
    logical_of_group: FurthestEnds,
}

impl Frontier {
    fn add(&mut self, volume: usize, role: Role, to: u64) {
        match role {
            Role::Plain => self.plain.add(volume, to),
            Role::Physical(group) => {
                self.physical.add(volume, to);
                self.physical_of_group.add(group, to);
            }
            Role::Logical(group) => {
                self.logical.add(volume, to);
                self.logical_of_group.add(group, to);
            }
        }
    }

    /// Returns how far pieces reach that may not share bytes with a volume.
    fn by_others(&self, volume: usize, role: Role) -> u64 {
        let (physical, logical) = match role {
            Role::Plain => (self.physical.without(volume), self.logical.without(volume)),
            Role::Physical(group) => (self.physical.without(volume), self.logical_of_group.without(group)),
            Role::Logical(group) => (self.physical_of_group.without(group), self.logical.without(volume)),
        };
        self.plain.without(volume).max(physical).max(logical)
    }
}

/// The furthest places of the two keys that reach furthest.
#[derive(Default)]
struct FurthestEnds {
    first: Option<(usize, u64)>,
    second: Option<(usize, u64)>,
}

impl FurthestEnds {
    fn add(&mut self, key: usize, to: u64) {
        match self.first {
            Some((known, reached)) if known == key => self.first = Some((key, reached.max(to))),
            Some((_, reached)) if reached >= to => {
                if self.second.is_none_or(|(_, reached)| reached < to) {
                    self.second = Some((key, to));
                }
            }
            _ => self.second = self.first.replace((key, to)),
        }
    }

    /// Returns the furthest place of all keys except one; 0 if there is none.
    fn without(&self, key: usize) -> u64 {
        let others = [self.first, self.second].into_iter().flatten().filter(|(known, _)| *known != key);
        others.map(|(_, to)| to).max().unwrap_or(0)
    }
}
