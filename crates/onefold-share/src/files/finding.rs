//! The search of a run: examines all images, and joins their candidates.
//!
//! Rows are made for one image at a time, in the order of the image numbers. Meanwhile, threads may examine the next
//! images.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::thread;

use onefold_disk::Disk;
use onefold_substrate::Substrate;

use super::common::{self, Contents};
use super::concluded::UnexaminedImage;
use super::identify::{
    BegunImage, ExaminationJob, ExaminationQueue, Identification, IdentifyError, OpenedImage, Search, THREADS_MAX,
    VolumeContent, disk_of,
};
use super::join::{Candidates, IMAGES_MAX, JoinReport, SourceRuns, join};
use super::kept::{EarlierGuest, KeepOptions};
use super::packages::PackageNames;
use super::report::ExaminationReport;
use super::{CommonSource, FilesOptions};
use crate::format::FileNo;
use crate::format::guest::KeptGuest;
use crate::format::stamp::Stamp;
use crate::pass::{PassError, RunSorter};
use crate::scan::ListedFile;
use crate::state::{State, StateError};

/// Maximum memory of a disk's cache.
pub(super) const CACHE_BYTES_MAX: usize = 32 << 20;
/// Maximum number of images that are open at once.
const IMAGES_AT_ONCE: usize = 32;
/// Fraction of the memory for findings that wait for their turn.
const PART_FOR_AHEAD: usize = 16;

/// Files that are believed equal, as runs.
pub(super) struct EqualFiles {
    pub(super) runs: SourceRuns,
    pub(super) examined: ExaminationReport,
    pub(super) packages: PackageNames,
    pub(super) unexamined: Vec<UnexaminedImage>,
    /// Common volumes.
    pub(super) others: BTreeSet<FileNo>,
    pub(super) strangers: Vec<PathBuf>,
    pub(super) believed: JoinReport,
}

/// Examines all images, and joins their candidates.
///
/// # Errors
/// Errors of temporary files and of the state folder, and when the work is to end.
pub(super) fn find<S: Substrate>(
    state: &State<'_, S>,
    listed: &[ListedFile],
    options: &FilesOptions<'_>,
    keeping: Option<&KeepOptions>,
) -> Result<EqualFiles, PassError> {
    let pass = &options.pass;
    let memory = pass.memory_bytes;
    let go_on = || pass.pace.boundary().map_err(StateError::from);
    let mut key = [0; 16];
    options.random.fill(&mut key)?;
    let search = Search {
        tiers: options.tiers,
        reading: options.reading,
        since: options.since,
        // Each thread has a cache, and so has the one that examines images in their turn.
        cache_bytes: (memory / 8 / (threads_of(options) + 1)).min(CACHE_BYTES_MAX),
        read_pace: pass.pace.reading(),
    };
    let mut finding = FileSearch {
        state,
        options,
        keeping,
        identifying: Identification {
            candidates: Candidates::new(pass.temporary_folder, memory / 2),
            packages: PackageNames::new(memory / 16),
            examined: ExaminationReport::default(),
            search,
            key,
            strangers: BTreeSet::new(),
            kept_bytes_max: keeping.map_or(0, KeepOptions::bytes_written_max),
            go_on: &go_on,
            waited: &|| pass.pace.waited(),
        },
        unexamined: Vec::new(),
        others: BTreeSet::new(),
        done_bytes: 0,
        all_bytes: listed.iter().map(|file| file.stat.length).fold(0, u64::saturating_add),
    };
    let ranked: Vec<(u32, &ListedFile)> = (0..).zip(listed).collect();
    ranked.chunks(IMAGES_AT_ONCE).try_for_each(|images| finding.images(images))?;
    let FileSearch { identifying, unexamined, others, .. } = finding;
    let Identification { candidates, packages, examined, strangers, .. } = identifying;
    let strangers = ranked.iter().filter(|(rank, _)| strangers.contains(rank));
    let strangers = strangers.map(|(_, file)| file.path.clone()).collect();
    let numbers: Vec<FileNo> = listed.iter().map(|file| file.number).collect();
    let sorter = || RunSorter::new(pass.temporary_folder, memory / 8);
    let mut runs = SourceRuns { first: sorter(), second: sorter() };
    let mut go_on = || pass.pace.boundary().map_err(|stopped| PassError::State(stopped.into()));
    let believed = join(candidates.finish()?, &numbers, &mut runs, &mut go_on)?;
    Ok(EqualFiles { runs, examined, packages, unexamined, others, strangers, believed })
}

/// A search in progress.
struct FileSearch<'f, 's, S: Substrate> {
    state: &'f State<'s, S>,
    options: &'f FilesOptions<'f>,
    keeping: Option<&'f KeepOptions>,
    identifying: Identification<'f>,
    unexamined: Vec<UnexaminedImage>,
    /// Common volumes.
    others: BTreeSet<FileNo>,
    /// Bytes of images examined so far, for the progress.
    done_bytes: u64,
    all_bytes: u64,
}

/// An image that a thread is to examine.
struct QueuedImage<'l, S: Substrate> {
    opened: OpenedImage<'l, S>,
    kept: Option<KeptGuest>,
}

