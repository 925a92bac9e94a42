//! The states of blocks in a pool, where no volume is a common one and the user names the template.

use std::sync::Arc;

use onefold_block::BlockDevice;

use crate::ground::{check_clean, new_pool, open, settle, substrate, with_filter};
use crate::states_walk::{Walk, hold_figure};

#[test]
fn blocks_go_the_ways_of_the_figure_and_no_others() {
    let device = new_pool(16_384);
    let seam: Arc<dyn BlockDevice> = device.clone();
    let pool = open(seam, with_filter(0));
    hold_figure(&Walk::new(&substrate(&pool), 7, false, &|| settle(&pool)).go(200), false);
    pool.close().unwrap();
    check_clean(&*device).unwrap();
}
