//! Maintenance of a common volume by a pass: content that two disks hold is added, and content that only the volume
//! refers to is dropped.
//!
//! The first search sorts only digests and lengths, so that memory is bounded. The digests of an unchanged image come
//! from the record of an earlier run; other images are examined. The second search looks up the files of contents that
//! two images hold, in the images that have them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;

use onefold_block::BLOCK_BYTES_U64;
use onefold_guest::filesystem::ExtentKind;
use onefold_substrate::{Substrate, VolumeTools};

use super::CommonError;
use super::addition::{ADDITION_PIECES, addition_of, pieces_max};
use super::contents::ContentId;
use super::generation::{Change, lock};
use super::growth::{GrowOptions, GrowReport, visit};
use super::held::{NumberKey, RepeatedContents, held_twice, number_of};
use super::plan::Addition;
use super::reading::places;
use super::sources::{ListedVolume, SourceImages, may_give};
use super::volume::{Volume, is_marked};
use crate::files::identify::{IdentifyError, PackageFile};
use crate::kept_map::LOOK_BYTES;
use crate::pace::ReadPace;
use crate::policy::{FreedUnit, SharePolicy};
use crate::scan::{ListedFile, list};
use crate::state::State;
use crate::state::files::Marks;

/// Adds content that two images hold to a volume, and drops content that no other file refers to, unless a user added
/// it.
///
/// # Errors
/// See [`CommonError`]; the volume is unchanged then. `Busy` if another process changes it.
pub fn grow<S: Substrate + VolumeTools>(
    state: &State<'_, S>,
    growing: &GrowOptions<'_>,
) -> Result<GrowReport, CommonError> {
    let substrate = state.substrate();
    let volume = lock(substrate, growing.volume)?;
    let mut marks = Marks::load(state)?;
    let (images, own) = images(state, growing, &volume, &mut marks)?;
    let removed = unreferred(substrate, &volume, growing.pace.reading())?;
    let mut report = GrowReport::default();
    let has = |id: &ContentId| volume.contents.get(id).is_some() && !removed.contains(id);
    let mut key = NumberKey::default();
    growing.random.fill(&mut key).map_err(|error| CommonError::io(&volume.path, error))?;
    let RepeatedContents { mut numbers, holders } = held_twice(state, growing, (&images, &key), &has, &mut report)?;
    report.candidates = numbers.len() as u64;
    let holders: Vec<_> = images.iter().zip(holders).filter(|(_, holds)| *holds).map(|(image, _)| image).collect();
    let (additions, givers) = found(substrate, growing, (&holders, &key), (&mut numbers, &mut report.failed))?;
    let mut sources = SourceImages::new(state, &marks, givers, volume.owner)?;
    let listed = ListedVolume { state, marks: &marks, listed: own };
    let removed: Vec<_> = removed.into_iter().collect();
    let (mut open, check) = (|image| sources.open(image), || listed.check());
    let change =
        Change { removed: &removed, additions: &additions, open: &mut open, check: &check, pace: growing.pace };
    report.changed = change.make(substrate, growing.random, &volume)?;
    Ok(report)
}

/// Returns the images that may give content, and the volume: those in the volume's domain that belong to its owner. If
/// root owns the volume, the images of all users may.
fn images<S: Substrate>(
    state: &State<'_, S>,
    growing: &GrowOptions<'_>,
    volume: &Volume<S::File>,
    marks: &mut Marks,
) -> Result<(Vec<ListedFile>, ListedFile), CommonError> {
    let mut listed = list(state, marks, &growing.selection)?;
    let replaced = || CommonError::Replaced { path: volume.path.clone() };
    let own = listed.iter().position(|file| file.stat.handle == volume.handle).ok_or_else(replaced)?;
    let own = listed.swap_remove(own);
    listed.retain(|file| {
        file.domain == own.domain
            && may_give(file.stat.owner, volume.owner)
            && !is_marked(state.substrate(), &file.path)
    });
    listed.sort_by_key(|file| file.number);
    Ok((listed, own))
}

/// Returns the contents that no user added and no other file refers to.
fn unreferred<S: Substrate>(
    substrate: &S,
    volume: &Volume<S::File>,
    pace: ReadPace<'_>,
) -> Result<HashSet<ContentId>, CommonError> {
    let shared = shared_ranges(substrate, volume, pace)?;
    let own = own_ranges(substrate, volume, pace)?;
    let found: Vec<_> = volume.contents.iter().filter(|(_, content)| !content.is_added).collect();
    let paths = found.iter().filter_map(|(id, content)| Some((content.paths.first()?.as_str(), id.1)));
    let places = places(substrate, &volume.file, &volume.path, paths, ExtentKind::Written)?;
    let unreferred = found.iter().zip(places).filter(|(_, places)| {
        // If a content is damaged, nothing can share with it.
        places.iter().flatten().all(|place| {
            let [begin, count] = [place.block, place.count].map(|blocks| blocks.saturating_mul(BLOCK_BYTES_U64));
            let end = begin.saturating_add(count);
            within(&shared, begin, end).all(|(begin, end)| {
                within(&own, begin, end).map(|(begin, end)| end - begin).fold(0, u64::saturating_add) == end - begin
            })
        })
    });
    Ok(unreferred.map(|((id, _), _)| **id).collect())
}

