//! Bytes that must never change: archives of each released version stay readable.

use super::*;

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn headers_of_units_have_these_bytes() {
    let found: Vec<String> = samples::unit_headers().iter().map(|header| hexadecimal(header)).collect();
    let expected =
        ["00000000000000000500000005000000", "01000000000000002823000000000200", "01000000000000000100000000001000"];
    assert_eq!(found, expected);
}

#[test]
fn a_frame_has_these_bytes() {
    let descriptor = &samples::descriptors()[0];
    let expected = concat!(
        "31666f6c6461726301000100000000",
        "00a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1",
        "000000000000000000000000000000000000000000000000",
        "9000000000000000",
        "1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f",
        "01000000000002000000000400000000",
    );
    assert_eq!(hexadecimal(&descriptor[..descriptor.len() - DIGEST_BYTES]), expected);
}

#[test]
fn a_datagram_begins_with_these_bytes() {
    let found: Vec<String> = multicast::headers().iter().map(|header| hexadecimal(header)).collect();
    let expected =
        ["0101010203040100000000000000", "0102010203040000000000010000", "010301020304ffffffffffffffff07000000"];
    assert_eq!(found, expected);
}

#[test]
fn every_structure_has_these_digests() {
    let mut found = String::new();
    for (structure, samples, _) in structures() {
        for sample in samples {
            let digest = hexadecimal(&blake3::hash(&sample).as_bytes()[..8]);
            found.push_str(&format!("{structure} {} {digest}\n", sample.len()));
        }
    }
    assert_eq!(found, EXPECTED);
}

/// Each sample's structure, its length, and the first bytes of its BLAKE3 digest.
const EXPECTED: &str = "\
descriptor 144 9f95c18810f59b82
descriptor 144 6472b415153daceb
entry 190 1f9ec5d6058b59bb
entry 329 c0b5f352e77484a3
entry 257 da34538a6fe154e1
entry 193 e39fa0f5792d2a7d
entry 204 444e8203163da0b8
entry 280 a904d76da5f09f0d
entry 252 93e5a94b7a9ccf86
entry 192 3c4d6a4dba980d47
entry 244 80cd485d2b35aa21
manifest 505 13567fd7eaaee6ef
manifest 217 814e28617b4b3b88
manifest 451 818434859dbf3c32
snapshot 716 3b3808806a6de434
snapshot 172 a8fc50dd27e2e27e
segment 212 e00d5a9fea494801
segment 104 c41ddaf7d4355908
chunk header 151 6f6ed344b017fd2a
chunk header 11 ba7ddb5e8b8ce11a
unit header 16 3152b642a7840fd1
unit header 16 92046119fdcf4b7c
unit header 16 811e93c653cc7a7e
pack 411 a7cbf72b7ffb0dbc
multicast header 14 21fc0e952983137d
multicast header 14 55761e272a59a047
multicast header 18 d775d7a58d1a80cf
multicast symbol 142 9b511bfbe025dd0b
multicast symbol 58 e0a72a804d4c3e9f
multicast symbol 142 b0b950aee2fe7430
multicast beacon 22 529f7022f08e501c
multicast beacon 48 2a113a3e6acf89ca
multicast request 30 392d892c704d816f
multicast request 80 d51edf6a4f48c0c7
multicast join 59 4c06dedc27764f72
multicast join 123 f2f6283d92c60cac
";
