//! The archive of a server of images, as far as an installation needs it.

mod group;
mod transport;

use onefold_block::Timestamp;
use onefold_image::archive::{ArchiveError, ImageRecord};
use onefold_image::format::FormatError;
use onefold_image::format::descriptor::Descriptor;
use onefold_image::format::manifest::{MANIFEST_BYTES_MAX, Manifest};
use onefold_image::remote::RemoteImages;
use onefold_image::signature::{KeyId, PublicKey, SIGNATURE_BYTES_MAX};
use onefold_image::{ImageName, ImageVersion, ObjectId, UnitName};
use serde::Deserialize;

use crate::NetError;

pub use group::{GroupOptions, GroupReport, GroupTransport, NoteHook, SharedGroupReport};
pub use transport::{RemoteOptions, RemoteTransport};

/// Maximum length of a descriptor in bytes, and of a list of images.
const DESCRIPTOR_BYTES_MAX: u64 = 4096;
const LIST_BYTES_MAX: u64 = 64 << 20;

/// The archive of a server. Nothing that the server says is believed without proof, except which images there are.
#[derive(Debug)]
pub struct RemoteArchive {
    images: RemoteImages<RemoteTransport>,
    records: Vec<ImageRecord>,
}

impl RemoteArchive {
    /// Asks a server for its archive and its images. `address` is `http://HOST:PORT` or `https://HOST:PORT`.
    ///
    /// # Errors
    /// When the address is invalid, or a plain connection to another machine that is not allowed.
    pub fn open(address: &str, options: RemoteOptions) -> Result<Result<RemoteArchive, ArchiveError>, NetError> {
        let transport = RemoteTransport::new(address, options)?;
        Ok(RemoteArchive::read(transport))
    }

    fn read(transport: RemoteTransport) -> Result<RemoteArchive, ArchiveError> {
        let object = transport.get("v1/archive", DESCRIPTOR_BYTES_MAX)?;
        let damaged = |name: &str, source| ArchiveError::refused(name.to_owned(), source);
        let descriptor = Descriptor::decode(&object).map_err(|source| damaged("descriptor", source))?;
        let list = transport.get("v1/images", LIST_BYTES_MAX)?;
        let invalid = FormatError::Value { structure: "list of images", what: "it is no list of images" };
        let records = records(&list).ok_or_else(|| damaged("list of images", invalid))?;
        Ok(RemoteArchive { images: RemoteImages::new(transport, descriptor), records })
    }

    /// Returns the images that the server has, by its own word, sorted by name and version.
    #[must_use]
    pub fn records(&self) -> &[ImageRecord] {
        &self.records
    }

    /// Returns the manifest of an image, and its bytes, which a signature covers. Verifies that the bytes have the
    /// digest of the record, and that the manifest belongs to this archive and this image.
    ///
    /// # Errors
    /// When it is another one, or the server does not answer or refuses.
    pub fn manifest(&self, record: &ImageRecord) -> Result<(Manifest, Vec<u8>), ArchiveError> {
        let path = format!("v1/manifests/{}", UnitName(record.digest));
        let object = self.images.transport().get(&path, MANIFEST_BYTES_MAX)?;
        let manifest = record.decode_manifest(self.images.descriptor().archive, &object)?;
        self.images.transport().set_manifest(record.digest);
        Ok((manifest, object))
    }

    /// Returns the keys, among those given, that have signed an image, whose manifest is `object`.
    ///
    /// # Errors
    /// When the server does not answer or refuses.
    pub fn signers<'a>(
        &self,
        record: &ImageRecord,
        object: &[u8],
        keys: impl Iterator<Item = &'a PublicKey>,
    ) -> Result<Vec<KeyId>, ArchiveError> {
        let mut signers = Vec::new();
        for key in keys {
            let path = format!("v1/manifests/{}/signatures/{}", UnitName(record.digest), key.id().name());
            let signature = self.images.transport().find(&path, SIGNATURE_BYTES_MAX)?;
            if !signers.contains(&key.id()) && signature.is_some_and(|signature| key.verifies(object, &signature)) {
                signers.push(key.id());
            }
        }
        Ok(signers)
    }

    /// Returns the source of units, of which those of one image come by multicast where that arrives, and the place
    /// where it counts what came.
    #[must_use]
    pub fn into_group_images(
        self,
        record: &ImageRecord,
        options: GroupOptions,
    ) -> (RemoteImages<GroupTransport>, SharedGroupReport) {
        GroupTransport::images(self.images, record.digest, options)
    }

    /// Returns the source of units.
    #[must_use]
    pub fn into_images(self) -> RemoteImages<RemoteTransport> {
        self.images
    }
}

/// A list of images. Other members are passed over without taking memory.
#[derive(Deserialize)]
struct ImageList {
    images: Vec<ListedImage>,
}

#[derive(Deserialize)]
struct ListedImage {
    name: String,
    version: u32,
    added: i64,
    manifest: String,
    digest: String,
}

/// Parses a list of images.
fn records(list: &[u8]) -> Option<Vec<ImageRecord>> {
    let list: ImageList = serde_json::from_slice(list).ok()?;
    let mut records = list.images.iter().map(record).collect::<Option<Vec<_>>>()?;
    records.sort_by(|one, other| one.image.cmp(&other.image));
    Some(records)
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
        assert_eq!(records(br#"{"images":[]}"#), Some(Vec::new()));
    }
}
