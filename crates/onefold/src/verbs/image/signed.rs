//! Signatures of images: making them, and refusing images without one.

use std::collections::BTreeMap;

use onefold_block::clock::SystemClock;
use onefold_image::ObjectId;
use onefold_image::archive::{Archive, ArchiveError, ImageRecord};
use onefold_image::signature::{KeyId, PublicKey, SecretKey};
use onefold_image::trust::TrustedKeys;
use serde_json::{Value, json};

use crate::cli::key::Acceptance;
use crate::failure::{Failure, Outcome};
use crate::verbs::key::trusted;

/// Signs an image. Returns the key, and whether it had not signed the image before.
pub(super) fn sign(archive: &Archive, record: &ImageRecord, key: &SecretKey) -> Outcome<(KeyId, bool)> {
    let cannot = || format!("cannot sign the image `{}`", record.image);
    let of_archive = |error: ArchiveError| Failure::of_archive(cannot(), &error);
    let public = key.public().map_err(|error| Failure::new(cannot()).because(&error))?;
    let object = archive.signed_bytes(record).map_err(of_archive)?;
    let comment = format!("onefold image {} of archive {}", record.image, archive.descriptor().archive);
    let signature = key.sign(&object, &comment).map_err(|error| Failure::new(cannot()).because(&error))?;
    let is_new = archive.add_signature(record, &public, &signature, &SystemClock).map_err(of_archive)?;
    Ok((public.id(), is_new))
}

/// Fails unless the user accepts an image: its version is high enough, and a key that is trusted for its name has
/// signed it. While no key is trusted, all images are accepted.
pub(in crate::verbs) fn require(archive: &Archive, record: &ImageRecord, acceptance: Acceptance) -> Outcome<()> {
    require_of(asked(acceptance)?.as_ref(), record, acceptance, |keys| archive.signers(record, keys.iter().copied()))
}

/// As [`require`], for an image of a server: without a key that is trusted, it is refused. Otherwise the operator of
/// the server, or a machine that answers in its place, could have this machine run anything. `signers` returns those of
/// the given keys that have signed the image.
pub(super) fn require_of_server(
    record: &ImageRecord,
    acceptance: Acceptance,
    signers: impl FnOnce(&[&PublicKey]) -> Result<Vec<KeyId>, ArchiveError>,
) -> Outcome<()> {
    let trusted = asked(acceptance)?;
    if trusted.as_ref().is_some_and(TrustedKeys::is_empty) {
        return Err(Failure::new(format!("the image `{}` is refused", record.image))
            .because_of("it comes from a server, and no key is trusted on this machine")
            .hint("`onefold key trust` trusts the key that signs the images; --unsigned accepts one this time"));
    }
    require_of(trusted.as_ref(), record, acceptance, signers)
}

/// Returns the trusted keys; `None` if an image needs no signature this time.
fn asked(acceptance: Acceptance) -> Outcome<Option<TrustedKeys>> {
    if acceptance.unsigned { Ok(None) } else { trusted::all().map(Some) }
}

/// As [`require`]; `signers` returns those of the given keys that have signed the image.
fn require_of(
    trusted: Option<&TrustedKeys>,
    record: &ImageRecord,
    acceptance: Acceptance,
    signers: impl FnOnce(&[&PublicKey]) -> Result<Vec<KeyId>, ArchiveError>,
) -> Outcome<()> {
    let cannot = || format!("the image `{}` is refused", record.image);
    if let Some(least) = acceptance.at_least.filter(|least| record.image.version < *least) {
        return Err(Failure::new(cannot())
            .because_of(format!("its version is lower than {least}"))
            .hint("`onefold image list` shows all versions; somebody may have put back an old archive"));
    }
    let Some(trusted) = trusted.filter(|trusted| !trusted.is_empty()) else { return Ok(()) };
    let keys: Vec<&PublicKey> = trusted.of_name(&record.image.name).map(|key| key.key()).collect();
    let hint = "`onefold image sign` signs it; --unsigned accepts it this time";
    if keys.is_empty() {
        return Err(Failure::new(cannot())
            .because_of("keys are trusted on this machine, but none for this name")
            .hint("`onefold key trust` trusts a key for a name; --unsigned accepts the image this time"));
    }
    match signers(&keys).map_err(|error| Failure::of_archive(cannot(), &error))?.is_empty() {
        true => Err(Failure::new(cannot()).because_of("no key that is trusted for its name has signed it").hint(hint)),
        false => Ok(()),
    }
}

/// The signers of the images of an archive.
pub(super) struct Signers {
    trusted: TrustedKeys,
    all: BTreeMap<ObjectId, Vec<KeyId>>,
}

/// A signature of an image.
pub(super) struct Signer {
    key: KeyId,
    state: SignerState,
    /// Note beside a trusted key.
    note: String,
}

/// Verdict about a signature.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SignerState {
    /// It is valid, and the key is trusted for the name.
    Trusted,
    /// The key is trusted for the name, and the signature is not valid.
    Invalid,
    /// The key is not trusted for the name, so nothing is known about the signature.
    Unknown,
}

impl Signers {
    pub(super) fn read(archive: &Archive) -> Outcome<Signers> {
        let all = archive.all_signatures();
        let all = all.map_err(|error| Failure::of_archive("cannot list the signatures of the archive", &error))?;
        Ok(Signers { trusted: trusted::all()?, all })
    }

    /// Returns the signatures of an image. Those by trusted keys are verified.
    pub(super) fn of(&self, archive: &Archive, record: &ImageRecord) -> Outcome<Vec<Signer>> {
        let Some(ids) = self.all.get(&record.manifest) else {
            return Ok(Vec::new());
        };
        let keys = || self.trusted.of_name(&record.image.name).filter(|key| ids.contains(&key.key().id()));
        let valid = archive.signers(record, keys().map(|key| key.key()));
        let valid = valid.map_err(|error| {
            Failure::of_archive(format!("cannot verify the signatures of `{}`", record.image), &error)
        })?;
        let signer = |id: &KeyId| {
            let key = keys().find(|key| key.key().id() == *id);
            let state = match key {
                Some(_) if valid.contains(id) => SignerState::Trusted,
                Some(_) => SignerState::Invalid,
                None => SignerState::Unknown,
            };
            Signer { key: *id, state, note: key.map(|key| key.note().to_owned()).unwrap_or_default() }
        };
        Ok(ids.iter().map(signer).collect())
    }
}

impl Signer {
    /// Returns the signer for people: the note of a trusted key, or the number of the key.
    pub(super) fn text(&self) -> String {
        match (self.state, self.note.as_str()) {
            (SignerState::Trusted, "") => self.key.to_string(),
            (SignerState::Trusted, note) => note.to_owned(),
            (SignerState::Invalid, _) => format!("{} (not valid)", self.key),
            (SignerState::Unknown, _) => format!("{} (not trusted)", self.key),
        }
    }

    /// Returns the signer for programs.
    pub(super) fn json(&self) -> Value {
        let state = match self.state {
            SignerState::Trusted => "trusted",
            SignerState::Invalid => "invalid",
            SignerState::Unknown => "unknown",
        };
        json!({ "key": self.key.to_string(), "state": state, "note": self.note })
    }
}
