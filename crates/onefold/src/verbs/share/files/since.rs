//! The value of `--since`: a template, or a date.

use std::path::Path;

use onefold_block::Show;
use onefold_disk::{CachedDisk, Disk};
use onefold_guest::filesystem::Timestamp;
use onefold_guest::packages::LocalTime;
use onefold_share::files::{Baseline, Template, TemplateError};

use crate::calendar;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::progress::Meter;
use crate::verbs::images::{self, FoundImage};

/// Memory for the cache of a template.
const CACHE_BYTES: usize = 32 << 20;

/// Returns the meaning of `--since`. An existing file is a template, whatever its name looks like.
pub(super) fn read(named: &Path) -> Outcome<Baseline> {
    let date = named.to_str().map(calendar::parse);
    match date {
        Some(Ok(seconds)) if !named.exists() => Ok(of_date(seconds)),
        _ => read_template(named).map(Baseline::Template),
    }
}

fn of_date(seconds: i64) -> Baseline {
    let time = Timestamp { seconds, nanoseconds: 0 };
    let [year, month, day, hour, minute, second] = calendar::parts(seconds);
    let small = |number: i64| u8::try_from(number).unwrap_or_default();
    let local = LocalTime {
        year: u16::try_from(year).unwrap_or_default(),
        month: small(month),
        day: small(day),
        hour: small(hour),
        minute: small(minute),
        second: small(second),
    };
    Baseline::Time { time, local }
}

fn read_template(path: &Path) -> Outcome<Template> {
    let cannot = || format!("cannot use `{}` as a template", path.shown());
    let found = images::find_one(path).map_err(|failure| match &failure.hint {
        Some(_) => failure.wrap(cannot()),
        None => {
            failure.wrap(cannot()).hint("give the image that the machines were made from, or a date such as 2026-11-01")
        }
    })?;
    let disk: Box<dyn Disk> = match found {
        FoundImage::Archived(image) => Box::new(image.disk(CACHE_BYTES as u64)),
        FoundImage::File(found) => {
            let file = found.open().map_err(|error| Failure::of_io(cannot(), &error))?;
            // Converting a format first takes a while.
            let meter = Meter::new(format!("converting {}", path.shown()), true, Interrupt::default());
            let opened = onefold_disk::open(file, None, &[], &meter.on_progress());
            meter.finish();
            opened.map_err(|error| Failure::of_disk(&error).wrap(cannot()))?.disk
        }
    };
    Template::read(&CachedDisk::new(disk.as_ref(), CACHE_BYTES)).map_err(|error| match &error {
        TemplateError::Guest(guest) => Failure::of_guest(cannot(), guest),
        TemplateError::NoFileSystem | TemplateError::NoDatabase => Failure::new(cannot())
            .because(&error)
            .hint("give the image that the machines were made from, or a date such as 2026-11-01"),
    })
}
