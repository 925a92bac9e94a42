//! Uncertain facts about an image: the first ones as sentences, the others as a number. Some of them are damage.

/// Maximum number of sentences.
const DOUBTS_MAX: usize = 19;

/// Doubts about an image.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    first: Vec<String>,
    count: usize,
    /// Whether one of them is damage.
    has_damage: bool,
}

impl Doubts {
    /// Records a doubt, once.
    pub(super) fn note(&mut self, doubt: String) {
        if self.first.contains(&doubt) {
            return;
        }
        self.count += 1;
        if self.first.len() < DOUBTS_MAX {
            self.first.push(doubt);
        }
    }

    /// Records damage that was skipped, once.
    pub(super) fn note_damage(&mut self, damage: String) {
        self.has_damage = true;
        self.note(damage);
    }

    /// Returns whether damage was skipped.
    pub(super) fn has_damage(&self) -> bool {
        self.has_damage
    }

    /// Returns the first doubts, and a sentence about the number of others.
    pub(super) fn into_sentences(mut self) -> Vec<String> {
        let more = self.count - self.first.len();
        if more > 0 {
            self.first.push(format!("and {more} more"));
        }
        self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubts_are_told_once_and_never_too_many() {
        let mut doubts = Doubts::default();
        for number in 0..100 {
            doubts.note(format!("doubt {number}"));
            doubts.note("doubt 0".to_owned());
        }
        assert!(!doubts.has_damage());
        doubts.note_damage("doubt 0".to_owned());
        assert!(doubts.has_damage(), "also if the sentence is known");
        let told = doubts.into_sentences();
        assert_eq!((told.len(), told[19].as_str()), (20, "and 81 more"));
    }
}
