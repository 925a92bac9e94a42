//! Deeds of actors: capture, remove, read and collect. Those of repairers are beside.

use std::sync::Arc;
use std::time::Duration;

use onefold_block::random::{Random, SeededRandom};

use super::oracle::Violation;
use super::world::{Life, Outset, World};
use super::{LIMITS, Mutant};
use crate::archive::tests::collect::options;
use crate::archive::tests::try_add_all;
use crate::archive::{Archive, ArchiveError, COLLECT_BYTES_MIN, CollectOptions, ImageRecord, WantedUnit, Writer};
use crate::store::Store;

/// Most times that a capture begins again after packs that it relies on went.
const AGAIN_MAX: u32 = 20;
/// Most deeds of one life.
const DEEDS_MAX: u64 = 12;

/// Label of writers. They take each other for ended, rightly or not. A collector has another: nobody takes its packs.
pub(super) const HOST: &str = "host";

/// One life of an actor.
pub(super) struct Actor<'w> {
    pub(super) world: &'w Arc<World>,
    pub(super) life: Life,
    pub(super) random: SeededRandom,
    pub(super) archive: Archive,
    mutant: Option<Mutant>,
}

/// An actor's most frequent deed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Writer,
    Collector,
    Reader,
    Repairer,
}

/// Lives one life: opens the archive, and does a few deeds with it.
pub(super) fn live(world: &Arc<World>, actor: usize, mutant: Option<Mutant>) {
    let (seed, skew) = {
        let sea = world.sea.lock();
        let skew = i64::try_from(sea.random.below(2 * world.options.skew_max + 1)).unwrap();
        (sea.random.next_u64(), skew - i64::try_from(world.options.skew_max).unwrap())
    };
    let role = [Role::Writer, Role::Collector, Role::Reader, Role::Repairer][actor % 4];
    let life = Life::new(world, actor, matches!(role, Role::Collector | Role::Repairer), skew);
    // An actor that does not get that far lives again.
    let Ok(mut archive) = Archive::open(Arc::new(life.clone())) else { return };
    archive.limits = LIMITS;
    let random = SeededRandom::new(seed);
    let actor = Actor { world, life, random, archive, mutant };
    for _ in 0..=actor.random.below(DEEDS_MAX) {
        if actor.life.is_dead() {
            break;
        }
        match (role, actor.random.below(10)) {
            (Role::Reader, 0..9) | (Role::Writer | Role::Collector | Role::Repairer, 0) => actor.read(),
            (Role::Collector, _) => actor.collect(),
            (Role::Repairer, 1..4) => actor.check(),
            (Role::Repairer, 4..9) => actor.repair(),
            (Role::Reader, _) | (Role::Writer, 1..4) => actor.remove(),
            (Role::Writer | Role::Repairer, _) => actor.capture(),
        }
    }
}

