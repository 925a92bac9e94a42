use onefold_block::Random;
use onefold_block::random::SeededRandom;

use super::*;

fn header(opcode: u32) -> RequestHeader {
    RequestHeader { opcode, unique: 9, node: 5, uid: 1, gid: 2, pid: 77 }
}

fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(RequestHeader::BYTES + body.len()).unwrap();
    let mut bytes = Vec::new();
    for word in [length, opcode] {
        bytes.extend(word.to_ne_bytes());
    }
    for word in [9u64, 5] {
        bytes.extend(word.to_ne_bytes());
    }
    for word in [1u32, 2, 77, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(body);
    bytes
}

fn set_attr_body(given: u32, seconds: i64, nanoseconds: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(given.to_ne_bytes());
    body.extend([0; 12]);
    body.extend(4096u64.to_ne_bytes());
    body.extend([0; 8]);
    for _ in 0..3 {
        body.extend(seconds.to_ne_bytes());
    }
    for _ in 0..3 {
        body.extend(nanoseconds.to_ne_bytes());
    }
    for word in [0o104_755u32, 0, 10, 11, 0] {
        body.extend(word.to_ne_bytes());
    }
    body
}

#[test]
fn a_header_is_read_and_its_length_must_be_true() {
    let bytes = request(1, b"name\0");
    let (found, body) = RequestHeader::decode(&bytes).unwrap();
    assert_eq!((found, body), (header(1), &b"name\0"[..]));
    assert_eq!(Operation::decode(&found, body, true), Ok(Operation::Lookup { name: b"name" }));
    assert_eq!(RequestHeader::decode(&bytes[..bytes.len() - 1]), Err(MalformedRequest));
    assert_eq!(RequestHeader::decode(&bytes[..RequestHeader::BYTES - 1]), Err(MalformedRequest));
}

#[test]
fn an_ioctl_is_read_with_its_number() {
    // Seen from `fstrim` on Linux 6.18: the handle, flags, the number, its argument, and the sizes of input and output.
    let mut body = 1u64.to_ne_bytes().to_vec();
    body.extend([0u32, 0xc018_5879].map(u32::to_ne_bytes).concat());
    body.extend(0x7ffe_0000u64.to_ne_bytes());
    body.extend([24u32, 24].map(u32::to_ne_bytes).concat());
    body.extend([0; 24]);
    assert_eq!(Operation::decode(&header(39), &body, true), Ok(Operation::Ioctl { command: 0xc018_5879 }));
    assert_eq!(Operation::decode(&header(39), &body[..12], true), Err(MalformedRequest));
}

#[test]
fn the_least_and_the_greatest_times_are_read_as_they_are() {
    // Seen with another decoder: a `utimensat` with a second of -2^63, which any user may request, ended the daemon.
    for seconds in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
        let body = set_attr_body(valid::ACCESSED | valid::MODIFIED, seconds, 999_999_999);
        let time = Some(TimeChange::At(Timestamp { seconds, nanoseconds: 999_999_999 }));
        let change = SetAttr { accessed: time, modified: time, ..SetAttr::default() };
        let expected = Operation::SetAttr { change, privileges: Privileges::Kept };
        assert_eq!(Operation::decode(&header(4), &body, true), Ok(expected));
    }
}

#[test]
fn only_the_attributes_that_count_are_taken() {
    let decode = |given| match Operation::decode(&header(4), &set_attr_body(given, 7, 8), true) {
        Ok(Operation::SetAttr { change, privileges }) => (change, privileges),
        other => panic!("{other:?}"),
    };
    assert_eq!(decode(0), (SetAttr::default(), Privileges::Kept));
    let owner = SetAttr { uid: Some(10), gid: Some(11), ..SetAttr::default() };
    assert_eq!(decode(valid::UID | valid::GID | valid::KILL_SUIDGID), (owner, Privileges::Dropped));
    let mode = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
    assert_eq!(decode(valid::MODE), (mode, Privileges::Kept));
    let size = SetAttr { size_bytes: Some(4096), ..SetAttr::default() };
    assert_eq!(decode(valid::SIZE), (size, Privileges::Kept));
    let now = SetAttr { accessed: Some(TimeChange::Now), modified: Some(TimeChange::Now), ..SetAttr::default() };
    let given = valid::ACCESSED | valid::ACCESSED_NOW | valid::MODIFIED | valid::MODIFIED_NOW;
    assert_eq!(decode(given), (now, Privileges::Kept));
}

