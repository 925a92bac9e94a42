//! The archive of a server of images, as far as an installation needs it.

mod failure;
mod group;
mod list;
mod reporter;
mod status;
mod transport;

use onefold_image::UnitName;
use onefold_image::archive::{ArchiveError, ImageRecord};
use onefold_image::format::descriptor::Descriptor;
use onefold_image::format::manifest::{MANIFEST_BYTES_MAX, Manifest};
use onefold_image::remote::RemoteImages;
use onefold_image::signature::{KeyId, PublicKey, SIGNATURE_BYTES_MAX};

use self::list::ServerList;
use crate::NetError;

pub use group::{GroupOptions, GroupReport, GroupTransport, GroupWay, NoteHook, SharedGroupReport};
pub use reporter::{InstallReporter, ProgressHook, ReportPlace};
pub use status::StatusClient;
pub use transport::{RemoteOptions, RemoteTransport};

/// Maximum length of a descriptor in bytes.
const DESCRIPTOR_BYTES_MAX: u64 = 4096;

/// The archive of a server. Nothing that the server says is believed without proof, except which images there are.
#[derive(Debug)]
pub struct RemoteArchive {
    images: RemoteImages<RemoteTransport>,
    list: ServerList,
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
        let descriptor = Descriptor::decode(&object);
        let descriptor = descriptor.map_err(|source| ArchiveError::refused("descriptor".to_owned(), source))?;
        let list = transport.list()?;
        Ok(RemoteArchive { images: RemoteImages::new(transport, descriptor), list })
    }

    /// Returns the images that the server has, by its own word, sorted by name and version.
    #[must_use]
    pub fn records(&self) -> &[ImageRecord] {
        &self.list.records
    }

    /// Returns whether the server sends its images by multicast to machines that join over TLS, by its own word. Then
    /// no key in a file is needed.
    #[must_use]
    pub fn sends_by_multicast(&self) -> bool {
        self.list.sends_by_multicast && self.images.transport().is_encrypted()
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
