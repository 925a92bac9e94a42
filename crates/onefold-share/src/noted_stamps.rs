//! Stamps of a file from before Onefold changed an attribute of it, noted at the file itself.
//!
//! An attribute changes the time of a file's last change (`ctime`), which nobody can set, but not that of its content
//! (`mtime`). A scan compares both, since a program can write and set the second one back. So it would read a file anew
//! that was only excluded and included again. These notes tell it that the first change was Onefold's own: **a file
//! whose length and time of content are those of a noted stamp is as it was at that stamp.** If a program writes to it
//! between the change of the attribute and the next scan, and sets the time back, that costs savings until the next
//! change. Every other write is seen.
//!
//! The verbs that change attributes do not open the state folder, which may be on a full file system, so the note is an
//! attribute, too: the length, the time of content, and up to [`STAMPS_MAX`] times of last changes.

use std::io;
use std::path::Path;

use onefold_block::Timestamp;
use onefold_substrate::{Access, Substrate};

use crate::format::stamp::Stamp;

/// Name of the attribute.
pub(crate) const ATTRIBUTE: &str = "user.onefold.before";
/// Maximum number of stamps of a note: a file may be excluded and included again and again between two scans.
const STAMPS_MAX: usize = 8;

/// Notes the present stamp of a file, before an attribute of it changes. Does nothing for folders. A file that cannot
/// be noted is read anew.
pub(crate) fn note<S: Substrate>(substrate: &S, path: &Path) {
    let Ok(file) = substrate.open(path, Access::Read) else { return };
    let Ok(stat) = substrate.stat(&file) else { return };
    let stamp = Stamp::of(&stat);
    let mut stamps = of(substrate, &file).unwrap_or_default();
    stamps.retain(|noted| has_same_content(noted, &stamp) && *noted != stamp);
    stamps.drain(..(stamps.len() + 1).saturating_sub(STAMPS_MAX));
    stamps.push(stamp);
    let _ = substrate.set_attribute(path, ATTRIBUTE, Some(encode(&stamp, &stamps).as_bytes()));
}

/// Returns the noted stamps of a file.
pub(crate) fn of<S: Substrate>(substrate: &S, file: &S::File) -> io::Result<Vec<Stamp>> {
    let value = substrate.attribute_of(file, ATTRIBUTE)?;
    Ok(value.and_then(|value| decode(std::str::from_utf8(&value).ok()?)).unwrap_or_default())
}

/// Returns whether nothing shows that the content of a file differs between two stamps.
pub(crate) fn has_same_content(one: &Stamp, other: &Stamp) -> bool {
    (one.length, one.modified) == (other.length, other.modified)
}

/// Returns whether a file that was as `then` and is as `now` differs only in attributes that Onefold has changed. A
/// file without a readable note may have changed otherwise.
pub(crate) fn is_own_change<S: Substrate>(substrate: &S, file: &S::File, then: &Stamp, now: &Stamp) -> bool {
    then != now && has_same_content(then, now) && of(substrate, file).is_ok_and(|noted| noted.contains(then))
}

fn encode(stamp: &Stamp, stamps: &[Stamp]) -> String {
    let changed = stamps.iter().map(|stamp| time_text(stamp.changed));
    let words = [stamp.length.to_string(), time_text(stamp.modified)].into_iter().chain(changed);
    words.collect::<Vec<_>>().join(" ")
}

fn decode(text: &str) -> Option<Vec<Stamp>> {
    let mut words = text.split(' ');
    let (length, modified) = (words.next()?.parse().ok()?, time(words.next()?)?);
    let changed = words.map(time).take(STAMPS_MAX).collect::<Option<Vec<_>>>()?;
    Some(changed.into_iter().map(|changed| Stamp { length, modified, changed }).collect())
}

fn time_text(time: Timestamp) -> String {
    format!("{}.{:09}", time.seconds, time.nanoseconds)
}

fn time(text: &str) -> Option<Timestamp> {
    let (seconds, nanoseconds) = text.split_once('.')?;
    let nanoseconds = nanoseconds.parse().ok().filter(|nanoseconds| *nanoseconds < 1_000_000_000)?;
    Some(Timestamp { seconds: seconds.parse().ok()?, nanoseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(changed: i64) -> Stamp {
        let modified = Timestamp { seconds: -7, nanoseconds: 5 };
        Stamp { length: 4096, modified, changed: Timestamp { seconds: changed, nanoseconds: 999_999_999 } }
    }

    #[test]
    fn a_note_comes_back_as_it_was() {
        let stamps = [stamp(1), stamp(2)];
        let text = encode(&stamps[1], &stamps);
        assert_eq!(text, "4096 -7.000000005 1.999999999 2.999999999");
        assert_eq!(decode(&text).unwrap(), stamps);
    }

    /// The owner of a file may write anything into the attribute.
    #[test]
    fn a_note_of_another_form_says_nothing_and_a_long_one_is_cut() {
        for text in ["", "4096", "x 1.0 2.0", "4096 1 2.0", "4096 1.0 2.1000000000", "4096 1.0 2.0 ", "-1 1.0 2.0"] {
            assert_eq!(decode(text), None, "{text}");
        }
        let long = format!("4096 1.0{}", " 2.0".repeat(1 << 16));
        assert_eq!(decode(&long).unwrap().len(), STAMPS_MAX);
    }
}
