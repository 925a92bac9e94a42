//! FAT volumes that are damaged, doubtful or cut.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use onefold_disk::Disk;
use onefold_guest::content::{self, VolumeContent};
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{AllocationClass, Doubt, FileNumber, State};

use super::super::{disk, whole};
use super::{
    content_of, extents, first_cluster_place, free_ranges, make, open, printed_clusters, same_as_tree, tools, tree,
};

#[test]
fn a_volume_that_is_mounted_or_has_errors_is_unsure() {
    let Some(images) = tools() else { return };
    // Where the state lies in the boot sector, and what entry 1 of the table is with the bit of a mount or an error.
    for (options, state, entry, width) in [("-F 16", 37, 2, 2_usize), ("-F 32 -s 1", 65, 4, 4)] {
        images.script(r#"rm -f sound; truncate -s 40M sound; mkfs.fat $1 sound >/dev/null"#, [options]);
        let doubts = |at: u64, byte: u8| {
            fs::copy(images.path("sound"), images.path("image")).unwrap();
            let image = File::options().write(true).open(images.path("image")).unwrap();
            image.write_all_at(&[byte], at).unwrap();
            let disk = disk(&images.path("image"));
            let content = content::open(&whole(&disk), None);
            let is_whole = content.allocation(disk.size_bytes()).unwrap().len() == 1;
            let VolumeContent::FileSystem(fat) = content else { panic!() };
            match fat.state() {
                State::Certain => Vec::new(),
                State::Unsure(doubts) => {
                    assert!(is_whole, "it is counted whole");
                    doubts.clone()
                }
            }
        };
        let reserved = {
            let bytes = fs::read(images.path("sound")).unwrap();
            u64::from(u16::from_le_bytes([bytes[14], bytes[15]])) * 512
        };
        let flags = reserved + entry + width as u64 - 1;
        let (all, clean, fine) = if width == 2 { (0xff, 0x80, 0x40) } else { (0x0f, 0x08, 0x04) };
        assert_eq!(doubts(state, 0), []);
        assert_eq!(doubts(state, 1), [Doubt::NotUnmounted]);
        assert_eq!(doubts(state, 2), [Doubt::HasErrors]);
        assert_eq!(doubts(flags, all ^ clean), [Doubt::NotUnmounted]);
        assert_eq!(doubts(flags, all ^ fine), [Doubt::HasErrors]);
    }
}

#[test]
fn damaged_tables_lose_no_file_that_the_other_one_has() {
    let Some(images) = tools() else { return };
    make(&images, "-F 16 -s 4 -f 2", "30000");
    let free = {
        let disk = disk(&images.path("image"));
        free_ranges(&*open(&whole(&disk)))
    };
    let image = File::options().write(true).open(images.path("image")).unwrap();
    let (reserved, used) = {
        let bytes = fs::read(images.path("image")).unwrap();
        let word = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let (reserved, table_bytes) = (word(14) * 512, word(22) * 512);
        let second = &bytes[reserved + table_bytes + 4..][..512];
        (reserved as u64, second.chunks_exact(2).filter(|entry| *entry != [0, 0]).count() as u64)
    };
    // Entries 2 to 257 of the first table are lost.
    image.write_all_at(&[0; 512], reserved + 4).unwrap();
    let disk = disk(&images.path("image"));
    let fat = open(&whole(&disk));
    same_as_tree(&images, &*fat);
    assert!(fat.damage().count() > 0);
    assert_eq!(free_ranges(&*fat), free);
    assert!(used > 10, "{used}");
    assert_eq!(fat.allocation_differences().unwrap().between_copies_bytes, used * 4 * 512);
}

#[test]
fn the_copy_of_a_boot_sector_stands_in_for_it() {
    let Some(images) = tools() else { return };
    for (options, size) in [("-F 32 -s 2 -R 64", "80000"), ("-F 32 -s 1 -S 4096 -f 1", "300000")] {
        make(&images, options, size);
        let image = File::options().write(true).open(images.path("image")).unwrap();
        // The first damage contradicts the tables; the second leaves nothing that looks like FAT.
        for damage in [&[0xf8, 0x10][..], &[0; 512]] {
            image.write_all_at(damage, if damage.len() == 2 { 13 } else { 0 }).unwrap();
            let disk = disk(&images.path("image"));
            let fat = open(&whole(&disk));
            let State::Unsure(doubts) = fat.state() else { panic!("{options}") };
            assert!(doubts.contains(&Doubt::MetadataDamaged) && fat.damage().count() > 0);
            same_as_tree(&images, &*fat);
        }
    }
}

#[test]
fn a_chain_without_an_end_is_an_error_and_no_content() {
    let Some(images) = tools() else { return };
    make(&images, "-F 16 -s 4 -f 1", "30000");
    let printed = images.script("MTOOLS_SKIP_CHECK=1 mshowfat -i image ::folder/deeper/deepest/large", [""; 0]);
    let clusters = printed_clusters(&printed);
    let image = File::options().write(true).open(images.path("image")).unwrap();
    let bytes = fs::read(images.path("image")).unwrap();
    let table = u64::from(u16::from_le_bytes([bytes[14], bytes[15]])) * 512;
    let back = u16::try_from(clusters[2]).unwrap();
    image.write_all_at(&back.to_le_bytes(), table + clusters[20] * 2).unwrap();
    let disk = disk(&images.path("image"));
    let fat = open(&whole(&disk));
    let file = tree(&*fat)["/folder/deeper/deepest/large"];
    assert!(matches!(fat.read(file, 0, &mut [0; 10]), Err(GuestError::Damaged(_))));
    assert!(matches!(fat.each_extent(file, &mut |_| ControlFlow::Continue(())), Err(GuestError::Damaged(_))));
    let runs = fat.allocation().unwrap();
    let places = clusters.iter().map(|cluster| fat.facts().block_bytes * (cluster - 2) + first_cluster_place(&*fat));
    for place in places {
        let run = runs.iter().find(|run| (run.start_bytes..run.end_bytes()).contains(&place)).unwrap();
        assert_eq!(run.class, AllocationClass::Data, "what lies behind the damage is in use");
    }
    assert_eq!(free_ranges(&*fat), []);
}

/// Tables have no checksum, and may call clusters free that a file has behind the damage.
#[test]
fn a_file_that_is_lost_leaves_nothing_free() {
    let Some(images) = tools() else { return };
    make(&images, "-F 16 -s 4 -f 1", "30000");
    let printed = images.script("MTOOLS_SKIP_CHECK=1 mshowfat -i image ::folder/deeper/deepest/large", [""; 0]);
    let clusters = printed_clusters(&printed);
    let image = File::options().read(true).write(true).open(images.path("image")).unwrap();
    let bytes = fs::read(images.path("image")).unwrap();
    let table = u64::from(u16::from_le_bytes([bytes[14], bytes[15]])) * 512;
    let disk = disk(&images.path("image"));
    let has_free = || !free_ranges(&*open(&whole(&disk))).is_empty();
    assert!(has_free());
    // The chain ends early, leads to a free cluster, and goes on in the chain of another file.
    let other = {
        let fat = open(&whole(&disk));
        let mut cluster = [0; 2];
        image.read_exact_at(&mut cluster, tree(&*fat)["/one"].0 + 26).unwrap();
        u16::from_le_bytes(cluster)
    };
    let place = table + clusters[20] * 2;
    for entry in [0xffff_u16, 0, 0xfff7, other] {
        image.write_all_at(&entry.to_le_bytes(), place).unwrap();
        assert!(!has_free(), "{entry:#x}");
    }
    let next = u16::try_from(clusters[21]).unwrap();
    image.write_all_at(&next.to_le_bytes(), place).unwrap();
    assert!(has_free());
}

#[test]
fn a_chain_that_is_longer_than_its_file_is_read_up_to_the_end() {
    let Some(images) = tools() else { return };
    make(&images, "-F 16 -s 4 -f 1", "20000");
    let disk = disk(&images.path("image"));
    let files = {
        let fat = open(&whole(&disk));
        tree(&*fat)
    };
    let image = File::options().read(true).write(true).open(images.path("image")).unwrap();
    // Files of the long chain with a length of their own: the first ones have it whole, the others are left out.
    let mut cluster = [0; 2];
    image.read_exact_at(&mut cluster, files["/folder/deeper/deepest/large"].0 + 26).unwrap();
    let copies: Vec<u64> = (1..=150).map(|at| files[&format!("/many/file-number-{at}")].0).collect();
    for place in &copies {
        image.write_all_at(&cluster, place + 26).unwrap();
        image.write_all_at(&(200_u32 << 10).to_le_bytes(), place + 28).unwrap();
    }
    image.write_all_at(&3000_u32.to_le_bytes(), copies[0] + 28).unwrap();
    let fat = open(&whole(&disk));
    let first = extents(&*fat, FileNumber(copies[0]));
    assert_eq!(first.iter().map(|extent| extent.length_bytes).sum::<u64>(), 4096);
    assert_eq!(content_of(&*fat, FileNumber(copies[0])).len(), 3000);
    let mut visited = 0;
    fat.each_file(&mut |file, _| {
        visited += u64::from(copies.contains(&file.0));
        ControlFlow::Continue(())
    })
    .unwrap();
    // The volume has about 10,000 clusters, and each file the same hundred.
    assert!((90..110).contains(&visited), "{visited}");
    let problems: Vec<_> = fat.damage().first().iter().map(|damage| damage.problem).collect();
    assert!(problems.contains(&"files have too many clusters of others; some are left out"), "{problems:?}");
}

#[test]
fn a_directory_with_two_records_is_listed_once() {
    let Some(images) = tools() else { return };
    make(&images, "-F 16 -s 4 -f 1", "30000");
    let disk = disk(&images.path("image"));
    let (folder, many) = {
        let fat = open(&whole(&disk));
        let files = tree(&*fat);
        (files["/folder"], files["/many"])
    };
    let image = File::options().read(true).write(true).open(images.path("image")).unwrap();
    let mut cluster = [0; 2];
    image.read_exact_at(&mut cluster, folder.0 + 26).unwrap();
    image.write_all_at(&cluster, many.0 + 26).unwrap();
    let fat = open(&whole(&disk));
    let count = |directory| {
        let mut count = 0;
        fat.each_entry(directory, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        count
    };
    let listed = count(folder);
    assert!(listed > 2);
    assert_eq!((fat.damage().count(), count(many), count(folder)), (0, 0, listed));
    assert_eq!(fat.look_up(many, b"deeper").unwrap(), None);
    assert!(fat.look_up(folder, b"deeper").unwrap().is_some());
    assert_eq!(fat.damage().first()[0].problem, "another directory has the same cluster");
}

#[test]
fn half_a_volume_is_unsure_and_gives_what_it_has() {
    let Some(images) = tools() else { return };
    make(&images, "-F 32 -s 1", "40960");
    images.script("truncate -s 20M image", [""; 0]);
    let disk = disk(&images.path("image"));
    let fat = open(&whole(&disk));
    assert_eq!(fat.state(), &State::Unsure(vec![Doubt::LongerThanVolume]));
    same_as_tree(&images, &*fat);
    assert_eq!(fat.allocation().unwrap().last().unwrap().end_bytes(), 20 << 20);
}

/// Linux takes the first table, whatever the boot sector says, and Windows the current one.
#[test]
fn a_volume_with_only_one_current_table_is_unsure() {
    let Some(images) = tools() else { return };
    for (tables, flags, is_unsure) in [("2", 0_u8, false), ("2", 0x81, true), ("2", 0x80, true), ("1", 0x80, false)] {
        make(&images, &format!("-F 32 -s 1 -f {tables}"), "40960");
        let image = File::options().read(true).write(true).open(images.path("image")).unwrap();
        image.write_all_at(&[flags], 40).unwrap();
        if flags == 0x81 {
            // Only the first table knows the files. The root directory is in cluster 2.
            let bytes = fs::read(images.path("image")).unwrap();
            let reserved = u64::from(u16::from_le_bytes([bytes[14], bytes[15]])) * 512;
            let length = u64::from(u32::from_le_bytes([bytes[36], bytes[37], bytes[38], bytes[39]])) * 512;
            image.write_all_at(&vec![0; usize::try_from(length).unwrap() - 12], reserved + length + 12).unwrap();
        }
        let disk = disk(&images.path("image"));
        let content = content::open(&whole(&disk), None);
        let runs = content.allocation(disk.size_bytes()).unwrap();
        let VolumeContent::FileSystem(fat) = content else { panic!() };
        let doubts = if is_unsure { State::Unsure(vec![Doubt::OneCurrentTable]) } else { State::Certain };
        assert_eq!(*fat.state(), doubts, "{tables} tables, {flags:#x}");
        assert_eq!(runs.iter().all(|run| run.class != AllocationClass::Free), is_unsure, "{tables} tables, {flags:#x}");
    }
}
