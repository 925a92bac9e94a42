//! Percentages on the command line.

use std::ffi::OsString;

/// The option whose percentage may follow as a word of its own.
const SAMPLE: &str = "--sample";

/// Parses a percentage such as `5%`, `0.1%` or `5` into millionths of the whole.
pub(super) fn parse_percent(text: &str) -> Result<u32, String> {
    let wrong = || "expected a percentage from 0 to 100, such as 5% or 0.1%".to_owned();
    let number = text.strip_suffix('%').map_or(text, str::trim_end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || whole.len() > 3 || part.len() > 4 || !is_digits(whole) || !is_digits(part) {
        return Err(wrong());
    }
    let millionths: u32 = format!("{whole}{part:0<4}").parse().map_err(|_| wrong())?;
    if millionths <= 1_000_000 { Ok(millionths) } else { Err(wrong()) }
}

/// Joins each `--sample` with a percentage that follows it. `analyze` also has the option without a value, and would
/// take the percentage for a path.
pub(crate) fn with_joined_samples(arguments: Vec<OsString>) -> Vec<OsString> {
    let is_percentage =
        |word: &OsString| word.to_str().is_some_and(|text| text.ends_with('%') && parse_percent(text).is_ok());
    let mut joined: Vec<OsString> = Vec::with_capacity(arguments.len());
    let mut are_paths = false;
    for argument in arguments {
        are_paths |= argument == "--";
        match joined.last_mut().filter(|last| *last == SAMPLE) {
            Some(sample) if !are_paths && is_percentage(&argument) => {
                sample.push("=");
                sample.push(argument);
            }
            _ => joined.push(argument),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_millionths() {
        for (text, millionths) in
            [("5%", 50_000), ("5", 50_000), ("100%", 1_000_000), ("0.1 %", 1000), ("0.0001", 1), ("0%", 0)]
        {
            assert_eq!(parse_percent(text), Ok(millionths), "{text}");
        }
        for text in ["", "%", ".5%", "101%", "100.0001%", "-1%", "+1%", "5%%", "1.23456%", "1e1%", "9999%", "5 "] {
            assert!(parse_percent(text).is_err_and(|why| why.contains("such as 5%")), "{text}");
        }
    }

    #[test]
    fn a_percentage_behind_the_option_is_its_value() {
        let joined = |line: &str| {
            let words = with_joined_samples(line.split(' ').map(OsString::from).collect());
            words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(joined("onefold analyze --sample 5% a.raw"), "onefold analyze --sample=5% a.raw");
        for line in [
            "onefold analyze --sample a.raw 5%",
            "onefold analyze --sample 101% a.raw",
            "onefold analyze --sample 5 a.raw",
            "onefold analyze --sample=4% 5%",
            "onefold analyze -- --sample 5%",
        ] {
            assert_eq!(joined(line), line);
        }
    }
}
