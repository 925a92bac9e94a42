//! The present savings of sharing, in one line.

use onefold_share::block_state::States;
use serde_json::{Value, json};

use crate::size::human;

/// Returns the line for people.
pub(super) fn line(states: &States) -> String {
    let (length, taken) = (human(states.length()), human(states.taken));
    match (states.images.len(), states.saved()) {
        (0, _) => "no image is known here that could share blocks".to_owned(),
        (_, 0) => format!("Images of {length} take {taken}; sharing saves nothing yet"),
        (_, saved) => format!("Images of {length} take {taken}; sharing saves {}", human(saved)),
    }
}

/// Returns the figures for machines.
pub(super) fn json(states: &States) -> Value {
    json!({ "length_bytes": states.length(), "taken_bytes": states.taken, "saved_bytes": states.saved() })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use onefold_share::block_state::{ImageStates, StateBytes};

    use super::*;

    #[test]
    fn the_line_has_length_room_and_what_is_saved() {
        let image = |own, shared| ImageStates {
            path: PathBuf::from("a.raw"),
            template: None,
            length: 4 << 20,
            bytes: StateBytes { own, shared, ..StateBytes::default() },
        };
        let two = vec![image(1 << 20, 1 << 20), image(0, 1 << 20)];
        let states = States { images: two.clone(), taken: 2 << 20, ..States::default() };
        assert_eq!(line(&states), "Images of 8.00 MiB take 2.00 MiB; sharing saves 1.00 MiB");
        let states = States { images: two, taken: 3 << 20, ..States::default() };
        assert_eq!(line(&states), "Images of 8.00 MiB take 3.00 MiB; sharing saves nothing yet");
        assert_eq!(json(&states)["taken_bytes"], 3 << 20);
        assert!(line(&States::default()).starts_with("no image"));
    }
}
