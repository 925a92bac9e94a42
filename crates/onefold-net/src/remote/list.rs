//! The list of a server's images.

use onefold_block::Timestamp;
use onefold_image::archive::ImageRecord;
use onefold_image::{ImageName, ImageVersion, ObjectId, UnitName};
use serde::Deserialize;

/// A list of images. Other members are passed over without taking memory.
#[derive(Deserialize)]
struct ImageList {
    images: Vec<ListedImage>,
    #[serde(default)]
    multicast: bool,
}

#[derive(Deserialize)]
struct ListedImage {
    name: String,
    version: u32,
    added: i64,
    manifest: String,
    digest: String,
}

/// A report of a server about itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerList {
    /// Its images, sorted by name and version.
    pub(super) records: Vec<ImageRecord>,
    /// Whether it sends images by multicast, and hands out the keys when a machine joins.
    pub(super) sends_by_multicast: bool,
}

/// Parses the list of a server. Returns `None` if it is no such list.
pub(super) fn parse(list: &[u8]) -> Option<ServerList> {
    let list: ImageList = serde_json::from_slice(list).ok()?;
    let mut records = list.images.iter().map(record).collect::<Option<Vec<_>>>()?;
    records.sort_by(|one, other| one.image.cmp(&other.image));
    Some(ServerList { records, sends_by_multicast: list.multicast })
}

fn record(image: &ListedImage) -> Option<ImageRecord> {
    let name = ImageName::new(&image.name).ok().filter(|_| image.version > 0)?;
    Some(ImageRecord {
        image: ImageVersion { name, version: image.version },
        manifest: ObjectId::from_name(&image.manifest)?,
        digest: UnitName::from_name(&image.digest)?.0,
        packs: 0,
        added: Timestamp { seconds: image.added, nanoseconds: 0 },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_whole_lists_of_valid_images_are_taken() {
        let image = |name: &str, version: i64, digest: &str| {
            let manifest = format!("{}/{}", "0a".repeat(16), "0b".repeat(8));
            let image = json!({ "name": name, "version": version, "added": 5, "manifest": manifest, "digest": digest });
            json!({ "images": [image] }).to_string()
        };
        let digest = "c3".repeat(32);
        let records = |list: &[u8]| parse(list).map(|list| list.records);
        let found = records(image("web", 2, &digest).as_bytes()).unwrap();
        assert_eq!((found[0].image.to_string().as_str(), found[0].digest), ("web@2", [0xc3; 32]));
        for (name, version, digest) in [
            ("../web", 2, digest.as_str()),
            ("web", 0, &digest),
            ("web", -1, &digest),
            ("web", 1 << 32, &digest),
            ("web", 2, "c3"),
            ("web", 2, &"C3".repeat(32)),
        ] {
            assert_eq!(records(image(name, version, digest).as_bytes()), None, "{name} {version} {digest}");
        }
        // A server that lies may send members without end.
        let other = image("web", 2, &digest).replace("\"added\"", "\"else\":[{\"\":0},{}],\"added\"");
        assert!(records(other.as_bytes()).is_some());
        for list in ["", "[]", "{}", r#"{"images":{}}"#, r#"{"images":[{}]}"#, r#"{"images":[]} x"#] {
            assert_eq!(records(list.as_bytes()), None, "{list}");
        }
        let list = |sends_by_multicast| Some(ServerList { records: Vec::new(), sends_by_multicast });
        assert_eq!(parse(br#"{"images":[]}"#), list(false));
        assert_eq!(parse(br#"{"images":[],"multicast":true}"#), list(true));
        assert_eq!(parse(br#"{"images":[],"multicast":"yes"}"#), None);
    }
}