impl Actor<'_> {
    /// Chooses one of the images that the actor knows.
    fn choose(&self) -> Option<ImageRecord> {
        if self.random.below(6) == 0 {
            // Even what it knows from long ago is to be read, or reported as removed.
            let _ = self.archive.refresh();
        }
        let images = self.archive.images();
        let number = usize::try_from(self.random.below(images.len() as u64)).unwrap();
        images.into_iter().nth(number)
    }

    /// Captures one to three images with one writer.
    fn capture(&self) {
        let Ok(mut writer) = self.archive.writer(&self.life, &self.random, HOST) else { return };
        if self.random.below(2) == 0 && !self.reuse(&mut writer) {
            return;
        }
        for _ in 0..=self.random.below(3) {
            if self.life.is_dead() || !self.capture_one(&mut writer) {
                break;
            }
        }
    }

    /// Lets a writer use packs of others that it takes for ended. Returns whether it is of further use.
    fn reuse(&self, writer: &mut Writer<'_>) -> bool {
        let outset = self.life.outset();
        match writer.reuse(&|host| host == HOST && self.random.below(2) == 0) {
            Ok(units) => {
                self.world.sea.lock().counters.reused += units;
                true
            }
            Err(ArchiveError::GivenUp { .. }) => false,
            Err(error) => {
                self.failed_where(outset, "a reuse", &error);
                false
            }
        }
    }

    /// Reports a deed that fails though nothing is wrong.
    pub(super) fn failed_where(&self, outset: Outset, what: &str, error: &ArchiveError) {
        if !self.life.is_dead() && self.life.is_calm(outset) {
            self.world.check(Err(format!("{what} fails without a fault: {error:?}")));
        }
    }

    /// Captures an image, and tells the oracle what it was told. Returns whether the writer is of further use.
    fn capture_one(&self, writer: &mut Writer<'_>) -> bool {
        let many = 2 + self.random.below(6);
        let mut contents: Vec<Vec<u8>> =
            self.world.common.iter().filter(|_| self.random.below(many) == 0).cloned().collect();
        let mut own = vec![0; 512];
        self.random.fill(&mut own[..16]).unwrap();
        contents.push(own);
        let name = ["web", "mail"][usize::try_from(self.random.below(2)).unwrap()];
        let outset = self.life.outset();
        let mut chunk = None;
        for _ in 0..AGAIN_MAX {
            let draft = match try_add_all(&self.archive, writer, name, &contents) {
                Ok(draft) => draft,
                Err(error) => return self.failed(writer, outset, chunk, &error),
            };
            chunk = Some(draft.chunks[0]);
            self.world.sea.lock().oracle.expect(draft.chunks[0], &contents);
            match writer.commit(draft.clone()) {
                Ok((image, _)) => {
                    let acknowledged = self.world.sea.lock().oracle.acknowledged(&image, draft.chunks[0]);
                    self.world.check(acknowledged);
                    self.world.sea.lock().counters.captures += 1;
                    return true;
                }
                Err(ArchiveError::Retired(_)) => self.world.sea.lock().counters.again += 1,
                Err(ArchiveError::Store(_)) if !self.life.is_dead() && self.random.below(2) == 0 => {}
                Err(error) => return self.failed(writer, outset, chunk, &error),
            }
        }
        self.failed(writer, outset, chunk, &ArchiveError::Retired(Vec::new()))
    }

    /// Tells the oracle of a capture that failed.
    fn failed(
        &self,
        writer: &Writer<'_>,
        outset: Outset,
        chunk: Option<crate::UnitName>,
        error: &ArchiveError,
    ) -> bool {
        if self.mutant == Some(Mutant::WriterCleansUp) {
            self.delete_packs(writer);
        }
        if self.life.is_dead() {
            return false;
        }
        self.world.sea.lock().counters.failures += 1;
        let is_expected = matches!(error, ArchiveError::GivenUp { .. } | ArchiveError::Retired(_));
        if !is_expected {
            self.failed_where(outset, "a capture", error);
        }
        if let Some(chunk) = chunk.filter(|_| !matches!(error, ArchiveError::Doubtful(_))) {
            let failed = self.world.sea.lock().oracle.failed(chunk);
            self.world.check(failed);
        }
        false
    }

    /// Deletes the packs of a writer, as a careless one might that wants to leave nothing behind.
    fn delete_packs(&self, writer: &Writer<'_>) {
        let prefix = format!("packs/{}/", writer.id());
        for listed in self.life.list(&prefix, None).unwrap_or_default() {
            let _ = self.life.delete(&listed.name);
        }
    }

    fn remove(&self) {
        let Some(ImageRecord { image, .. }) = self.choose() else { return };
        let outset = self.life.outset();
        let removed = self.archive.remove(&image, &self.life, &self.random);
        let is_calm = self.life.is_calm(outset);
        let mut sea = self.world.sea.lock();
        let is_there = sea.oracle.is_there(&image);
        let result = match removed {
            _ if self.life.is_dead() => Ok(()),
            Ok(()) | Err(ArchiveError::NoImage { .. }) if is_there => Err(format!("{image} was removed, and exists")),
            Ok(()) => {
                sea.counters.removals += 1;
                Ok(())
            }
            Err(ArchiveError::NoImage { .. }) => Ok(()),
            Err(error) if is_calm => Err(format!("a removal fails without a fault: {error:?}")),
            Err(_) => Ok(()),
        };
        drop(sea);
        self.world.check(result);
    }

    /// Reads an image: it is as it was captured, or was removed.
    fn read(&self) {
        let Some(record) = self.choose() else { return };
        let outset = self.life.outset();
        let read = self.contents(&record).map_err(|error| self.archive.of_image(&record.image, error));
        let is_calm = self.life.is_calm(outset);
        let mut sea = self.world.sea.lock();
        let is_there = sea.oracle.is_there(&record.image);
        let result = match read {
            _ if self.life.is_dead() => Ok(()),
            Ok(found) if Some(&found[..]) == sea.oracle.contents(&record.image) => {
                sea.counters.reads += 1;
                Ok(())
            }
            Ok(_) => Err(format!("{} reads otherwise than it was captured", record.image)),
            Err(ArchiveError::Removed { .. }) if !is_there => {
                sea.counters.reads_of_removed += 1;
                Ok(())
            }
            Err(error) if is_calm => {
                Err(format!("{}, which exists: {is_there}, cannot be read: {error:?}", record.image))
            }
            Err(_) => Ok(()),
        };
        drop(sea);
        self.world.check(result);
    }

    fn contents(&self, record: &ImageRecord) -> Result<Vec<Vec<u8>>, ArchiveError> {
        let mut contents = Vec::new();
        for chunk in self.archive.manifest(record)?.chunks {
            let header = self.archive.header(&chunk)?;
            let wanted = header.units.iter();
            let wanted = wanted.map(|unit| WantedUnit { name: unit.name, plain_bytes: Some(unit.plain_bytes) });
            let wanted: Vec<WantedUnit> = wanted.collect();
            let mut units = vec![Vec::new(); wanted.len()];
            self.archive.read_units::<ArchiveError>(&wanted, &mut |index, plain| {
                units[index] = plain.to_vec();
                Ok(())
            })?;
            contents.extend(units);
        }
        Ok(contents)
    }

    fn collect(&self) {
        let seconds =
            |of: &[u64]| Duration::from_secs(of[usize::try_from(self.random.below(of.len() as u64)).unwrap()]);
        let options = CollectOptions {
            delay: seconds(&[0, 0, 600]),
            silence: seconds(&[0, 600, 86_400]),
            needed_percent: u8::try_from(50 + self.random.below(51)).unwrap(),
            level: (self.random.below(4) == 0).then_some(1),
            memory_bytes: COLLECT_BYTES_MIN,
            ..options()
        };
        let outset = self.life.outset();
        if self.mutant == Some(Mutant::EntriesDeleted) {
            for listed in self.life.list("ledger/", None).unwrap_or_default().into_iter().take(3) {
                let _ = self.life.delete(&listed.name);
            }
        }
        let result = match self.archive.collect(&options, &self.life, &self.random, &mut |_, _| ()) {
            Ok(report) => {
                self.world.sea.lock().counters.add(&report);
                Ok(())
            }
            // Another collector may have given this one up.
            Err(ArchiveError::GivenUp { .. }) => Ok(()),
            Err(error) => {
                self.failed_where(outset, "a collection", &error);
                Ok(())
            }
        };
        self.world.check(result);
    }
}

/// Collects what is left, with a store that does not fail.
pub(super) fn collect_all(archive: &Archive, life: &Life, random: &SeededRandom) -> Result<(), Violation> {
    // The first one gives writers up and drops objects, and the next one may find that packs became spare.
    for _ in 0..3 {
        collect_once(archive, life, random).map_err(|error| format!("the last collection: {error:?}"))?;
    }
    Ok(())
}

/// Collects without a delay.
pub(super) fn collect_once(archive: &Archive, life: &Life, random: &SeededRandom) -> Result<(), ArchiveError> {
    let options = CollectOptions { delay: Duration::ZERO, silence: Duration::ZERO, ..options() };
    archive.collect(&options, life, random, &mut |_, _| ()).map(|_| ())
}