#[test]
fn a_write_takes_as_much_data_as_it_says_and_has() {
    let mut body = Vec::new();
    body.extend(1u64.to_ne_bytes());
    body.extend(8192u64.to_ne_bytes());
    body.extend(3u32.to_ne_bytes());
    body.extend(4u32.to_ne_bytes());
    body.extend([0; 8]);
    body.extend(libc::O_SYNC.to_ne_bytes());
    body.extend([0; 4]);
    body.extend(b"abc");
    let expected = Operation::Write(Write {
        head: WriteHead {
            handle: 1,
            offset: 8192,
            flags: libc::O_SYNC,
            privileges: Privileges::Dropped,
            is_from_cache: false,
        },
        data: b"abc",
    });
    assert_eq!(Operation::decode(&header(16), &body, true), Ok(expected));
    let mut from_cache = body.clone();
    from_cache[20] |= 1;
    let decoded = Operation::decode(&header(16), &from_cache, true).unwrap();
    assert!(matches!(decoded, Operation::Write(Write { head, .. }) if head.is_from_cache), "{decoded:?}");
    body.pop();
    assert_eq!(Operation::decode(&header(16), &body, true), Err(MalformedRequest));
}

#[test]
fn the_handle_of_an_opening_is_read_where_its_end_or_an_fsync_names_it() {
    let body = [7u64.to_ne_bytes(), [0; 8], [0; 8]].concat();
    for (opcode, expected) in [
        (18, Operation::Release { handle: 7 }),
        (20, Operation::Sync { handle: 7 }),
        (29, Operation::ReleaseDirectory { handle: 7 }),
        (30, Operation::Sync { handle: 7 }),
    ] {
        assert_eq!(Operation::decode(&header(opcode), &body, true), Ok(expected));
        assert_eq!(Operation::decode(&header(opcode), &body[..7], true), Err(MalformedRequest));
    }
}

#[test]
fn both_forms_of_setxattr_are_read() {
    let mut short = 2u32.to_ne_bytes().to_vec();
    short.extend(1i32.to_ne_bytes());
    let mut long = short.clone();
    long.extend(1u32.to_ne_bytes());
    long.extend([0; 4]);
    for body in [&mut short, &mut long] {
        body.extend(b"user.a\0xy");
    }
    let expected =
        |drops_set_gid| Operation::SetXattr(XattrChange { name: b"user.a", value: b"xy", flags: 1, drops_set_gid });
    assert_eq!(Operation::decode(&header(21), &short, false), Ok(expected(false)));
    assert_eq!(Operation::decode(&header(21), &long, true), Ok(expected(true)));
}

#[test]
fn a_count_of_forgets_is_not_believed_beyond_the_bytes() {
    let mut body = u32::MAX.to_ne_bytes().to_vec();
    body.extend([0; 4]);
    body.extend([1; 32]);
    assert_eq!(Operation::decode(&header(42), &body, true), Err(MalformedRequest));
    body[..4].copy_from_slice(&2u32.to_ne_bytes());
    let one = u64::from_ne_bytes([1; 8]);
    assert_eq!(Operation::decode(&header(42), &body, true), Ok(Operation::Forget(vec![(one, one); 2])));
}

#[test]
fn any_bytes_are_an_operation_or_an_error() {
    let random = SeededRandom::new(11);
    let mut bytes = [0; 256];
    for round in 0..200_000 {
        random.fill(&mut bytes).unwrap();
        let opcode = u32::from(bytes[0] % 64);
        let length = usize::from(bytes[1]);
        let _ = Operation::decode(&header(opcode), &bytes[2..2 + length.min(254)], round % 2 == 0);
        let _ = RequestHeader::decode(&bytes[..length]);
    }
}
