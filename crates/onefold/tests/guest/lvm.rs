//! A disk as installers make it: `/boot` on a partition of its own, and XFS and swap on logical volumes of LVM2. LVM2's
//! own tools make the group without the kernel's driver, and say where its extents lie.

use crate::*;

/// Makes `disk` with a partition of ext4 and a group of two physical volumes; writes `root` and `swap` to the places of
/// their extents. Its arguments are the prototypes of the two file systems.
const MAKE: &str = r#"set -euo pipefail
export LC_ALL=C
cd "$0"
truncate -s 512M disk
sfdisk -q disk <<<$'label: gpt\nsize=16M, type=linux\nsize=440M, type=E6D6D379-F507-44C2-A23C-238F2A3DF928\nsize=48M, type=E6D6D379-F507-44C2-A23C-238F2A3DF928'
mke2fs -q -F -t ext4 -L boot -E offset=$((1 << 20)) -d boot disk 16M
one=$(losetup --find --show --offset $((17 << 20)) --sizelimit 440M disk)
two=$(losetup --find --show --offset $((457 << 20)) --sizelimit 48M disk)
trap 'losetup -d "$one" "$two"' EXIT
mkdir lock
filter="[\"a|^$one\$|\", \"a|^$two\$|\", \"r|.*|\"]"
config="devices { use_devicesfile=0 scan_lvs=0 external_device_info_source=\"none\" filter=$filter global_filter=$filter }
    activation { udev_sync=0 udev_rules=0 monitoring=0 } backup { backup=0 archive=0 }
    global { event_activation=0 locking_dir=\"$PWD/lock\" }"
lvm() { local tool=$1; shift; LVM_SUPPRESS_FD_WARNINGS=1 "$tool" --config "$config" "$@" 2>messages || { cat messages >&2; return 1; }; }
new() { lvm lvcreate -q -an -Zn -Wn --driverloaded n "$@" >/dev/null; }
lvm pvcreate -q "$one" >/dev/null
lvm pvcreate -q --metadatacopies 2 "$two" >/dev/null
lvm vgcreate -q -s 4M vg "$one" "$two" >/dev/null
new -L 304M -n root vg "$one"
new -L 20M -n swap vg "$two"
lvm lvextend -q --driverloaded n -L 320M vg/root "$two" >/dev/null
truncate -s 320M root
mkfs.xfs -q -L root -p proto root
truncate -s 20M swap
mkswap -q swap
lvm pvs --noheadings --units b --nosuffix -o pv_name,pe_start | while read -r device start; do
    if [[ $device == "$one" ]]; then echo $(((17 << 20) + start)) >start-1; else echo $(((457 << 20) + start)) >start-2; fi
done
lvm lvs --noheadings --driverloaded n --segments -o lv_name,seg_start_pe,seg_pe_ranges | sed "s|$one|1|; s|$two|2|" |
    while IFS=' :-' read -r name from device first last; do
        dd if="$name" of=disk bs=1M skip=$((from * 4)) seek=$(($(<"start-$device") + first * (4 << 20))) \
            count=$(((last - first + 1) * 4)) oflag=seek_bytes conv=notrunc,sparse status=none
    done
"#;

struct Disk {
    _folder: Folder,
    path: PathBuf,
}

impl Disk {
    /// Returns `None`, and says so, where the tools are missing or only root could make it.
    fn new() -> Option<Disk> {
        let tools = [("mkfs.xfs", "xfsprogs"), ("pvcreate", "lvm2"), ("sfdisk", "fdisk"), ("mke2fs", "e2fsprogs")];
        if !tools.into_iter().all(|(tool, package)| has(tool, package)) {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can make loop devices");
            return None;
        }
        let folder = Folder::new();
        let put = |name: &str, content: &str| fs::write(folder.path(name), content).unwrap();
        fs::create_dir(folder.path("boot")).unwrap();
        put("boot/vmlinuz-6.1.0-test", "a kernel");
        put("os-release", "ID=test\nPRETTY_NAME=\"A test\"\n");
        put(
            "fstab",
            "/dev/mapper/vg-root / xfs defaults 0 0\nLABEL=boot /boot ext4 defaults 0 2\n/dev/vg/swap none swap sw\n",
        );
        let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        fs::write(folder.path("big"), content).unwrap();
        let file = |name: &str| format!("{name} ---644 0 0 {}\n", text(&folder.path(name)));
        let proto = format!(
            "/\n0 0\nd--755 0 0\nboot d--755 0 0\n$\nvar d--755 0 0\n{}$\netc d--755 0 0\n{}{}$\n$\n",
            file("big"),
            file("os-release"),
            file("fstab")
        );
        put("proto", &proto);
        run("bash", &["-c", MAKE, text(&folder.path(""))]);
        Some(Disk { path: folder.path("disk"), _folder: folder })
    }

    fn guest(&self, verb: &str, paths: &[&str]) -> Run {
        let mut all = vec![self.path.as_path()];
        all.extend(paths.iter().map(Path::new));
        onefold(&format!("guest {verb}"), &all)
    }

    fn volume(&self, name: &str) -> Value {
        let info = self.guest("info --json", &[]).json();
        let volumes = info["images"][0]["volumes"].as_array().unwrap().clone();
        volumes.into_iter().find(|volume| volume["volume"] == name).unwrap()
    }
}

#[test]
fn a_system_on_logical_volumes_is_read_from_its_table_of_mounts_to_the_owner_of_a_byte() {
    let Some(disk) = Disk::new() else { return };
    let info = disk.guest("info", &[]).done().out;
    for line in ["/ is volume vg/root", "/boot is partition 1", "system: A test", "kernels: 6.1.0-test"] {
        assert!(info.contains(line), "{info}");
    }
    let root = disk.volume("volume vg/root");
    assert_eq!(
        (&root["holds"], &root["state"], &root["counts_whole_because"]),
        (&"xfs".into(), &"certain".into(), &Value::Null)
    );
    assert_eq!(root["ranges"].as_array().map(Vec::len), Some(2));
    assert_eq!(disk.volume("partition 3")["counts_whole_because"], Value::Null);
    assert_eq!(lines(&disk.guest("ls", &["/"]).done()), ["boot", "etc", "var"]);
    assert_eq!(disk.guest("cat", &["/boot/vmlinuz-6.1.0-test"]).done().out, "a kernel");

    let map = disk.guest("map --json", &["/var/big"]).done().json();
    assert_eq!(map["volume"], "volume vg/root");
    let image = fs::File::open(&disk.path).unwrap();
    let extent = &map["extents"][0];
    let (place, offset) = (extent["place"].as_u64().unwrap(), extent["offset"].as_u64().unwrap());
    let mut there = [0; 4096];
    image.read_exact_at(&mut there, place).unwrap();
    assert!(there.iter().zip(offset..).all(|(byte, at)| u64::from(*byte) == at % 251), "{extent}");
    let owner = &disk.guest("who --json", &[&place.to_string()]).done().json()["owners"][0];
    assert_eq!(owner["files"][0]["names"][0]["path"], "/var/big", "{owner}");

    let copy = Command::new(env!("CARGO_BIN_EXE_onefold"))
        .args(["guest", "cat", "--volume", "vg/root", text(&disk.path), "/var/big"])
        .output();
    assert!(copy.unwrap().stdout == fs::read(disk.path.with_file_name("big")).unwrap());
}

/// A second copy of the metadata stands in for a damaged one. It may be an old one, so that no byte is free.
#[test]
fn a_group_with_a_damaged_copy_of_its_metadata_says_why_its_volumes_count_whole() {
    let Some(disk) = Disk::new() else { return };
    let image = OpenOptions::new().write(true).open(&disk.path).unwrap();
    image.write_all_at(&[0xee; 8192], (457 << 20) + 4096).unwrap();
    let why = "a copy of its metadata on its disk";
    for name in ["volume vg/root", "volume vg/swap", "partition 2", "partition 3"] {
        let volume = disk.volume(name);
        let reason = volume["counts_whole_because"].as_str().unwrap();
        assert!(reason.contains("its group vg: ") && reason.contains(why), "{volume}");
        assert_eq!((&volume["state"], &volume["free_bytes"]), (&"unsure".into(), &0.into()), "{volume}");
    }
    let info = disk.guest("info", &[]);
    assert!(info.code == DAMAGE && info.out.contains(&format!("group vg: {why}")), "{info:?}");
    let listed = disk.guest("ls", &["/etc"]);
    assert_eq!((listed.code, lines(&listed)), (DAMAGE, vec!["fstab", "os-release"]));
    assert!(listed.err.contains(&format!("group vg is unsure: {why}")), "{listed:?}");

    image.write_all_at(&[0; 2048], 457 << 20).unwrap();
    let listed = disk.guest("ls --partition 1", &["/"]).done();
    assert!(!listed.err.contains("group vg"), "another volume's group is of no interest: {listed:?}");
    let info = disk.guest("info", &[]);
    assert!(info.out.contains("is missing") && info.err.contains("group vg is not read"), "{info:?}");
}

/// The corpus has the files of a whole Debian on ext4, and on XFS on LVM2 beside a `/boot` of its own.
#[test]
fn a_whole_debian_on_logical_volumes_has_the_files_that_it_was_filled_with() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/corpus/cache");
    let [plain, logical] = ["base", "lvm"].map(|kind| PathBuf::from(format!("{corpus}/debian-12-{kind}.raw")));
    if !plain.exists() || !logical.exists() {
        eprintln!("SKIPPED: `make corpus SETS=lvm` builds the images");
        return;
    }
    let differing = onefold("guest diff --content", &[&plain, &logical]).done();
    let found = lines(&differing);
    assert!(found.len() == 1 && found[0].starts_with("changed: /etc/fstab (size_bytes "), "{found:?}");
}