impl<S: Substrate> FileSearch<'_, '_, S> {
    /// Adds the candidates of some images, with their ranks.
    fn images(&mut self, images: &[(u32, &ListedFile)]) -> Result<(), PassError> {
        let mut ahead = self.open_ahead(images)?;
        let kept: Vec<_> = ahead.iter_mut().map(|image| image.as_mut().and_then(|image| image.kept.take())).collect();
        // Without its disk, an image is examined in its turn, which reports the failure.
        let disks: Vec<Option<Box<dyn Disk + '_>>> = ahead
            .iter()
            .zip(images)
            .map(|(image, (_, listed))| {
                let opened = &image.as_ref()?.opened;
                disk_of(self.state.substrate(), listed, opened.file(), opened.stat().length).ok()
            })
            .collect();
        let to_examine = ahead.iter().zip(&disks).zip(kept).filter_map(|((image, disk), kept)| {
            Some(ExaminationJob::new(&image.as_ref()?.opened, disk.as_deref()?, kept))
        });
        let to_examine: Vec<_> = to_examine.collect();
        let search = self.identifying.search;
        let limits = (threads_of(self.options), self.options.pass.memory_bytes / PART_FOR_AHEAD);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut found = ExaminationQueue::begin(scope, search, limits, to_examine, &is_over);
            for (((rank, listed), image), disk) in images.iter().zip(&ahead).zip(&disks) {
                let begun = image
                    .as_ref()
                    .filter(|_| disk.is_some())
                    .and_then(|image| Some(BegunImage { opened: &image.opened, found: found.next_image()? }));
                self.image(*rank, listed, begun)?;
            }
            Ok(())
        })
    }

    /// Opens those of some images that are to be examined by threads. Others, and those that cannot be opened, have
    /// their turn later.
    fn open_ahead<'l>(&self, images: &[(u32, &'l ListedFile)]) -> Result<Vec<Option<QueuedImage<'l, S>>>, PassError> {
        let is_ahead = threads_of(self.options) > 0;
        let mut kept_bytes = 0;
        let mut open = |&(rank, listed): &(u32, &'l ListedFile)| {
            let bytes_max = self.keeping.map_or(0, KeepOptions::bytes_max);
            if !is_ahead || rank >= IMAGES_MAX || kept_bytes > bytes_max || volume_of(self.options, listed).is_some() {
                return Ok(None);
            }
            if common::is_marked(self.state.substrate(), &listed.path) {
                return Ok(None);
            }
            let mut kept = None;
            if let Some(keeping) = self.keeping {
                kept = match keeping.kept_before(self.state, listed.number, &Stamp::of(&listed.stat))? {
                    EarlierGuest::Unchanged => return Ok(None),
                    EarlierGuest::Changed(kept) => kept,
                };
                kept_bytes += kept.as_ref().map_or(0, KeptGuest::bytes);
                if kept_bytes > bytes_max {
                    return Ok(None);
                }
            }
            let opened = OpenedImage::open(self.state.substrate(), listed).ok();
            Ok(opened.map(|opened| QueuedImage { opened, kept }))
        };
        images.iter().map(&mut open).collect()
    }

    /// Adds the candidates of the next image.
    fn image(&mut self, rank: u32, listed: &ListedFile, begun: Option<BegunImage<'_, '_, S>>) -> Result<(), PassError> {
        if (self.options.examining)(self.done_bytes, self.all_bytes).is_break() {
            return Err(StateError::Interrupted.into());
        }
        self.done_bytes = self.done_bytes.saturating_add(listed.stat.length);
        let leave_out = |why, may_pass| {
            let (number, path) = (listed.number, listed.path.clone());
            UnexaminedImage { number, path, why, may_pass }
        };
        if rank >= IMAGES_MAX {
            self.unexamined.push(leave_out("there are too many images before it".to_owned(), true));
            return Ok(());
        }
        let substrate = self.state.substrate();
        let options = self.options;
        let volume = volume_of(options, listed);
        if begun.is_none() && (volume.is_some() || common::is_marked(substrate, &listed.path)) {
            self.others.insert(listed.number);
        }
        let identifying = &mut self.identifying;
        let added = match (volume, begun, self.keeping) {
            (Some(source), ..) => identifying.add_volume(substrate, listed, rank, &contents_of(source.contents)),
            (None, None, _) if self.others.contains(&listed.number) => return Ok(()),
            (None, Some(begun), Some(keeping)) => {
                let examined = identifying.add_begun(substrate, &begun, rank);
                keeping.note(self.state, identifying, listed.number, examined)
            }
            (None, Some(begun), None) => identifying.add_begun(substrate, &begun, rank).map(drop),
            (None, None, Some(keeping)) => keeping.add(self.state, identifying, listed, rank),
            (None, None, None) => identifying.add_image(substrate, listed, rank, None).map(drop),
        };
        self.identifying.examined.images += u64::from(volume.is_none());
        match added {
            Ok(()) => {}
            Err(IdentifyError::Temporary(error)) => return Err(error.into()),
            Err(IdentifyError::Stopped(error)) => return Err(error.into()),
            Err(error) => self.unexamined.push(leave_out(with_causes(&error), error.may_pass())),
        }
        Ok(())
    }
}

/// Returns how many threads examine images ahead; none where the processor time is limited, which is paid for by the
/// thread that uses it.
fn threads_of(options: &FilesOptions<'_>) -> usize {
    let pass = &options.pass;
    // They wait for the disk more than they compute.
    if pass.pace.is_cpu_limited() { 0 } else { pass.threads.saturating_mul(2).min(THREADS_MAX) }
}

/// Returns the common volume that is the source, if an image is that.
fn volume_of<'o>(options: &FilesOptions<'o>, listed: &ListedFile) -> Option<CommonSource<'o>> {
    options.common.filter(|source| *source.handle == listed.stat.handle)
}

/// Returns the contents of a common volume, each with the path of its file.
fn contents_of(contents: &Contents) -> Vec<VolumeContent<'_>> {
    let with_path = contents.iter().filter_map(|(&(digest, length), content)| {
        let path = content.paths.first()?;
        Some(VolumeContent { digest, length, path })
    });
    with_path.collect()
}

/// Returns the message of an error, followed by those of all its causes.
fn with_causes(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
