//! The description of a volume group, from its metadata text.

use std::collections::HashMap;

use super::text::{Section, Value, parse};

const SECTOR_BYTES: u64 = 512;
/// Maximum length of a name of a group or a logical volume, in bytes; LVM2 allows 127. Each logical volume has a copy
/// of some names.
const NAME_BYTES_MAX: usize = 255;

/// A volume group as one metadata area describes it. Its name and those in it are text of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) sequence: u64,
    pub(super) extent_bytes: u64,
    pub(super) physical: Vec<Physical>,
    pub(super) logical: Vec<Logical>,
}

/// A physical volume of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Physical {
    pub(super) uuid: String,
    /// Its device when the metadata was written.
    pub(super) device: String,
    /// First byte of its extents.
    pub(super) start_bytes: u64,
    pub(super) extents: u64,
}

/// A logical volume of the group, hidden ones included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logical {
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) is_visible: bool,
    /// The logical volume whose old content it preserves.
    pub(super) snapshot_of: Option<String>,
    /// In the order of the volume.
    pub(super) segments: Vec<Segment>,
}

/// A part of a logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// First extent of the logical volume.
    pub(super) first: u64,
    pub(super) extents: u64,
    /// The type, under LVM2's name.
    pub(super) kind: String,
    /// Bytes of a stripe.
    pub(super) stripe_bytes: u64,
    /// The physical extents that it takes: index of the physical volume, and the first extent there.
    pub(super) areas: Vec<(usize, u64)>,
    /// The other logical volumes that it needs.
    pub(super) needs: Vec<String>,
}

impl Segment {
    /// Returns whether its content is in its areas, one after another or in stripes.
    pub(super) fn is_striped(&self) -> bool {
        matches!(self.kind.as_str(), "striped" | "linear") && self.needs.is_empty() && !self.areas.is_empty()
    }

    /// Returns the number of extents in each of its areas; `None` if that is not known.
    pub(super) fn extents_per_area(&self) -> Option<u64> {
        match self.kind.as_str() {
            "striped" | "linear" => {
                let areas = (self.areas.len() + self.needs.len()) as u64;
                (areas > 0 && self.extents.is_multiple_of(areas)).then(|| self.extents / areas)
            }
            "mirror" => Some(self.extents),
            _ => self.areas.is_empty().then_some(0),
        }
    }
}

impl Description {
    /// Returns the group that a text describes; `None` if it describes none, or contains invalid names.
    pub(super) fn parse(text: &[u8]) -> Option<Description> {
        // The text ends with a zero that its length includes.
        let root = parse(text.strip_suffix(b"\0").unwrap_or(text))?;
        let (name, group) = root.0.iter().find_map(|(name, value)| match value {
            Value::Section(section) => Some((name, section)),
            _ => None,
        })?;
        let physical: Vec<(&str, Physical)> = group
            .sections("physical_volumes")
            .map(|(name, section)| Some((name, physical(section)?)))
            .collect::<Option<_>>()?;
        let numbers: HashMap<&str, usize> = physical.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
        let logical = group.sections("logical_volumes").map(|(name, section)| logical(name, section, &numbers));
        let mut logical = logical.collect::<Option<Vec<Logical>>>()?;
        let names = logical.iter().flat_map(|logical| [&*logical.name, &*logical.uuid]);
        if !std::iter::once(&**name).chain(names).all(is_short) {
            return None;
        }
        mark_snapshots(group, &mut logical)?;
        Some(Description {
            name: name.to_string(),
            uuid: group.text("id")?.to_owned(),
            sequence: group.number("seqno")?,
            extent_bytes: group.number("extent_size")?.checked_mul(SECTOR_BYTES).filter(|bytes| *bytes > 0)?,
            logical,
            physical: physical.into_iter().map(|(_, physical)| physical).collect(),
        })
    }
}

