//! Layouts that a hostile superblock may describe: accepted ones must be consistent.

use onefold_block::BlockNo;
use onefold_pool::StorePlacement;
use onefold_pool::format::geometry::Geometry;

use crate::Choices;

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let scale = choices.below(50);
    let total_blocks = choices.number() >> scale;
    let journal_first = *choices.one_of(&[200, 4096, 4096, 0, u64::MAX]);
    let journal_blocks = *choices.one_of(&[256, 1947, 16_384, 255, u64::MAX]);
    let placement = *choices.one_of(&[StorePlacement::InGroups, StorePlacement::AtEnd]);
    let _ = Geometry::plan(total_blocks, None, placement).map(|layout| use_layout(&mut choices, layout));
    let _ = Geometry::new(total_blocks, BlockNo(journal_first), journal_blocks, placement)
        .map(|layout| use_layout(&mut choices, layout));
}

fn use_layout(choices: &mut Choices<'_>, layout: Geometry) {
    assert!(layout.allocatable_blocks() < layout.total_blocks);
    assert!(layout.group_count() > 0 && layout.fixed_blocks(0) > 0);
    assert!(layout.journal_blocks_needed() > 0);
    for _ in 0..8 {
        let block = BlockNo(choices.below(layout.total_blocks));
        if !layout.is_allocatable(block) {
            continue;
        }
        let place = layout.store_place(block);
        assert!(
            place.page.0 < layout.total_blocks && layout.is_fixed(place.page) || placed_at_end(&layout, place.page)
        );
        assert_eq!(layout.group_of_store_page(place.page), Some(layout.group_of(block)));
        let (page, first) = layout.store_page_by_no(layout.store_page_no(block));
        assert_eq!((page, first.0 + place.index as u64), (place.page, block.0));
        let bitmap = layout.bitmap_block(layout.group_of(block), 1);
        assert!(layout.is_fixed(bitmap) && bitmap.0 < layout.total_blocks);
    }
}

fn placed_at_end(layout: &Geometry, page: BlockNo) -> bool {
    layout.placement == StorePlacement::AtEnd && page.0 < layout.total_blocks && !layout.is_allocatable(page)
}