/// A range of a file, in bytes: its begin and its end.
type ByteRange = (u64, u64);

/// Returns the parts of some ranges that lie within one range. The ranges are disjoint and in order.
fn within(ranges: &[ByteRange], begin: u64, end: u64) -> impl Iterator<Item = ByteRange> {
    let first = ranges.partition_point(|(_, range_end)| *range_end <= begin);
    let rest = ranges.get(first..).unwrap_or_default().iter().take_while(move |(range_begin, _)| *range_begin < end);
    rest.map(move |(range_begin, range_end)| ((*range_begin).max(begin), (*range_end).min(end)))
}

/// Returns the ranges of a volume that the host's map shows as shared. Reads the map within the limit on reads.
fn shared_ranges<S: Substrate>(
    substrate: &S,
    volume: &Volume<S::File>,
    pace: ReadPace<'_>,
) -> Result<Vec<ByteRange>, CommonError> {
    let (mut shared, mut from) = (Vec::new(), 0);
    loop {
        let extents = substrate.extents(&volume.file, from).map_err(|error| CommonError::io(&volume.path, error))?;
        pace.read((extents.len() as u64).saturating_mul(LOOK_BYTES))?;
        let Some(last) = extents.last().filter(|last| last.end() > from) else { return Ok(shared) };
        from = last.end();
        shared.extend(extents.iter().filter(|extent| extent.is_shared).map(|extent| (extent.offset, extent.end())));
    }
}

/// Returns the ranges of a volume in whole extents that only the volume refers to. Btrfs shows an extent as shared even
/// if the volume alone refers to it several times. Only root may ask for the references; for other users, everything
/// that the map shows as shared is kept. Reads within the limit on reads.
fn own_ranges<S: Substrate>(
    substrate: &S,
    volume: &Volume<S::File>,
    pace: ReadPace<'_>,
) -> Result<Vec<ByteRange>, CommonError> {
    let failed = |error| CommonError::io(&volume.path, error);
    let (mut own, mut from) = (Vec::new(), 0);
    if SharePolicy::of(substrate.abilities()).freed != FreedUnit::Extent {
        return Ok(own);
    }
    let mut known = HashMap::new();
    loop {
        let slices = match substrate.slices(&volume.file, from) {
            Err(error) if is_untold(&error) => return Ok(own),
            slices => slices.map_err(failed)?,
        };
        pace.read((slices.len() as u64).saturating_mul(LOOK_BYTES))?;
        let Some(last) = slices.last().filter(|last| last.end() > from) else { return Ok(own) };
        from = last.end();
        for slice in &slices {
            let is_own = match known.get(&slice.extent) {
                Some(is_own) => *is_own,
                None => {
                    pace.read(LOOK_BYTES)?;
                    let is_own = match substrate.references(slice.extent) {
                        Err(error) if is_untold(&error) => false,
                        // No process can open a file without a handle any more.
                        references => {
                            let references = references.map_err(failed)?;
                            references.iter().filter_map(|one| one.handle.as_ref()).all(|of| *of == volume.handle)
                        }
                    };
                    known.insert(slice.extent, is_own);
                    is_own
                }
            };
            if is_own {
                own.push((slice.offset, slice.end()));
            }
        }
    }
}

/// Returns whether an error says that this user may not have the answer, or that there is none.
fn is_untold(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported)
}

