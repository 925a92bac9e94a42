//! Counts records. They come sorted, so all places of one content are adjacent.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;

use crate::files::{OwnedPlaces, OwnerCounts};
use crate::histogram::{Histogram, RegionPlaces};
use crate::record::{Content, ListSet, Record, place};
use crate::repeats::Repeats;
use crate::scan::SHIFT_VARIANTS;
use crate::similarity::Overlaps;
use crate::top::{TOP_COUNT, Top, TopBlock};
use onefold_sort::{Merge, SortBatch};

/// Counts for one grid of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VariantCount {
    /// Blocks that are not zero.
    pub(crate) references: u64,
    /// Distinct contents among them.
    pub(crate) distinct: u64,
    /// Distinct pairs of content and offset: these could be shared by clones whose blocks were never moved to other
    /// offsets.
    pub(crate) distinct_at_offset: u64,
    /// Distribution of the numbers of places of contents.
    pub(crate) repeats: Repeats,
}

/// Counts for one image, in blocks of 4 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageCount {
    /// Blocks that are not zero.
    pub(crate) references: u64,
    /// Distinct contents among them.
    pub(crate) distinct: u64,
    /// Of these: contents that no other image has.
    pub(crate) only_here: u64,
    /// Of these: contents that no earlier image has.
    pub(crate) new: u64,
}

/// Counts for one group of images, in blocks of 4 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupCount {
    pub(crate) references: u64,
    pub(crate) distinct: u64,
}

/// Properties of an image that are known before counting.
#[derive(Clone, Debug)]
pub(crate) struct ImageProperties {
    /// Whether the image was read completely, so that its records count.
    pub(crate) is_whole: bool,
    pub(crate) group: Option<usize>,
    pub(crate) is_plain: bool,
}

/// All counts.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Counts by variant. Variants that were not read are empty.
    pub(crate) variants: Vec<VariantCount>,
    pub(crate) images: Vec<ImageCount>,
    pub(crate) groups: Vec<GroupCount>,
    /// Counts with all partitions moved to whole blocks.
    pub(crate) realigned_references: u64,
    pub(crate) realigned_distinct: u64,
    /// Count with the data areas of FAT moved to whole blocks, too.
    pub(crate) data_areas_distinct: u64,
    /// Counts for images that are plain files.
    pub(crate) plain_references: u64,
    pub(crate) plain_distinct: u64,
    pub(crate) overlaps: Overlaps,
    pub(crate) top: Vec<TopBlock>,
    /// Places of the most repeated blocks, by their first place, if owners are counted.
    pub(crate) top_places: BTreeMap<(usize, u64), OwnedPlaces>,
}

/// Outputs for rows that must be sorted again.
pub(crate) struct RowOutputs<'a, 'b> {
    /// Shared blocks: the block's place, and the place of the first block with this content.
    pub(crate) runs: &'a mut SortBatch<'b>,
    /// Contents with very many places: variant and number of the content, offset.
    pub(crate) offsets: &'a mut SortBatch<'b>,
    /// Maximum number of offsets of one content in memory. If there are more, all of them go to `offsets`.
    pub(crate) offsets_max: usize,
    /// Numbers of regions that contain each content. Only for a sample.
    pub(crate) histogram: Option<&'a mut Histogram>,
    /// Owners of the blocks of 4 KiB.
    pub(crate) owners: Option<&'a mut OwnerCounts>,
    /// Receives the most repeated blocks and their places once, as soon as they are known.
    pub(crate) on_top: OnTop<'a>,
}

/// Takes the most repeated blocks, the most repeated first, and their places if owners are counted.
pub(crate) type OnTop<'a> = &'a mut dyn FnMut(&[TopBlock], &BTreeMap<(usize, u64), OwnedPlaces>);

/// Counts all of `records`. Reports the number of rows to `progress`, and stops if it says so.
pub(crate) fn count<'a>(
    records: Merge,
    images: &'a [ImageProperties],
    group_count: usize,
    shifts: u8,
    further: RowOutputs<'a, '_>,
    progress: &dyn Fn(u64) -> ControlFlow<()>,
) -> io::Result<ControlFlow<(), Counts>> {
    let mut counter = Counter::new(images, group_count, shifts, further);
    for (done, row) in records.enumerate() {
        if done.is_multiple_of(1 << 16) && progress(done as u64).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let record = Record::decode(row?);
        if images[record.image].is_whole {
            counter.take(record)?;
        }
    }
    counter.close();
    counter.settle_top();
    let mut counts = counter.counts;
    counts.overlaps.settle();
    Ok(ControlFlow::Continue(counts))
}

