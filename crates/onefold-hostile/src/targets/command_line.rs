//! Sizes as users write them on the command line.

use std::str::FromStr;

use crate::Choices;

// The binary has no library to link here.
#[allow(dead_code, reason = "the target uses what parses and prints sizes, not all of the module")]
#[path = "../../../onefold/src/size.rs"]
mod size;

use size::{ByteSize, grouped, human};

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let text = if choices.below(2) == 0 {
        String::from_utf8_lossy(choices.take_rest()).into_owned()
    } else {
        let letters: Vec<char> = "0123456789.kKmMgGtTpPiIbB \u{130}\u{df}-+e".chars().collect();
        std::iter::from_fn(|| (!choices.is_used_up()).then(|| *choices.one_of(&letters))).take(30).collect()
    };
    if let Ok(ByteSize(size)) = ByteSize::from_str(&text) {
        assert_eq!(ByteSize::from_str(&size.to_string()), Ok(ByteSize(size)), "{text:?}");
        assert!(!human(size).is_empty() && grouped(size).replace(',', "") == size.to_string());
    }
}
