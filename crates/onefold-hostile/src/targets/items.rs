//! Decoders of the values in the names tree.

use onefold_pool::Ino;
use onefold_pool::format::inode::Inode;
use onefold_pool::format::items::{self, DirItem, FilterRun, ReclaimItem};
use onefold_pool::tree::Key;

use crate::Choices;

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    match choices.below(6) {
        0 => {
            let value = value(&mut choices, 128);
            if let Some(inode) = Inode::decode(Ino(9), &value) {
                assert_eq!(Inode::decode(Ino(9), &inode.encode()), Some(inode));
            }
        }
        1 => {
            let value = value(&mut choices, 224);
            if let Some(inode) = Inode::decode(Ino(9), &value) {
                assert_eq!(Inode::decode(Ino(9), &inode.encode()), Some(inode));
            }
        }
        2 => {
            if let Some(item) = DirItem::decode(choices.take_rest()) {
                assert_eq!(DirItem::decode(&item.encode()), Some(item));
            }
        }
        3 => {
            if let Some((name, bytes, value)) = items::xattr_split(choices.take_rest()) {
                assert!(name.len() <= onefold_pool::NAME_BYTES_MAX && bytes <= onefold_pool::XATTR_BYTES_MAX);
                assert!(value.len() <= bytes, "a first chunk longer than the whole");
            }
        }
        4 => {
            if let Some(item) = ReclaimItem::decode(choices.take_rest()) {
                assert_eq!(ReclaimItem::decode(&item.encode()), Some(item));
            }
        }
        _ => {
            let key = Key { ino: choices.below(2), kind: choices.byte(), sub: choices.number() };
            let _ = items::item_kind(&key);
            if let Some(run) = FilterRun::decode(choices.take_rest()) {
                assert_eq!(FilterRun::decode(&run.encode()), Some(run));
            }
        }
    }
}

/// Returns a regular file's inode of `length` bytes, now and then another length, overwritten by the input's bytes.
fn value(choices: &mut Choices<'_>, length: usize) -> Vec<u8> {
    let mut value = vec![0; length];
    (value[0], value[3]) = (1, 1);
    let cut = choices.byte();
    while !choices.is_used_up() {
        let first = choices.index(length);
        let count = 1 + choices.index(8);
        for (place, byte) in value[first..].iter_mut().zip(choices.take(count)) {
            *place = *byte;
        }
    }
    value.truncate(if cut > 250 { usize::from(cut) - 200 } else { length });
    value
}