/// The current content, and all counts.
struct Counter<'a, 'b> {
    images: &'a [ImageProperties],
    further: RowOutputs<'a, 'b>,
    counts: Counts,
    /// `Some` until all blocks of 4 KiB at their original places are counted.
    top: Option<Top>,
    current: Group,
    /// Contents seen so far.
    group_no: u64,
}

/// The places of one content.
#[derive(Default)]
struct Group {
    variant: u8,
    /// `None` before the first content.
    content: Option<Content>,
    /// Place of the first block in the unmoved images.
    first: Option<(usize, u64)>,
    references: u64,
    /// Offsets of this content, while there are few.
    offsets: Vec<u64>,
    offsets_are_filed: bool,
    /// Images with this content, each once and in order. Only for 4 KiB blocks at their original places.
    holders: Vec<usize>,
    /// Regions with this content. Only for a sample.
    places: RegionPlaces,
    realigned_references: u64,
    is_with_data_areas: bool,
    plain_references: u64,
}

impl Group {
    /// Starts another content. Its lists keep their memory.
    fn start(&mut self, variant: u8, content: Content) {
        let (mut offsets, mut holders) = (std::mem::take(&mut self.offsets), std::mem::take(&mut self.holders));
        let mut places = std::mem::take(&mut self.places);
        offsets.clear();
        holders.clear();
        places.clear();
        *self = Group { variant, content: Some(content), offsets, holders, places, ..Group::default() };
    }
}

impl<'a, 'b> Counter<'a, 'b> {
    fn new(
        images: &'a [ImageProperties],
        group_count: usize,
        shifts: u8,
        further: RowOutputs<'a, 'b>,
    ) -> Counter<'a, 'b> {
        let variants = usize::from(SHIFT_VARIANTS) * (usize::from(shifts) + 1);
        let counts = Counts {
            variants: vec![VariantCount::default(); variants],
            images: vec![ImageCount::default(); images.len()],
            groups: vec![GroupCount::default(); group_count],
            realigned_references: 0,
            realigned_distinct: 0,
            data_areas_distinct: 0,
            plain_references: 0,
            plain_distinct: 0,
            overlaps: Overlaps::new(images.len()),
            top: Vec::new(),
            top_places: BTreeMap::new(),
        };
        Counter { images, further, counts, top: Some(Top::default()), current: Group::default(), group_no: 0 }
    }

    fn take(&mut self, record: Record) -> io::Result<()> {
        let group = &mut self.current;
        if (group.variant, group.content) != (record.variant, Some(record.content)) {
            self.close();
            // Records come in the order of variants.
            if record.variant != 0 {
                self.settle_top();
            }
            self.group_no += 1;
            self.current.start(record.variant, record.content);
        }
        let group = &mut self.current;
        // Larger blocks are not counted for this purpose.
        if record.variant == 0 && record.lists.has(ListSet::REALIGNED) {
            group.realigned_references += 1;
        }
        group.is_with_data_areas |= record.variant == 0 && record.lists.has(ListSet::WITH_DATA_AREAS);
        if !record.lists.has(ListSet::AS_IT_IS) {
            return Ok(());
        }
        group.references += 1;
        note_offset(group, record.index, self.group_no, &mut self.further)?;
        if let Some(histogram) = &mut self.further.histogram {
            histogram.add_reference(record.variant, record.index);
            group.places.note(record.variant, record.index);
        }
        if record.variant != 0 {
            return Ok(());
        }
        if let Some(owners) = &mut self.further.owners {
            owners.take((record.image, record.index, record.owner));
        }
        let image = &self.images[record.image];
        if image.is_plain {
            group.plain_references += 1;
        }
        self.counts.images[record.image].references += 1;
        if group.holders.last() != Some(&record.image) {
            group.holders.push(record.image);
        }
        match group.first {
            None => group.first = Some((record.image, record.index)),
            Some((image, index)) => {
                self.further.runs.push([place(record.image, record.index), place(image, index), 0])?;
            }
        }
        Ok(())
    }

