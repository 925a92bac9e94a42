//! Decides whether a text fits into a rectangle in any font of a browser, by the widths of a wide font.

use onefold_block::shown::ShownText;

/// Minimum number of characters of a truncated text. A shorter text is meaningless.
const CHARACTERS_MIN: usize = 5;

/// A size of text in a drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Font {
    /// The CSS class of the text.
    pub(super) class: &'static str,
    /// Height of the letters, in units of the drawing.
    pub(super) size: f64,
    /// Distance between lines.
    pub(super) line: f64,
    pub(super) is_bold: bool,
}

impl Font {
    /// Returns the maximum width of the text.
    pub(super) fn width(self, text: &str) -> f64 {
        text.chars().map(|character| self.advance(character)).sum()
    }

    fn advance(self, character: char) -> f64 {
        let part = match character {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' | '/' | '(' | ')' | '·' => 0.36,
            'f' | 'r' | 't' | '-' => 0.44,
            'c' | 'k' | 's' | 'v' | 'x' | 'y' | 'z' | '_' => 0.6,
            'm' | 'M' | 'w' | 'W' | '@' | '%' | '…' => 1.02,
            'a'..='z' | '0'..='9' => 0.65,
            'A'..='Z' => 0.83,
            // Symbols, and letters of other scripts, some of which are as wide as they are high.
            _ => 1.1,
        };
        part * self.size * if self.is_bold { 1.12 } else { 1.0 }
    }

    /// Returns the text in its displayed form, if it fits into `room`.
    pub(super) fn whole(self, text: &str, room: f64) -> Option<String> {
        let text = ShownText::line(text).to_string();
        (self.width(&text) <= room).then_some(text)
    }

    /// Returns the text in its displayed form, or its beginning with an ellipsis, if that fits into `room`.
    pub(super) fn beginning(self, text: &str, room: f64) -> Option<String> {
        let text = ShownText::line(text).to_string();
        let mut width = 0.0;
        let mut cut = None;
        for (count, (at, character)) in text.char_indices().enumerate() {
            if width + self.advance('…') <= room {
                cut = (count >= CHARACTERS_MIN).then_some(at);
            }
            width += self.advance(character);
            if width > room {
                return cut.and_then(|end| text.get(..end)).map(|start| format!("{start}…"));
            }
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FONT: Font = Font { class: "", size: 10.0, line: 12.0, is_bold: false };

    #[test]
    fn a_text_is_whole_cut_or_not_there_and_never_too_wide() {
        assert_eq!(FONT.beginning("linux-image", 100.0).as_deref(), Some("linux-image"));
        assert_eq!(FONT.beginning("linux-image", 50.0).as_deref(), Some("linux-i…"));
        assert_eq!(FONT.beginning("linux-image", 30.0), None);
        assert_eq!(FONT.whole("linux-image", 55.0), None);
        assert_eq!(FONT.beginning("", 0.0).as_deref(), Some(""));
        for room in 0..400 {
            let room = f64::from(room) / 2.0;
            for text in
                ["usr", "/usr/share/locale", "WWWWWWWWWWWWWW", "磁盘イメージ磁盘イメージ", "a\u{202e}\u{1b}bcdefgh"]
            {
                let shown = FONT.beginning(text, room);
                assert!(shown.is_none_or(|shown| FONT.width(&shown) <= room), "{text} in {room}");
            }
        }
    }

    #[test]
    fn a_giant_name_is_cut() {
        let shown = FONT.beginning(&"x".repeat(10_000_000), 200.0);
        assert!(shown.is_some_and(|shown| shown.chars().count() < 40));
    }

    #[test]
    fn hidden_characters_are_measured_as_they_are_shown() {
        let shown = FONT.beginning("\u{202e}abc", 1000.0);
        assert_eq!(shown.as_deref(), Some("\\u{202e}abc"));
    }
}
