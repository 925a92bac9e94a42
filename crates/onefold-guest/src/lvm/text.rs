//! The text form of LVM2's metadata (`lib/config/config.c` of LVM2): sections in braces, values after `=`, comments
//! after `#`.

use std::borrow::Cow;

/// Maximum nesting. Real metadata has four levels.
const DEPTH_MAX: usize = 16;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Number(i64),
    Text(Cow<'a, str>),
    List(Vec<Value<'a>>),
    Section(Section<'a>),
    /// A number with a fraction, or out of range.
    Other,
}

/// The entries of a section in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Section<'a>(pub(super) Vec<(Cow<'a, str>, Value<'a>)>);

impl<'a> Section<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&Value<'a>> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the number of a key, if it is not negative.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn list(&self, key: &str) -> Option<&[Value<'a>]> {
        match self.get(key)? {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the sections below a key, by name; none if there is no such key.
    pub(super) fn sections(&self, key: &str) -> impl Iterator<Item = (&str, &Section<'a>)> {
        let below = match self.get(key) {
            Some(Value::Section(section)) => &section.0[..],
            _ => &[],
        };
        below.iter().filter_map(|(name, value)| match value {
            Value::Section(section) => Some((&**name, section)),
            _ => None,
        })
    }
}

/// Parses the sections and values of a text; `None` if it violates the grammar.
pub(super) fn parse(text: &[u8]) -> Option<Section<'_>> {
    let mut parser = Parser { rest: text };
    let section = parser.section(0)?;
    parser.rest.is_empty().then_some(section)
}

struct Parser<'a> {
    rest: &'a [u8],
}

impl<'a> Parser<'a> {
    /// Parses the entries up to the closing brace, which it leaves, or to the end of the text.
    fn section(&mut self, depth: usize) -> Option<Section<'a>> {
        let mut entries = Vec::new();
        loop {
            self.skip_blanks();
            match self.rest.first() {
                None | Some(b'}') => return Some(Section(entries)),
                Some(_) => entries.push(self.entry(depth)?),
            }
        }
    }

    fn entry(&mut self, depth: usize) -> Option<(Cow<'a, str>, Value<'a>)> {
        let name = if self.rest.starts_with(b"\"") { self.quoted()? } else { self.word()? };
        self.skip_blanks();
        if self.takes(b'=') {
            self.skip_blanks();
            return Some((name, self.value(depth)?));
        }
        if depth == DEPTH_MAX || !self.takes(b'{') {
            return None;
        }
        let section = self.section(depth + 1)?;
        self.takes(b'}').then_some((name, Value::Section(section)))
    }

    fn value(&mut self, depth: usize) -> Option<Value<'a>> {
        match self.rest.first()? {
            b'"' => Some(Value::Text(self.quoted()?)),
            b'[' if depth < DEPTH_MAX => self.list(depth + 1),
            _ => {
                let word = self.word()?;
                Some(word.parse().map_or(Value::Other, Value::Number))
            }
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value<'a>> {
        self.takes(b'[');
        let mut values = Vec::new();
        loop {
            self.skip_blanks();
            if self.takes(b']') {
                return Some(Value::List(values));
            }
            values.push(self.value(depth)?);
            self.skip_blanks();
            if !self.takes(b',') && !self.rest.starts_with(b"]") {
                return None;
            }
        }
    }

    fn word(&mut self) -> Option<Cow<'a, str>> {
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"={}[],#\"".contains(byte);
        let length = self.rest.iter().position(is_end).unwrap_or(self.rest.len());
        (length > 0).then(|| String::from_utf8_lossy(self.take(length)))
    }

    /// Parses a quoted text. A backslash escapes the next byte.
    fn quoted(&mut self) -> Option<Cow<'a, str>> {
        self.takes(b'"');
        let plain = self.rest.iter().position(|byte| b"\"\\".contains(byte))?;
        let text = self.take(plain);
        if self.takes(b'"') {
            return Some(String::from_utf8_lossy(text));
        }
        let mut escaped = text.to_vec();
        loop {
            match *self.take_one()? {
                b'"' => return Some(Cow::Owned(String::from_utf8_lossy(&escaped).into_owned())),
                b'\\' => escaped.push(*self.take_one()?),
                byte => escaped.push(byte),
            }
        }
    }

    fn skip_blanks(&mut self) {
        loop {
            self.rest = self.rest.trim_ascii_start();
            if !self.rest.starts_with(b"#") {
                return;
            }
            let line = self.rest.iter().position(|byte| *byte == b'\n').unwrap_or(self.rest.len());
            self.take(line);
        }
    }

    /// Consumes `byte` if it comes next.
    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.rest.first() == Some(&byte);
        if is_next {
            self.take(1);
        }
        is_next
    }

    fn take_one(&mut self) -> Option<&'a u8> {
        self.take(1).first()
    }

    /// Consumes up to `length` bytes.
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_lists_texts_and_comments_are_read() {
        let text = b"# made by hand\nvg {\n\tid = \"a\\\"b\\\\\"\n\tseqno=7 # seventh\n\tflags = []\n\tpair = [\"pv0\", 12,\n -3]\n
            deep { er { x = 1.5 } } }\ncreation_time = 1";
        let root = parse(text).unwrap();
        let (_, vg) = root.0.first().map(|(name, _)| (name, root.get("vg").unwrap())).unwrap();
        let Value::Section(vg) = vg else { panic!("{vg:?}") };
        assert_eq!(
            (vg.text("id"), vg.number("seqno"), root.number("creation_time")),
            (Some("a\"b\\"), Some(7), Some(1))
        );
        assert_eq!(vg.list("flags"), Some(&[][..]));
        let pair = [Value::Text("pv0".into()), Value::Number(12), Value::Number(-3)];
        assert_eq!(vg.list("pair"), Some(&pair[..]));
        let (name, deeper) = vg.sections("deep").next().unwrap();
        assert_eq!((name, deeper.get("x")), ("er", Some(&Value::Other)));
        assert_eq!(vg.sections("none").count() + vg.sections("id").count(), 0);
    }

    #[test]
    fn what_breaks_the_grammar_is_none() {
        let deep = b"a{".repeat(100_000);
        let lists = [&b"a="[..], &b"[".repeat(100_000)].concat();
        let broken: [&[u8]; 12] = [
            b"a",
            b"a {",
            b"a }",
            b"}",
            b"a = ",
            b"a = [1 2]",
            b"a = [1",
            b"a = \"x",
            b"a = \"x\\",
            b"= 1",
            &deep,
            &lists,
        ];
        for text in broken {
            assert_eq!(parse(text), None, "{}", String::from_utf8_lossy(&text[..text.len().min(20)]));
        }
        assert_eq!(parse(b""), Some(Section::default()));
    }
}
