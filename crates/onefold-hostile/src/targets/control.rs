//! Messages of the control socket, as either side decodes them.

use onefold_export::control::{ControlReply, ControlRequest};

use crate::Choices;

const SOUND: [&str; 8] = [
    r#"{"verb":"stat"}"#,
    r#"{"verb":"file-stat"}"#,
    r#"{"verb":"scrub","bytes_per_second":18446744073709551615}"#,
    r#"{"verb":"umount"}"#,
    r#"{"reply":"progress","done":1,"total":2}"#,
    r#"{"reply":"done","answer":{"answer":"bytes","bytes":7}}"#,
    r#"{"reply":"failed","kind":"no-space","message":"no"}"#,
    concat!(
        r#"{"reply":"done","answer":{"answer":"scrub","report":{"problems":[{"structure":"data","block":12,"files":["a"],"#,
        r#""what":"x"}],"problems_total":4,"data_blocks_hashed":9,"stopped":true}}}"#
    ),
];

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let line = if choices.below(2) == 0 {
        choices.take_rest().to_vec()
    } else {
        let mut line = choices.one_of(&SOUND).as_bytes().to_vec();
        while !choices.is_used_up() {
            let at = choices.index(line.len());
            match choices.below(4) {
                0 => line[at] = choices.byte(),
                1 => line.insert(at, choices.byte()),
                2 if line.len() > 1 => drop(line.remove(at)),
                _ => line.extend_from_within(at..(at + 20).min(line.len())),
            }
        }
        line
    };
    if let Ok(request) = serde_json::from_slice::<ControlRequest>(&line) {
        let again = serde_json::to_vec(&request).expect("a request can be written");
        assert_eq!(serde_json::from_slice::<ControlRequest>(&again).ok(), Some(request));
    }
    if let Ok(reply) = serde_json::from_slice::<ControlReply>(&line) {
        let again = serde_json::to_vec(&reply).expect("a reply can be written");
        assert_eq!(serde_json::from_slice::<ControlReply>(&again).ok(), Some(reply));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: two of the sound messages had a form that no version ever had, so inputs grown from them never came
    /// near a message.
    #[test]
    fn the_sound_messages_are_understood() {
        for text in SOUND {
            let is_request = serde_json::from_str::<ControlRequest>(text).is_ok();
            assert!(is_request || serde_json::from_str::<ControlReply>(text).is_ok(), "{text}");
        }
    }
}