    /// Counts the current content, all of whose places are known.
    fn close(&mut self) {
        let group = &mut self.current;
        if group.realigned_references > 0 {
            self.counts.realigned_references += group.realigned_references;
            self.counts.realigned_distinct += 1;
        }
        self.counts.data_areas_distinct += u64::from(group.is_with_data_areas);
        if group.references == 0 {
            return;
        }
        let variant = &mut self.counts.variants[usize::from(group.variant)];
        variant.references += group.references;
        variant.distinct += 1;
        variant.repeats.add(group.references);
        if !group.offsets_are_filed {
            group.offsets.sort_unstable();
            group.offsets.dedup();
            variant.distinct_at_offset += group.offsets.len() as u64;
        }
        if let Some(histogram) = &mut self.further.histogram {
            histogram.add_content(group.variant, &group.places);
            // Offsets that are filed are counted later, together with those of other contents.
            if !group.offsets_are_filed {
                group.offsets.iter().for_each(|&offset| histogram.add_offset(group.variant, offset));
            }
        }
        if group.variant == 0 {
            self.close_at_4_kib();
        }
    }

    fn close_at_4_kib(&mut self) {
        let group = &self.current;
        if group.plain_references > 0 {
            self.counts.plain_references += group.plain_references;
            self.counts.plain_distinct += 1;
        }
        let mut groups_seen = 0_u64;
        for (at, &holder) in group.holders.iter().enumerate() {
            let image = &mut self.counts.images[holder];
            image.distinct += 1;
            image.new += u64::from(at == 0);
            image.only_here += u64::from(group.holders.len() == 1);
            if let Some(named) = self.images[holder].group
                && groups_seen & (1 << named) == 0
            {
                groups_seen |= 1 << named;
                self.counts.groups[named].distinct += 1;
            }
        }
        self.counts.overlaps.add(&group.holders);
        let places = self.further.owners.as_mut().map(|owners| owners.close());
        if let Some((image, index)) = group.first
            && let Some(top) = &mut self.top
            && top.offer(TopBlock { references: group.references, image, index })
            && let Some(places) = places
        {
            let kept = &mut self.counts.top_places;
            kept.insert((image, index), places);
            if kept.len() > 8 * TOP_COUNT {
                kept.retain(|place, _| top.has(*place));
            }
        }
    }

    /// Reports the most repeated blocks, once.
    fn settle_top(&mut self) {
        let Some(top) = self.top.take() else { return };
        let counts = &mut self.counts;
        counts.top = top.into_sorted();
        counts.top_places.retain(|place, _| counts.top.iter().any(|top| (top.image, top.index) == *place));
        (self.further.on_top)(&counts.top, &counts.top_places);
    }
}

/// Records an offset of a content. If there are too many, all of them are filed and sorted with those of other
/// contents.
fn note_offset(group: &mut Group, offset: u64, group_no: u64, further: &mut RowOutputs<'_, '_>) -> io::Result<()> {
    let key = u64::from(group.variant) << 56 | group_no;
    if group.offsets_are_filed {
        return further.offsets.push([key, offset, 0]);
    }
    group.offsets.push(offset);
    if group.offsets.len() > further.offsets_max {
        group.offsets_are_filed = true;
        for offset in group.offsets.drain(..) {
            further.offsets.push([key, offset, 0])?;
        }
    }
    Ok(())
}

/// Adds the filed counts: the distinct offsets of contents with very many places.
pub(crate) fn count_filed_offsets(
    offsets: Merge,
    variants: &mut [VariantCount],
    mut histogram: Option<&mut Histogram>,
) -> io::Result<()> {
    let mut last = None;
    for row in offsets {
        let [key, offset, _] = row?;
        if last != Some((key, offset)) {
            last = Some((key, offset));
            let [variant, ..] = key.to_be_bytes();
            variants[usize::from(variant)].distinct_at_offset += 1;
            if let Some(histogram) = &mut histogram {
                histogram.add_offset(variant, offset);
            }
        }
    }
    Ok(())
}

/// Adds up the references of each group.
pub(crate) fn add_group_references(counts: &mut Counts, images: &[ImageProperties]) {
    for (image, count) in images.iter().zip(&counts.images) {
        if let Some(group) = image.group {
            counts.groups[group].references += count.references;
        }
    }
}