/// Marks the volumes that preserve the old content of others. A hidden volume names both; users see the snapshot.
/// Returns `None` if a name is too long.
fn mark_snapshots(group: &Section<'_>, logical: &mut [Logical]) -> Option<()> {
    let segments = group.sections("logical_volumes").flat_map(|(_, section)| &section.0);
    let pairs: HashMap<&str, &str> = segments
        .filter_map(|(_, value)| match value {
            Value::Section(segment) => segment.text("cow_store").zip(segment.text("origin")),
            _ => None,
        })
        .collect();
    if !pairs.values().all(|origin| is_short(origin)) {
        return None;
    }
    for logical in logical {
        logical.snapshot_of = pairs.get(logical.name.as_str()).map(|origin| (*origin).to_owned());
        logical.is_visible |= logical.snapshot_of.is_some();
    }
    Some(())
}

fn is_short(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
}

fn physical(section: &Section<'_>) -> Option<Physical> {
    Some(Physical {
        uuid: section.text("id")?.to_owned(),
        device: section.text("device").unwrap_or_default().to_owned(),
        start_bytes: section.number("pe_start")?.checked_mul(SECTOR_BYTES)?,
        extents: section.number("pe_count")?,
    })
}

fn logical(name: &str, section: &Section<'_>, physical: &HashMap<&str, usize>) -> Option<Logical> {
    let status = section.list("status").unwrap_or_default();
    let segments = section.0.iter().filter(|(name, _)| {
        name.strip_prefix("segment").is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
    });
    let segments = segments.filter_map(|(_, value)| match value {
        Value::Section(section) => Some(segment(section, physical)),
        _ => None,
    });
    let mut segments = segments.collect::<Option<Vec<Segment>>>()?;
    segments.sort_by_key(|segment| segment.first);
    Some(Logical {
        name: name.to_owned(),
        uuid: section.text("id").unwrap_or_default().to_owned(),
        is_visible: status.contains(&Value::Text("VISIBLE".into())),
        snapshot_of: None,
        segments,
    })
}

fn segment(section: &Section<'_>, physical: &HashMap<&str, usize>) -> Option<Segment> {
    let kind = section.text("type")?;
    // Flags may follow the type, as in `striped+WRITE_LOCKED`.
    let kind = kind.split('+').next().unwrap_or(kind);
    let (mut areas, mut needs) = (Vec::new(), Vec::new());
    for (key, value) in &section.0 {
        match value {
            Value::List(list) if !matches!(&**key, "flags" | "tags") => {
                areas_of(list, physical, &mut areas, &mut needs)
            }
            Value::Text(name) if names_a_volume(key) => needs.push(name.to_string()),
            _ => {}
        }
    }
    Some(Segment {
        first: section.number("start_extent")?,
        extents: section.number("extent_count")?,
        kind: kind.to_owned(),
        stripe_bytes: section.number("stripe_size").unwrap_or(0).checked_mul(SECTOR_BYTES)?,
        areas,
        needs,
    })
}

/// Returns whether the text of a key may name a logical volume. Segment types have many such keys (`origin`,
/// `thin_pool`, `cow_store`), and few other keys.
fn names_a_volume(key: &str) -> bool {
    let is_setting = matches!(key, "discards" | "cache_mode" | "policy" | "write_policy");
    !is_setting && !matches!(key, "type" | "id" | "creation_host")
}

/// Adds the items of a list: physical volumes with their first extent, and logical volumes.
fn areas_of(
    list: &[Value<'_>],
    physical: &HashMap<&str, usize>,
    areas: &mut Vec<(usize, u64)>,
    needs: &mut Vec<String>,
) {
    let mut values = list.iter().peekable();
    while let Some(value) = values.next() {
        let Value::Text(name) = value else { continue };
        let first = match values.peek() {
            Some(Value::Number(first)) => u64::try_from(*first).ok(),
            _ => None,
        };
        match (physical.get(&**name), first) {
            (Some(at), Some(first)) => areas.push((*at, first)),
            _ => needs.push(name.to_string()),
        }
    }
}
