//! Signatures of images in an archive.

use super::*;
use crate::signature::{KeyFiles, PublicKey, SecretKey};

fn new_key() -> (SecretKey, PublicKey) {
    let KeyFiles { public, secret_text } = SecretKey::create(None).unwrap();
    (SecretKey::open(&secret_text, None).unwrap(), public)
}

/// Returns an archive with the images `web@1`, `web@2` and `db@1`.
fn archive() -> (Arc<MemoryStore>, Archive) {
    let memory = Arc::new(MemoryStore::default());
    let random = SeededRandom::new(3);
    let archive = Archive::create(Arc::clone(&memory) as Arc<dyn Store>, UNITS, &random).unwrap();
    for (name, content) in [("web", 1), ("web", 2), ("db", 3)] {
        capture(&archive, &random, name, &[vec![content; 512]]);
    }
    (memory, archive)
}

fn sign(archive: &Archive, image: &ImageRecord, key: &(SecretKey, PublicKey)) -> Result<bool, ArchiveError> {
    let signature = key.0.sign(&archive.signed_bytes(image).unwrap(), "test").unwrap();
    archive.add_signature(image, &key.1, &signature, &ManualClock::starting_at(1))
}

fn signers(archive: &Archive, image: &ImageRecord, keys: &[&PublicKey]) -> usize {
    archive.signers(image, keys.iter().copied()).unwrap().len()
}

#[test]
fn several_keys_sign_an_image_and_only_that() {
    let (_, archive) = archive();
    let (one, two, stranger) = (new_key(), new_key(), new_key());
    let images = archive.images();
    let keys = [&one.1, &two.1, &stranger.1];
    assert_eq!(signers(&archive, &images[1], &keys), 0);
    assert!(sign(&archive, &images[1], &one).unwrap());
    assert!(!sign(&archive, &images[1], &one).unwrap(), "it is signed already");
    assert!(sign(&archive, &images[1], &two).unwrap());
    assert_eq!(archive.signers(&images[1], keys.into_iter()).unwrap(), [one.1.id(), two.1.id()]);
    assert_eq!((signers(&archive, &images[0], &keys), signers(&archive, &images[2], &keys)), (0, 0));
    let all = archive.all_signatures().unwrap();
    assert_eq!((all.len(), all[&images[1].manifest].len()), (1, 2));
}

#[test]
fn no_signature_passes_for_that_of_another_image_or_key() {
    let (memory, archive) = archive();
    let (key, other) = (new_key(), new_key());
    let images = archive.images();
    sign(&archive, &images[1], &key).unwrap();
    let name = |image, key: &PublicKey| Archive::signature_names(image, key.id()).1;
    let signature = memory.get(&name(&images[1], &key.1), ByteRange::Whole).unwrap();
    let text = String::from_utf8(signature.clone()).unwrap();
    let refused = archive.add_signature(&images[2], &key.1, &text, &ManualClock::starting_at(1));
    assert!(matches!(refused, Err(ArchiveError::BadSignature { .. })));
    // A hostile store puts it there all the same.
    memory.put(&name(&images[2], &key.1), &[&signature]).unwrap();
    memory.put(&name(&images[1], &other.1), &[&signature]).unwrap();
    assert_eq!((signers(&archive, &images[2], &[&key.1]), signers(&archive, &images[1], &[&other.1])), (0, 0));
    for damage in [Vec::new(), vec![0xff; 300], vec![b'\n'; 5000], signature[..100].to_vec()] {
        memory.put(&name(&images[1], &key.1), &[&damage]).unwrap();
        assert_eq!(signers(&archive, &images[1], &[&key.1]), 0);
        assert!(matches!(sign(&archive, &images[1], &key), Err(ArchiveError::BadSignature { .. })));
    }
}

#[test]
fn a_changed_manifest_is_damaged_before_its_signature_is_looked_at() {
    let (memory, archive) = archive();
    let key = new_key();
    let images = archive.images();
    sign(&archive, &images[1], &key).unwrap();
    let name = Archive::signature_names(&images[1], key.1.id()).0;
    let mut manifest = memory.get(&name, ByteRange::Whole).unwrap();
    *manifest.last_mut().unwrap() ^= 1;
    memory.put(&name, &[&manifest]).unwrap();
    assert!(matches!(archive.signers(&images[1], [&key.1].into_iter()), Err(ArchiveError::Damaged { .. })));
}
