//! A sound pool and invalid arguments: the pool must stay sound.

use std::sync::Arc;

use onefold_pool::check::{CheckOptions, check};
use onefold_pool::{Ino, NoProgress, Pool, XattrMode};

use crate::Choices;
use crate::guard::GuardedDevice;
use crate::samples::{MEMORY_BYTES, environment, open_options, samples};
use crate::usage::do_one;

const NAMES: [&[u8]; 9] = [
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"user.onefold.dedup",
    b"user.onefold.st_blocks",
    b"user.onefold.domain",
    b"security.capability",
    b"user.x",
    b"",
    &[b'n'; 256],
];

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let sample = &samples()[choices.index(3)];
    let device = Arc::new(GuardedDevice::from(sample.image.clone()));
    let pool = Pool::open(device.clone(), open_options(), environment()).expect("a sound pool opens");
    let mut files: Vec<_> = (0..24).filter_map(|ino| pool.attr(Ino(ino)).ok()).collect();
    for _ in 0..choices.below(20) {
        if choices.below(4) == 0 {
            let file = choices.one_of(&files).ino;
            let name = *choices.one_of(&NAMES);
            let length = choices.index(100);
            let value = choices.take(length);
            drop(pool.set_xattr(file, name, value, XattrMode::Either));
            drop(pool.lookup(file, value).map(|attr| pool.release(attr.ino, 1)));
        }
        do_one(&mut choices, &pool, &device, &files);
        // Numbers of removed files, or of files that never existed, are arguments, too.
        if let Some(file) = files.first_mut() {
            file.ino = Ino(choices.below(300));
        }
    }
    match pool.close() {
        Ok(()) => assert_sound(&device),
        Err(error) => panic!("a sound pool does not close: {error}"),
    }
}

fn assert_sound(device: &GuardedDevice) {
    let options = CheckOptions { memory_bytes: MEMORY_BYTES, verify_data: false, ..CheckOptions::default() };
    let report = check(device, &options, &NoProgress).expect("a sound pool can be checked");
    assert!(report.is_clean(), "{report:#?}");
}
