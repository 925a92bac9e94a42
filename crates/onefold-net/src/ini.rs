//! Files of settings in the form of Amazon's tools: sections in brackets, with lines `key = value`.

use std::collections::BTreeMap;

/// Settings by section and key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ini(BTreeMap<String, BTreeMap<String, String>>);

impl Ini {
    /// Parses a text. Lines without a section, indented lines (settings of single services) and lines of another form
    /// are skipped, as Amazon's tools do. The word `profile` in front of a section's name is left out.
    pub(crate) fn parse(text: &str) -> Ini {
        let mut sections: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        let mut section = None;
        for line in text.lines() {
            if line.starts_with([' ', '\t', '#', ';']) {
                continue;
            }
            let line = line.trim();
            if let Some(name) =
                line.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(name, _)| name.trim())
            {
                let name = name.strip_prefix("profile ").unwrap_or(name).trim();
                section = Some(name.to_owned());
            } else if let (Some(section), Some((key, value))) = (&section, line.split_once('=')) {
                let settings = sections.entry(section.clone()).or_default();
                settings.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
            }
        }
        Ini(sections)
    }

    /// Returns a setting that is there and not empty.
    pub(crate) fn get(&self, section: &str, key: &str) -> Option<&str> {
        self.0.get(section)?.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_by_section_and_key() {
        let text = "stray = 1\n[default]\naws_access_key_id=A\n# note\n\n[profile lab]\nRegion = eu-west-1 \nempty =\n\
                    s3 =\n  endpoint_url = http://no\n[broken\nendpoint_url = http://127.0.0.1:1/=\n";
        let ini = Ini::parse(text);
        assert_eq!(ini.get("default", "aws_access_key_id"), Some("A"));
        assert_eq!(ini.get("lab", "region"), Some("eu-west-1"));
        assert_eq!(ini.get("lab", "endpoint_url"), Some("http://127.0.0.1:1/="));
        assert_eq!(
            (ini.get("lab", "empty"), ini.get("default", "stray"), ini.get("none", "region")),
            (None, None, None)
        );
    }
}
