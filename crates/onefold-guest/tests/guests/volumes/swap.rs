//! Swap areas that `mkswap` makes, and what `swaplabel` and `blkid` say of them.

use onefold_guest::content::{self, VolumeContent};
use onefold_guest::filesystem::AllocationClass;

use super::{disk, whole};
use crate::fixtures::{Images, has};

#[test]
fn label_uuid_and_room_are_those_of_swaplabel_for_all_sizes_of_a_page() {
    let Some(images) = Images::new() else { return };
    if !has("mkswap") || !has("swaplabel") {
        return;
    }
    for page_bytes in [4096_u64, 8192, 16384, 65536] {
        let printed = images.script(
            r#"rm -f image; truncate -s 3M image; chmod 600 image; mkswap -q -p "$1" -L "swap $1" image 2>/dev/null
            swaplabel image"#,
            [page_bytes.to_string()],
        );
        let disk = disk(&images.path("image"));
        let VolumeContent::Swap(swap) = content::open(&whole(&disk), None) else { panic!("{page_bytes}") };
        let said = |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        assert_eq!((swap.page_bytes, swap.size_bytes, swap.is_hibernated), (page_bytes, 3 << 20, false));
        assert_eq!((swap.uuid.as_str(), String::from_utf8_lossy(&swap.label)), (said("UUID:"), said("LABEL:").into()));
        let used = swap.allocation(3 << 20).into_iter().filter(|run| run.class != AllocationClass::Free);
        assert_eq!(used.map(|run| (run.start_bytes, run.length_bytes)).collect::<Vec<_>>(), [(0, page_bytes)]);
    }
}

#[test]
fn a_hibernated_kernel_keeps_the_whole_area() {
    let Some(images) = Images::new() else { return };
    if !has("mkswap") {
        return;
    }
    for signature in ["S1SUSPEND", "S2SUSPEND", "ULSUSPEND", "LINHIB0001"] {
        let kind = images.script(
            r#"rm -f image; truncate -s 1M image; chmod 600 image; mkswap -q image
            printf '%s\0' "$1" | head -c 10 | dd of=image bs=1 seek=4086 conv=notrunc status=none
            blkid -p -o value -s TYPE image"#,
            [signature],
        );
        assert_eq!(kind, "swsuspend\n");
        let disk = disk(&images.path("image"));
        let content = content::open(&whole(&disk), None);
        assert_eq!(content.whole_because().as_deref(), Some("a system is hibernated in it"));
        let runs = content.allocation(1 << 20).unwrap();
        assert!(runs.iter().all(|run| run.class != AllocationClass::Free), "{runs:?}");
    }
}
