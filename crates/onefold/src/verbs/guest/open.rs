//! Opens images for the verbs that read them, and reports whether a machine uses them meanwhile.

use std::fs;
use std::path::Path;

use onefold_block::Show;
use onefold_disk::{CachedDisk, Disk, DiskError, ImageFile, ImageFormat, OpenImage};
use onefold_guest::budget::Budget;
use onefold_guest::guest::Guest;

use crate::cli::Talk;
use crate::cli::guest::{GuestImageArgs, GuestOpenArgs};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::machine_name;
use crate::progress::Meter;
use crate::verbs::images::{self, FileState, FoundImage, archived};
use crate::verbs::in_use;

/// Minimum of `--memory`: below it, buffers would take most of it.
const MEMORY_BYTES_MIN: u64 = 32 << 20;
/// Divisor of `--memory`: this share is for the cache of a disk.
const CACHE_SHARE: u64 = 4;
/// Divisor of `--memory`: this share is for an archived image, below the cache of its disk.
const ARCHIVED_SHARE: u64 = 8;
/// Divisor of `--memory`: allocation maps may take this share.
const MAP_SHARE: u64 = 2;

/// An open image.
pub(super) struct GuestImage {
    found: FoundImage,
    /// Tells whether a machine uses it; `None` for an archived image, which never changes.
    watch: Option<Watch>,
    /// The name of its format.
    pub(super) format: &'static str,
    /// Watched if the image is one of many and was converted.
    interrupt: Interrupt,
    pub(super) disk: Box<dyn Disk>,
}

/// A file as it was when it was opened.
struct Watch {
    state: FileState,
    /// Whether a machine had it open for writing.
    has_writer: bool,
}

impl GuestImage {
    /// Opens an image that was found.
    pub(super) fn open(
        found: FoundImage,
        arguments: &GuestOpenArgs,
        talk: Talk,
        conversions: &mut Conversions,
    ) -> Outcome<GuestImage> {
        let file = match &found {
            FoundImage::File(file) => file.clone(),
            FoundImage::Archived(image) => {
                let disk = Box::new(image.disk(arguments.memory.0 / ARCHIVED_SHARE));
                let interrupt = Interrupt::default();
                return Ok(GuestImage { found, watch: None, format: archived::FORMAT, interrupt, disk });
            }
        };
        let cannot = || format!("cannot open the image `{}`", file.path.shown());
        let open = file.open().map_err(|error| Failure::of_io(cannot(), &error))?;
        let watch = Watch { state: FileState::of(open.metadata()), has_writer: in_use::is_in_use(&open) };
        let interrupt = conversions.interrupt(&open, arguments);
        let meter = Meter::new(format!("converting {}", file.path.shown()), talk.quiet, interrupt.clone());
        let opened = open_disk(open, arguments, &meter);
        meter.finish();
        let OpenImage { disk, format, .. } = opened.map_err(|error| match &error {
            // These name only the folder of the temporary file.
            DiskError::TemporaryFile { .. } | DiskError::TemporaryCopy { .. } => {
                Failure::of_disk(&error).wrap(cannot())
            }
            _ => Failure::of_disk(&error),
        })?;
        Ok(GuestImage { found, watch: Some(watch), format: format.name(), interrupt, disk })
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        self.found.path()
    }

    /// Returns its name for programs.
    pub(super) fn name(&self) -> String {
        machine_name(self.path())
    }

    /// Returns whether the user wants the work on the image to stop.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.is_asked()
    }

    /// Returns whether a machine or this host uses the image: one of them may write to it, or it has changed since it
    /// was opened.
    pub(super) fn is_in_use(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| {
            let has_changed = |metadata| FileState::of(&metadata) != watch.state;
            watch.has_writer || fs::metadata(self.path()).map_or(true, has_changed)
        })
    }

    /// Opens all volumes of the disk, and calls `work` with them. A cache with a part of `--memory` serves repeated
    /// reads; allocation maps draw from another part.
    pub(super) fn with_guest<T>(
        &self,
        arguments: &GuestOpenArgs,
        work: impl FnOnce(&Guest<'_>) -> Outcome<T>,
    ) -> Outcome<T> {
        let cache_bytes = usize::try_from(arguments.memory.0 / CACHE_SHARE).unwrap_or(usize::MAX);
        let cached = CachedDisk::new(self.disk.as_ref(), cache_bytes);
        let cannot = || format!("cannot read the disk in `{}`", self.path().shown());
        let guest = Guest::open(&cached).map_err(|error| Failure::of_guest(cannot(), &error))?;
        let map_bytes = usize::try_from(arguments.memory.0 / MAP_SHARE).unwrap_or(usize::MAX);
        work(&guest.with_budget(Budget::new(map_bytes)))
    }
}

/// The interrupt of a command's conversions. It is watched from the first conversion on, so that a stopped conversion
/// removes its temporary file. Before that, Ctrl-C ends the command at once.
#[derive(Default)]
pub(super) struct Conversions(Option<Interrupt>);

impl Conversions {
    /// Returns what may interrupt the opening of a file: nothing for formats that are read without a conversion.
    fn interrupt(&mut self, file: &ImageFile, arguments: &GuestOpenArgs) -> Interrupt {
        let format = arguments.format.map(Into::into).or_else(|| onefold_disk::format_of(file));
        if format.is_some_and(ImageFormat::is_converted) {
            self.0.get_or_insert_with(Interrupt::watch).clone()
        } else {
            Interrupt::default()
        }
    }

    /// Ends the watch after the last conversion. From then on there is no temporary file with a name, so the next
    /// Ctrl-C may end the command at once.
    fn release(&self) {
        self.0.iter().for_each(Interrupt::release);
    }

    /// Returns whether the user wants the command to stop.
    pub(super) fn is_interrupted(&self) -> bool {
        self.0.as_ref().is_some_and(Interrupt::is_asked)
    }
}

fn open_disk(file: ImageFile, arguments: &GuestOpenArgs, meter: &Meter) -> Result<OpenImage, DiskError> {
    let format = arguments.format.map(Into::into);
    onefold_disk::open(file, format, &arguments.backing_from, &meter.on_progress())
}

/// Checks the arguments that all verbs have.
pub(super) fn check(arguments: &GuestOpenArgs) -> Outcome<()> {
    if arguments.memory.0 < MEMORY_BYTES_MIN {
        return Err(Failure::usage("cannot read images with so little memory").because_of("--memory is less than 32M"));
    }
    Ok(())
}

/// Opens the one image of a verb.
pub(super) fn one(arguments: &GuestImageArgs, talk: Talk) -> Outcome<GuestImage> {
    check(&arguments.open)?;
    let found = images::find_one(&arguments.image)
        .map_err(|failure| failure.wrap(format!("cannot open the image `{}`", arguments.image.shown())))?;
    let mut conversions = Conversions::default();
    let opened = GuestImage::open(found, &arguments.open, talk, &mut conversions)?;
    conversions.release();
    Ok(GuestImage { interrupt: Interrupt::default(), ..opened })
}
