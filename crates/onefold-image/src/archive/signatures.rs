//! Signatures of images, which lie beside the manifests: `signatures/WRITER/RANDOM/KEY`.
//!
//! The object is the text of minisign as it is, so other programs can verify the files of a folder. Its name follows
//! from the manifest and the key. The ledger does not mention signatures: a lost one makes an image unsigned, and no
//! one can forge one.

use std::collections::BTreeMap;

use onefold_block::Clock;

use super::objects::{Folder, is_missing, read_whole};
use super::{Archive, ArchiveError, ImageRecord, ledger};
use crate::ObjectId;
use crate::signature::{KeyId, PublicKey, SIGNATURE_BYTES_MAX};
use crate::store::ObjectName;

/// The beginning of the names of signatures.
pub(super) const SIGNATURES: &str = "signatures/";
/// Maximum number of signatures that a listing of all images looks at.
const SIGNATURES_MAX: usize = 1_000_000;

impl Archive {
    /// Returns the bytes that a signature of an image covers: its manifest, as the ledger names it.
    ///
    /// # Errors
    /// When it is damaged or another, the image was removed meanwhile, or the store fails.
    pub fn signed_bytes(&self, image: &ImageRecord) -> Result<Vec<u8>, ArchiveError> {
        self.manifest_object(image)
    }

    /// Returns the name of the object that a signature covers, and that of the signature.
    #[must_use]
    pub fn signature_names(image: &ImageRecord, key: KeyId) -> (ObjectName, ObjectName) {
        (Folder::Manifests.object(image.manifest), object_name(image.manifest, key))
    }

    /// Stores a signature of an image. Returns false if the key has already signed the image.
    ///
    /// # Errors
    /// When `signature` is not a valid one of the image by this key, or the store fails.
    pub fn add_signature(
        &self,
        image: &ImageRecord,
        key: &PublicKey,
        signature: &str,
        clock: &dyn Clock,
    ) -> Result<bool, ArchiveError> {
        let name = object_name(image.manifest, key.id());
        let object = self.signed_bytes(image)?;
        if !key.verifies(&object, signature.as_bytes()) {
            return Err(ArchiveError::BadSignature { name: name.to_string() });
        }
        if ledger::create_exactly(self.store(), Some(clock), &name, signature.as_bytes())? {
            return Ok(true);
        }
        match self.is_signed_by(image, &object, key)? {
            true => Ok(false),
            false => Err(ArchiveError::BadSignature { name: name.to_string() }),
        }
    }

    /// Returns the keys, among those given, that have signed an image. A signature that is missing or not valid does
    /// not count.
    ///
    /// # Errors
    /// When the manifest is damaged, or the store fails.
    pub fn signers<'a>(
        &self,
        image: &ImageRecord,
        keys: impl Iterator<Item = &'a PublicKey>,
    ) -> Result<Vec<KeyId>, ArchiveError> {
        let object = self.signed_bytes(image)?;
        let mut signers = Vec::new();
        for key in keys {
            if !signers.contains(&key.id()) && self.is_signed_by(image, &object, key)? {
                signers.push(key.id());
            }
        }
        Ok(signers)
    }

    /// Returns the signature of an image by a key, without verifying it; `None` if there is none.
    ///
    /// # Errors
    /// When it is too long, or the store fails.
    pub fn signature(&self, image: &ImageRecord, key: KeyId) -> Result<Option<Vec<u8>>, ArchiveError> {
        match read_whole(self.store(), &object_name(image.manifest, key), SIGNATURE_BYTES_MAX) {
            Ok(signature) => Ok(Some(signature)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the keys of all signatures by manifest, without verifying any.
    ///
    /// # Errors
    /// When the store fails.
    pub fn all_signatures(&self) -> Result<BTreeMap<ObjectId, Vec<KeyId>>, ArchiveError> {
        let mut found: BTreeMap<ObjectId, Vec<KeyId>> = BTreeMap::new();
        let (mut after, mut count) = (None, 0);
        while count < SIGNATURES_MAX {
            let listed = self.store().list(SIGNATURES, after.as_ref())?;
            count += listed.len();
            for object in &listed {
                if let Some((manifest, key)) = parse(&object.name) {
                    found.entry(manifest).or_default().push(key);
                }
            }
            match listed.into_iter().next_back() {
                Some(last) => after = Some(last.name),
                None => break,
            }
        }
        Ok(found)
    }

    /// Returns whether a key has signed an image, whose manifest is `object`.
    fn is_signed_by(&self, image: &ImageRecord, object: &[u8], key: &PublicKey) -> Result<bool, ArchiveError> {
        match self.signature(image, key.id()) {
            Ok(signature) => Ok(signature.is_some_and(|signature| key.verifies(object, &signature))),
            Err(ArchiveError::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns the name of the signature of a manifest by a key.
pub(super) fn object_name(manifest: ObjectId, key: KeyId) -> ObjectName {
    ObjectName::new(&format!("{SIGNATURES}{manifest}/{}", key.name())).expect("digits make a name")
}

/// Returns what the name of a signature says.
pub(super) fn parse(name: &ObjectName) -> Option<(ObjectId, KeyId)> {
    let (manifest, key) = name.as_str().strip_prefix(SIGNATURES)?.rsplit_once('/')?;
    Some((ObjectId::from_name(manifest)?, KeyId::from_name(key)?))
}
