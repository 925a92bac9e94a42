//! The failures and warnings of a verb, image by image.

use std::path::Path;

use onefold_block::Show;
use onefold_block::shown::ShownText;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::machine_name;

/// Maximum number of failures, and of warnings, of one image that are reported in full.
const OF_IMAGE_MAX: usize = 100;
/// Maximum number of bytes of all reported texts. Any further message is only counted, since a set of hostile images
/// may have any number of long paths.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// Whether a text has the name of its image in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextNames {
    Image,
    NoImage,
}

/// An image of a [`MessageLog`], by the order in which they came.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImageIndex(usize);

/// Failures and warnings. Each belongs to the current image, or to none.
#[derive(Debug)]
pub(super) struct MessageLog {
    /// Those of no image, followed by those of each image.
    images: Vec<ImageMessages>,
    current: usize,
    /// Whether a message for people names its image, because there are several.
    names_images: bool,
    bytes_left: usize,
}

/// The messages of one image, or of none.
#[derive(Debug, Default)]
struct ImageMessages {
    image: Option<ImageName>,
    failures: Vec<(Failure, TextNames)>,
    warnings: Vec<(String, TextNames)>,
    /// Number of further failures and warnings.
    further: u64,
}

#[derive(Debug)]
struct ImageName {
    for_people: String,
    for_programs: String,
}

impl MessageLog {
    pub(super) fn new(names_images: bool) -> MessageLog {
        MessageLog { images: vec![ImageMessages::default()], current: 0, names_images, bytes_left: TEXT_BYTES_MAX }
    }

    /// Makes another image the current one.
    pub(super) fn begin(&mut self, image: &Path) -> ImageIndex {
        let name = ImageName { for_people: image.shown().to_string(), for_programs: machine_name(image) };
        self.current = self.images.len();
        self.images.push(ImageMessages { image: Some(name), ..ImageMessages::default() });
        ImageIndex(self.current)
    }

    /// Makes an earlier image the current one.
    pub(super) fn turn_to(&mut self, image: ImageIndex) {
        self.current = image.0;
    }

    /// Ends the work on images: messages from now on belong to none.
    pub(super) fn leave(&mut self) {
        self.current = 0;
    }

    pub(super) fn fail(&mut self, failure: Failure, names: TextNames) {
        let texts = failure.causes.iter().chain(&failure.hint).map(String::len);
        if self.has_room(failure.error.len() + texts.sum::<usize>(), |of| of.failures.len()) {
            self.here().failures.push((failure, names));
        }
    }

    pub(super) fn warn(&mut self, warning: String, names: TextNames) {
        if self.has_room(warning.len(), |of| of.warnings.len()) {
            self.here().warnings.push((warning, names));
        }
    }

    /// Counts messages of the current image whose texts are not known.
    pub(super) fn add_further(&mut self, count: u64) {
        self.here().further += count;
    }

    /// Returns a failure that ends the verb, with the name of the current image if there are several.
    pub(super) fn named(&self, failure: Failure) -> Failure {
        let here = self.images.get(self.current);
        let prefix = here.map_or_else(String::new, |here| self.prefix(here, TextNames::NoImage));
        Failure { error: format!("{prefix}{}", failure.error), ..failure }
    }

    /// Prints all messages on standard error.
    pub(super) fn print(&self) {
        for of in &self.images {
            for (failure, names) in &of.failures {
                let error = format!("{}{}", self.prefix(of, *names), failure.error);
                eprintln!("{}", Failure { error, ..failure.clone() });
            }
            for (warning, names) in &of.warnings {
                eprintln!("warning: {}", ShownText::line(&format!("{}{warning}", self.prefix(of, *names))));
            }
            if of.further > 0 {
                eprintln!("warning: {}and {} more", self.prefix(of, TextNames::NoImage), of.further);
            }
        }
    }

    /// Returns the members of a document.
    pub(super) fn members(&self) -> Map<String, Value> {
        let (mut failures, mut warnings, mut further_by_image) = (Vec::new(), Vec::new(), Vec::new());
        for of in &self.images {
            let image = of.image.as_ref().map(|image| &image.for_programs);
            failures.extend(of.failures.iter().map(|(failure, _)| {
                let Failure { error, causes, hint, .. } = failure;
                json!({ "image": image, "error": error, "causes": causes, "hint": hint })
            }));
            let warning = |(warning, _): &(String, TextNames)| json!({ "image": image, "warning": warning });
            warnings.extend(of.warnings.iter().map(warning));
            if of.further > 0 {
                further_by_image.push(json!({ "image": image, "count": of.further }));
            }
        }
        let further: u64 = self.images.iter().map(|of| of.further).sum();
        let mut members = Map::new();
        members.insert("failures".to_owned(), failures.into());
        members.insert("warnings".to_owned(), warnings.into());
        members.insert("further".to_owned(), further.into());
        members.insert("further_by_image".to_owned(), further_by_image.into());
        members
    }

    /// Takes room for a message of the current image, or counts it as a further one.
    fn has_room(&mut self, bytes: usize, count: impl FnOnce(&ImageMessages) -> usize) -> bool {
        match self.bytes_left.checked_sub(bytes) {
            Some(left) if count(self.here()) < OF_IMAGE_MAX => {
                self.bytes_left = left;
                true
            }
            _ => {
                self.here().further += 1;
                false
            }
        }
    }

    fn here(&mut self) -> &mut ImageMessages {
        &mut self.images[self.current]
    }

    fn prefix(&self, of: &ImageMessages, names: TextNames) -> String {
        match &of.image {
            Some(image) if self.names_images && names == TextNames::NoImage => format!("`{}`: ", image.for_people),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a hundred messages of the first images left no room for those of the next ones.
    #[test]
    fn each_image_has_room_for_its_messages_and_names_them() {
        let mut log = MessageLog::new(true);
        let first = log.begin(Path::new("a.raw"));
        (0..150).for_each(|number| log.warn(number.to_string(), TextNames::NoImage));
        log.begin(Path::new("b.raw"));
        log.fail(Failure::new("cannot read `/etc`"), TextNames::NoImage);
        log.turn_to(first);
        log.add_further(3);
        log.leave();
        log.fail(Failure::new("cannot print"), TextNames::NoImage);
        let told = log.members();
        let failure = |image, error| json!({ "image": image, "error": error, "causes": [], "hint": null });
        let (none, second) = (Value::Null, Value::from("b.raw"));
        let failures = json!([failure(none, "cannot print"), failure(second, "cannot read `/etc`")]);
        assert_eq!(told["failures"], failures);
        assert_eq!(told["warnings"].as_array().map(Vec::len), Some(OF_IMAGE_MAX));
        assert_eq!(told["warnings"][0], json!({ "image": "a.raw", "warning": "0" }));
        assert_eq!((&told["further"], told["further_by_image"][0]["count"].as_u64()), (&53.into(), Some(53)));
        log.turn_to(first);
        assert_eq!(log.named(Failure::new("gone")).error, "`a.raw`: gone");
        assert_eq!(log.prefix(&log.images[1], TextNames::Image), "");
    }

    #[test]
    fn one_image_alone_has_no_name_before_its_messages_and_long_texts_are_only_counted() {
        let mut log = MessageLog::new(false);
        log.begin(Path::new("a.raw"));
        assert_eq!(log.named(Failure::new("gone")).error, "gone");
        log.warn("a".repeat(TEXT_BYTES_MAX), TextNames::NoImage);
        log.warn("b".to_owned(), TextNames::NoImage);
        let told = log.members();
        assert_eq!((told["warnings"].as_array().map(Vec::len), &told["further"]), (Some(1), &1.into()));
    }
}
