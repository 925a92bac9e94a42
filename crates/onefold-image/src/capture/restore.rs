//! Restoring lost units from a disk that still has them.

use std::collections::HashSet;

use onefold_disk::{CachedDisk, OnProgress};
use onefold_guest::budget::Budget;
use onefold_guest::guest::Guest;

use super::collector::AddedUnits;
use super::recent::RecentUnits;
use super::source::{PolledDisk, Source};
use super::unread::ReadDisk;
use super::{CaptureError, CaptureOptions, Memory, Pass};
use crate::UnitName;
use crate::archive::{Archive, Writer};

/// Reads a disk as a capture does, and adds those of the units in `wanted` to a writer that the disk has, wherever they
/// are on it. Headers of chunks come back if the disk is still as it was captured. Adds no image.
///
/// # Errors
/// As [`super::capture`]. A source that changes meanwhile is no error: every unit has the name of the bytes that were
/// read.
pub fn restore(
    archive: &Archive,
    writer: &mut Writer<'_>,
    wanted: &HashSet<UnitName>,
    source: Source<'_>,
    options: &CaptureOptions<'_>,
    progress: OnProgress<'_>,
) -> Result<(), CaptureError> {
    let polled = PolledDisk::new(source.disk, progress);
    let (units, cut) = (archive.descriptor().units, options.cut());
    let memory = Memory::of(&cut, units.unit_bytes() as usize);
    archive.limit_tables(memory.tables_bytes);
    let cached = CachedDisk::new(&polled, memory.cache_bytes);
    let guest = Guest::open(&cached)?.with_budget(Budget::new(memory.maps_bytes));
    let unread = cut.unread(&guest)?;
    let read = ReadDisk::new(source.disk, &unread);
    let source = Source { disk: &read, ..source };
    let recent = RecentUnits::new(memory.recent_bytes);
    writer.limit_packs(memory.pack_bytes as u64);
    let restored = cut.plan_once(units, &guest, &polled, &unread, &memory).and_then(|(found, plan)| {
        let only = Some(wanted);
        let pass = Pass { archive, source, options, memory: &memory, recent: &recent, only, found: &found, progress };
        pass.run(writer, plan, &mut AddedUnits::default())
    });
    match restored {
        Err(_) if polled.is_stopped() => Err(CaptureError::Stopped),
        restored => restored.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Arc;

    use onefold_block::Clock;
    use onefold_block::clock::ManualClock;
    use onefold_block::random::{Random, SeededRandom};

    use super::*;
    use crate::ImageName;
    use crate::archive::{CheckOptions, RepairOptions};
    use crate::capture::{Scope, capture};
    use crate::compress::LEVEL;
    use crate::format::descriptor::UnitKind;
    use crate::store::{MemoryStore, Store};
    use crate::testing::MemoryDisk;

    /// All packs are lost. The disk has changed since in one place, and only that is lost for good.
    #[test]
    fn lost_units_and_headers_come_back_from_a_disk() {
        let (random, clock) = (SeededRandom::new(1), ManualClock::starting_at(3));
        let store = Arc::new(MemoryStore::default());
        let units = UnitKind::Fixed { unit_bytes: 32 << 10 };
        let shared = || Arc::clone(&store) as Arc<dyn Store>;
        let archive = Archive::create_with_regions(shared(), units, 1 << 20, &random).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = CaptureOptions {
            name: ImageName::new("web").unwrap(),
            began: clock.now(),
            scope: Scope::Allocated,
            exact: false,
            threads: 3,
            memory_bytes: 0,
            level: LEVEL,
            folder: folder.path(),
        };
        let mut disk = MemoryDisk::noise(6 << 20, &random);
        disk.bytes[2 << 20..3 << 20].fill(0);
        let mut writer = archive.writer(&clock, &random, "host").unwrap();
        let unchanged = || Ok(false);
        let proceed = |_| ControlFlow::Continue(());
        capture(&archive, &mut writer, Source { disk: &disk, has_changed: &unchanged }, &options, &proceed).unwrap();
        drop(writer);
        for name in store.objects().keys().filter(|name| name.as_str().starts_with("packs/")) {
            store.delete(name).unwrap();
        }
        let before = disk.clone();
        random.fill(&mut disk.bytes[5 << 20..(5 << 20) + 512]).unwrap();
        let archive = Archive::open(shared()).unwrap();
        let repair = |disk: &MemoryDisk| {
            let options_of_repair =
                RepairOptions { clock: &clock, random: &random, host: "host", dry_run: false, accept_cut: false };
            let source = Source { disk, has_changed: &unchanged };
            let mut heal = |writer: &mut Writer<'_>, wanted: &HashSet<UnitName>| {
                restore(&archive, writer, wanted, source, &options, &proceed)
            };
            archive.repair(options_of_repair, Some(&mut heal), &mut |_, _| ()).unwrap()
        };
        let report = repair(&disk);
        // The region with the change has another header now, and so none of its units is known to be lost.
        assert_eq!(report.units_lost - report.units_healed, 1, "{report:?}");
        let report = repair(&before);
        assert_eq!(report.left.damages, []);
        let whole = archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap();
        assert_eq!((whole.damages, whole.copies), (Vec::new(), 0));
        let manifest = archive.manifest(&archive.images()[0]).unwrap();
        let mut installed = vec![0; before.bytes.len()];
        crate::testing::install(&archive, &manifest, &mut installed);
        assert!(installed == before.bytes);
    }
}