/// Returns a file for each wanted content that an image has in whole blocks, and the images that give content. Images
/// that cannot be examined are added to `failed`.
fn found<'l, S: Substrate>(
    substrate: &S,
    growing: &GrowOptions<'_>,
    (images, key): (&[&'l ListedFile], &NumberKey),
    (wanted, failed): (&mut HashSet<u64>, &mut Vec<(PathBuf, String)>),
) -> Result<(Vec<Addition>, Vec<&'l ListedFile>), CommonError> {
    let (mut additions, mut givers) = (Vec::new(), Vec::new());
    let mut pieces_left = pieces_max(growing.memory_bytes);
    for listed in images {
        if wanted.is_empty() {
            break;
        }
        let mut of_image = Vec::new();
        let looked_for = &*wanted;
        let mut wants = |digest, length| looked_for.contains(&number_of(key, &(digest, length)));
        let mut take = |packaged: &PackageFile<'_>| {
            let left = pieces_left.checked_sub(packaged.pieces.len() + ADDITION_PIECES);
            if let Some(left) = left.filter(|_| !packaged.pieces.is_empty()) {
                pieces_left = left;
                of_image.push(addition_of(packaged, givers.len(), false));
            }
        };
        match visit(substrate, growing, listed, &mut wants, &mut take) {
            Ok(()) if !of_image.is_empty() => {
                givers.push(*listed);
                of_image.iter().for_each(|addition: &Addition| {
                    wanted.remove(&number_of(key, &addition.id));
                });
                additions.append(&mut of_image);
            }
            Err(IdentifyError::Stopped(error)) => return Err(error.into()),
            Ok(()) => {}
            // One that is known by what an earlier run kept of it is visited for the first time. Of others the first
            // visit may have reported what is wrong.
            Err(error) if failed.iter().all(|(path, _)| *path != listed.path) => {
                failed.push((listed.path.clone(), error.to_string()));
            }
            Err(_) => {}
        }
    }
    Ok((additions, givers))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::path::Path;
    use std::time::Duration;

    use onefold_block::Clock;
    use onefold_block::clock::ManualClock;
    use onefold_block::random::SeededRandom;
    use onefold_substrate::{Files, UserNo};
    use onefold_testing::simulated::{Habits, SimulatedFileSystem, SimulationOptions};

    use super::super::contents::Contents;
    use super::*;
    use crate::domain::Domain;
    use crate::format::FileNo;
    use crate::pace::{Limits, Pace, UncountedCpu, Wish};
    use crate::selection::Selection;
    use crate::state::StateError;

    /// What is kept of an image names its contents, but the image itself cannot be read.
    #[test]
    fn an_image_that_cannot_be_visited_is_reported_once() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let substrate = file_system.observe().substrate;
        let listed = ["first", "second"].map(|name| {
            // Simulated files have no reader.
            let file = substrate.create(Path::new(name)).unwrap();
            let (path, stat) = (PathBuf::from(name), substrate.stat(&file).unwrap());
            ListedFile { number: FileNo(1), path, stat, domain: Domain::Owner(0) }
        });
        let (random, pace) = (SeededRandom::new(1), Pace::unlimited());
        let growing = GrowOptions {
            volume: Path::new("volume"),
            selection: Selection::all(),
            memory_bytes: 1 << 20,
            temporary_folder: Path::new("/var/tmp"),
            random: &random,
            pace: &pace,
        };
        let mut failed = vec![(PathBuf::from("first"), "as the first visit said".to_owned())];
        let images: Vec<_> = listed.iter().collect();
        let wanted = &mut HashSet::from([7]);
        let (additions, _) =
            found(&substrate, &growing, (&images, &NumberKey::default()), (wanted, &mut failed)).unwrap();
        assert!(additions.is_empty());
        assert_eq!(failed.iter().map(|(path, _)| path.to_str().unwrap()).collect::<Vec<_>>(), ["first", "second"]);
    }

    /// Regression: the maps of the volume were read at once, whatever the limit.
    #[test]
    fn the_maps_of_a_volume_are_read_within_the_limit_on_reads() {
        const EXTENTS: u64 = 4000;
        let habits = Habits { frees_whole_extents: true, ..Habits::default() };
        let options = SimulationOptions { images: 0, total_blocks: 1 << 14, habits, ..SimulationOptions::default() };
        let file_system = SimulatedFileSystem::new(&options);
        let substrate = file_system.observe().substrate;
        let path = PathBuf::from("volume");
        let file = substrate.create(&path).unwrap();
        for block in 0..EXTENTS {
            substrate.write_at(&file, 2 * block * BLOCK_BYTES_U64, &[7]).unwrap();
        }
        let handle = substrate.stat(&file).unwrap().handle;
        let volume = Volume { file, path, handle, owner: UserNo::ROOT, contents: Contents::default() };
        for ranges in [shared_ranges, own_ranges] {
            let clock = ManualClock::starting_at(1000);
            let rate = NonZeroU64::new(EXTENTS * LOOK_BYTES / 20);
            let limits = Limits { read_bytes_per_second: rate, ..Limits::default() };
            let pace = Pace::new(limits, &clock, &UncountedCpu, &|| Wish::GoOn);
            let began = clock.monotonic();
            ranges(&substrate, &volume, pace.reading()).unwrap();
            // The next read waits until the last part of the map is paid for.
            pace.reading().read(1).unwrap();
            let took = clock.monotonic() - began;
            assert!(took > Duration::from_secs(15), "{took:?}");
            let ended = pace.stopped_by(&|| true);
            let outcome = ranges(&substrate, &volume, ended.reading());
            assert!(matches!(outcome, Err(CommonError::State(StateError::Interrupted))), "{outcome:?}");
        }
    }

    #[test]
    fn ranges_are_cut_to_what_lies_within() {
        let ranges = [(0, 4), (8, 12), (20, 30)];
        let of = |begin, end| within(&ranges, begin, end).collect::<Vec<_>>();
        assert_eq!(of(2, 25), [(2, 4), (8, 12), (20, 25)]);
        assert_eq!(of(4, 8), []);
        assert_eq!(of(9, 10), [(9, 10)]);
        assert_eq!(of(30, 40), []);
    }
}
