//! Finds data and holes of files that processes have mapped. Changes in a mapping are data, even before the pool has
//! received them.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::ffi::OsStr;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::mapping::SharedMapping;
use common::{TestMount, can_mount, new_pool, run};
use onefold_export::StBlocks;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const BYTES: u64 = 16 * MIB;

/// Returns the ranges of data that a program finds when it skips holes.
fn data_ranges(file: &File) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    let mut at = 0;
    loop {
        match seek(file, SeekFrom::Data(at)) {
            Ok(data) => {
                at = seek(file, SeekFrom::Hole(data)).unwrap();
                ranges.push((data, at));
            }
            Err(Errno::NXIO) => return ranges,
            Err(errno) => panic!("{errno}"),
        }
    }
}

/// Seen: a copy with `cp --sparse=always` lost changes that another process had made in a shared mapping and that the
/// kernel had not handed over. The kernel seeks for data without handing changes over, and the pool reported a hole.
#[test]
fn what_is_written_to_a_mapping_is_found_as_data() {
    if !can_mount() {
        return;
    }
    for threads in [1, 8] {
        let mount = TestMount::with(new_pool(), |options| {
            options.threads = NonZeroUsize::new(threads).unwrap();
            options.st_blocks = StBlocks::Mapped;
        });
        let file = mount.create("disk");
        file.set_len(BYTES).unwrap();
        file.write_all_at(&[7; 4096], 5 * MIB).unwrap();
        let mapping = SharedMapping::new(&file, usize::try_from(BYTES).unwrap()).unwrap();
        let places = [3 * MIB, 5 * MIB + PAGE, 5 * MIB + 2 * PAGE, 9 * MIB + 100, BYTES - 1];
        for (value, place) in (1..).zip(places) {
            mapping.set(usize::try_from(place).unwrap(), value);
        }
        // Without the ranges in between, nothing would be copied.
        let reader = File::open(mount.path("disk")).unwrap();
        let found = data_ranges(&reader);
        let page = |first: u64, count: u64| (first, first + count * PAGE);
        assert_eq!(
            found,
            [page(3 * MIB, 1), page(5 * MIB, 3), page(9 * MIB, 1), page(BYTES - PAGE, 1)],
            "{threads} threads"
        );
        for (value, place) in (11..).zip(places) {
            mapping.set(usize::try_from(place - PAGE).unwrap(), value);
        }
        assert_eq!(seek(&reader, SeekFrom::Hole(5 * MIB)).unwrap(), 5 * MIB + 3 * PAGE);
        assert_eq!(seek(&reader, SeekFrom::Data(8 * MIB)).unwrap(), 9 * MIB - PAGE);
        let copy = mount.path("copy");
        run("cp", &[OsStr::new("--sparse=always"), mount.path("disk").as_os_str(), copy.as_os_str()]);
        let copied = std::fs::read(copy).unwrap();
        for place in places.into_iter().chain(places.map(|place| place - PAGE)) {
            let place = usize::try_from(place).unwrap();
            assert!(copied[place] == mapping.get(place) && copied[place] > 0, "{threads} threads: byte {place}");
        }
        drop((mapping, reader, file));
        mount.end();
    }
}

#[test]
fn seeks_go_on_beside_a_process_that_writes_to_its_mapping_all_the_time() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::with(new_pool(), |options| options.threads = NonZeroUsize::new(2).unwrap());
    let file = mount.create("disk");
    file.set_len(BYTES).unwrap();
    let mapping = SharedMapping::new(&file, usize::try_from(BYTES).unwrap()).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (mapping, is_over, mount) = (WritableMapping(&mapping), &is_over, &mount);
        scope.spawn(move || {
            let mut at = 0;
            while !is_over.load(Ordering::Relaxed) {
                at = (at + 7 * 4096 + 3) % usize::try_from(BYTES).unwrap();
                mapping.set(at, 1);
            }
        });
        let reader = File::open(mount.path("disk")).unwrap();
        for _ in 0..50 {
            let ranges = data_ranges(&reader);
            assert!(ranges.is_sorted() && ranges.iter().all(|(data, hole)| data < hole), "{ranges:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop((mapping, file));
    mount.end();
}

/// A mapping that another thread writes to.
#[derive(Clone, Copy)]
struct WritableMapping<'m>(&'m SharedMapping);

impl WritableMapping<'_> {
    fn set(self, at: usize, value: u8) {
        self.0.set(at, value);
    }
}

#[expect(unsafe_code, reason = "the mapping is a pointer, of which the compiler knows nothing")]
// SAFETY: the mapping lives longer than the scope of the thread, and its bytes are written as volatile ones.
unsafe impl Send for WritableMapping<'_> {}
