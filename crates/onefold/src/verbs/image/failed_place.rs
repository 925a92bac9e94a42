//! The file of an image that has the byte at which a target failed, for the message.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::Show;
use onefold_image::format::manifest::Manifest;
use onefold_image::{ArchivedDisk, ImageSource};

use crate::size::grouped;
use crate::verbs::guest::{PlaceUse, files_at};

/// Memory for a look at a part of an image.
pub(super) const CHECK_BYTES: usize = 8 << 20;
/// Longest time of the search, whose result the message waits for. A server may not answer any more.
const SEARCH_MAX: Duration = Duration::from_secs(10);
/// Time between two looks at an interrupt.
const LOOK: Duration = Duration::from_millis(50);

/// Describes which file of the image has a byte, as far as the image can be read within a short time, and before
/// `is_stopped` returns true.
pub(super) fn describe(
    source: &Arc<dyn ImageSource>,
    manifest: &Manifest,
    offset: u64,
    is_stopped: &dyn Fn() -> bool,
) -> Option<String> {
    let (source, manifest) = (Arc::clone(source), manifest.clone());
    let search = move || {
        let disk = ArchivedDisk::new(source, manifest, CHECK_BYTES);
        let place = files_at(&disk, &[offset]).ok()?.pop()?;
        Some(text_of_place(offset, &place))
    };
    within(SEARCH_MAX, is_stopped, search)
}

/// Returns the result of `search`. If it takes longer, or `is_stopped` returns true, its thread ends with the process.
fn within(
    patience: Duration,
    is_stopped: &dyn Fn() -> bool,
    search: impl FnOnce() -> Option<String> + Send + 'static,
) -> Option<String> {
    let (answer, found) = mpsc::channel();
    let search = move || {
        let _ = answer.send(search());
    };
    thread::Builder::new().name("failed-place".to_owned()).spawn(search).ok()?;
    let began = Instant::now();
    while began.elapsed() < patience && !is_stopped() {
        match found.recv_timeout(LOOK) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            found => return found.ok().flatten(),
        }
    }
    None
}

/// Describes the use of a byte of an image.
fn text_of_place(offset: u64, place: &PlaceUse) -> String {
    let byte = format!("byte {} of the image", grouped(offset));
    match (&place.volume, &place.path) {
        (Some(volume), Some(path)) => format!("{byte} belongs to `{}` in {volume}", path.shown()),
        (Some(volume), None) => format!("{byte} belongs to {volume}, and to no file with a name"),
        (None, _) => format!("{byte} lies in no volume"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_at_a_place_is_named_as_far_as_it_is_known() {
        let text = |volume: Option<&str>, path: Option<&[u8]>| {
            let place = PlaceUse { volume: volume.map(str::to_owned), path: path.map(<[u8]>::to_vec) };
            text_of_place(1_234_432, &place)
        };
        assert_eq!(
            text(Some("partition 1"), Some(b"/etc/fst\nab")),
            "byte 1,234,432 of the image belongs to `/etc/fst\\nab` in partition 1"
        );
        assert!(text(Some("partition 1"), None).ends_with("belongs to partition 1, and to no file with a name"));
        assert!(text(None, None).ends_with("lies in no volume"));
    }

    #[test]
    fn a_search_that_takes_long_or_is_interrupted_delays_no_message() {
        let found = || Some("it".to_owned());
        assert_eq!(within(SEARCH_MAX, &|| false, found), found());
        assert_eq!(within(SEARCH_MAX, &|| false, || None), None);
        assert_eq!(within(SEARCH_MAX, &|| true, found), None);
        let (end, ended) = mpsc::channel::<()>();
        let endless = move || {
            let _ = ended.recv();
            None
        };
        assert_eq!(within(2 * LOOK, &|| false, endless), None);
        drop(end);
    }
}
