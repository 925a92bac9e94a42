//! Exclusive use of files, by leases; and opening by handles. XFS and Btrfs do not need it, but the kernel's part is
//! the same.

use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::Duration;

use onefold_block::Timestamp;
use onefold_substrate::{Access, Exclusive, Files, Names};
use rustix::io::Errno;

use super::ground::{K, on_each, random_blocks, soon};

#[test]
fn a_process_with_an_open_file_keeps_others_from_having_it_alone() {
    on_each(|ground| {
        drop(ground.file("image", &random_blocks(1, 2)));
        let ours = ground.open("image", Access::Write);
        for writes in [false, true] {
            let theirs = File::options().read(true).write(writes).open(ground.root.join("image")).unwrap();
            assert!(!ground.substrate.try_exclusive(&ours).unwrap());
            drop(theirs);
            // Other tests start programs, which have all that is open for a moment.
            assert!(soon(|| ground.substrate.try_exclusive(&ours).unwrap()));
            assert!(!ground.substrate.is_exclusive_wanted(&ours));
            ground.substrate.leave_exclusive(&ours);
        }
        let only_read = ground.open("image", Access::Read);
        let error = ground.substrate.try_exclusive(&only_read).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    });
}

#[test]
fn who_wants_a_file_that_is_taken_waits_and_is_seen() {
    on_each(|ground| {
        drop(ground.file("image", &random_blocks(1, 2)));
        let ours = ground.open("image", Access::Write);
        assert!(soon(|| ground.substrate.try_exclusive(&ours).unwrap()));
        // What is done through the opening that has it disturbs nobody.
        ground.substrate.write_at(&ours, K, &[7; 10]).unwrap();
        ground.substrate.sync(&ours).unwrap();
        assert!(!ground.substrate.is_exclusive_wanted(&ours));
        let path = ground.root.join("image");
        let opener = thread::spawn(move || File::open(path).map(drop));
        assert!(soon(|| ground.substrate.is_exclusive_wanted(&ours)));
        thread::sleep(Duration::from_millis(50));
        assert!(!opener.is_finished(), "it waits until the file is left");
        ground.substrate.leave_exclusive(&ours);
        opener.join().unwrap().unwrap();
        // A process that does not wait gets an error, and the lease's owner sees it, too.
        assert!(soon(|| ground.substrate.try_exclusive(&ours).unwrap()));
        let error = ground.substrate.open(Path::new("image"), Access::Read).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::AGAIN));
        assert!(ground.substrate.is_exclusive_wanted(&ours));
        drop(ours);
        assert!(soon(|| ground.substrate.open(Path::new("image"), Access::Read).is_ok()));
    });
}

#[test]
fn files_are_opened_by_their_handles_until_they_are_gone() {
    on_each(|ground| {
        let content = random_blocks(1, 1);
        drop(ground.file("image", &content));
        let handle = ground.substrate.stat(&ground.open("image", Access::Read)).unwrap().handle;
        ground.substrate.rename(Path::new("image"), Path::new("renamed")).unwrap();
        let file = ground.substrate.open_handle(&handle, Access::Write).unwrap();
        let mut found = vec![0; content.len()];
        assert_eq!(ground.substrate.read_at(&file, 0, &mut found).unwrap(), content.len());
        assert!(found == content);
        drop(file);
        ground.substrate.remove(Path::new("renamed")).unwrap();
        // The file system frees the blocks of removed files later, in the background.
        assert!(soon(|| {
            rustix::fs::syncfs(File::open(&ground.root).unwrap()).unwrap();
            let opened = ground.substrate.open_handle(&handle, Access::Write);
            opened.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        }));
    });
}

#[test]
fn the_time_of_a_content_can_be_set_back() {
    on_each(|ground| {
        let file = ground.file("image", &random_blocks(1, 1));
        let before = ground.substrate.stat(&file).unwrap();
        for modified in [before.modified, Timestamp { seconds: -7, nanoseconds: 12_345 }] {
            ground.substrate.write_at(&file, 0, &[1]).unwrap();
            ground.substrate.set_modified(&file, modified).unwrap();
            assert_eq!(ground.substrate.stat(&file).unwrap().modified, modified);
        }
    });
}
