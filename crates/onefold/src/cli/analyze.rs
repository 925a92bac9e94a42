//! Arguments of `onefold analyze`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use glob::Pattern;
use onefold_report::Share;

use super::percent::parse_percent;
use super::temporary::TemporaryArg;
use super::values::InputFormat;
use crate::size::ByteSize;

/// Arguments of `analyze`.
#[derive(Args, Debug)]
pub(crate) struct AnalyzeArgs {
    /// Images, block devices, archived images as ARCHIVE#IMAGE, folders of images (all files from 1 MiB on, by name),
    /// and archives (the newest version of each image); the order tells how storage grows
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Put images whose path or name matches a pattern such as `debian-*` into a group; the first match counts
    #[arg(long, value_name = "NAME=PATTERN")]
    pub(crate) group: Vec<GroupArg>,
    /// Also look at all images with one to seven sectors of zeros before them; takes eight times as long
    #[arg(long)]
    pub(crate) shifts: bool,
    /// Also tell what the blocks belong to: packages and folders of the guests, metadata, free blocks that are not
    /// zero, and misaligned volumes
    #[arg(long)]
    pub(crate) files: bool,
    /// Also show the findings for each image and block size, how blocks repeat, and which images are alike
    #[arg(long)]
    pub(crate) details: bool,
    /// Read only a share of each image, such as 8% (4% if none is named), and report ranges instead of exact numbers;
    /// for large sets
    #[arg(
        long,
        value_name = "SHARE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "4%",
        conflicts_with_all = ["shifts", "group", "files"]
    )]
    pub(crate) sample: Option<ShareArg>,
    /// Also write the report as one page of HTML with figures; replaces a report that is there
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Format of the images; by default, it is detected from their first bytes
    #[arg(long, value_enum)]
    pub(crate) format: Option<InputFormat>,
    /// Also accept backing files in this folder and below it, besides the image's own folder
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) backing_from: Vec<PathBuf>,
    /// Upper limit of memory; what does not fit goes into temporary files
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub(crate) memory: ByteSize,
    #[command(flatten)]
    pub(crate) temporary: TemporaryArg,
}

/// A group of images: `NAME=PATTERN`.
#[derive(Clone, Debug)]
pub(crate) struct GroupArg {
    pub(crate) name: String,
    pub(crate) pattern: Pattern,
}

impl FromStr for GroupArg {
    type Err = String;

    fn from_str(text: &str) -> Result<GroupArg, String> {
        let (name, pattern) = text.split_once('=').ok_or("expected NAME=PATTERN")?;
        if name.is_empty() {
            return Err("a group needs a name before the `=`".to_owned());
        }
        let pattern = Pattern::new(pattern).map_err(|error| format!("`{pattern}` is no pattern: {error}"))?;
        Ok(GroupArg { name: name.to_owned(), pattern })
    }
}

impl GroupArg {
    /// Tells whether an image belongs to it, by its path or by its last part.
    pub(crate) fn takes(&self, path: &std::path::Path) -> bool {
        self.pattern.matches_path(path) || path.file_name().is_some_and(|name| self.pattern.matches_path(name.as_ref()))
    }
}

/// A part of the whole: `4%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ShareArg(pub(crate) Share);

impl FromStr for ShareArg {
    type Err = String;

    fn from_str(text: &str) -> Result<ShareArg, String> {
        let part = f64::from(parse_percent(text)?) / 1e6;
        let range = || format!("from {}% to {}%", Share::MIN.part() * 100.0, Share::MAX.part() * 100.0);
        Share::new(part).map(ShareArg).ok_or_else(|| format!("a sample is {}, such as 4%", range()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn groups_take_paths_and_names() {
        let group: GroupArg = "debian=debian-*".parse().unwrap();
        assert!(group.takes(Path::new("/images/debian-12.raw")));
        assert!(!group.takes(Path::new("/debian-12/fedora.raw")));
        let group: GroupArg = "old=/images/old/*".parse().unwrap();
        assert!(group.takes(Path::new("/images/old/a.raw")));
        assert!(!group.takes(Path::new("/images/new/a.raw")));
    }

    #[test]
    fn what_is_no_group_is_refused() {
        for text in ["debian", "=x", "a=[", ""] {
            assert!(text.parse::<GroupArg>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_is_a_percentage_that_a_sample_can_have() {
        for (text, part) in [("4%", 0.04), ("8", 0.08), ("12.5 %", 0.125), ("0.1%", 0.001), ("50%", 0.5)] {
            let share: ShareArg = text.parse().unwrap();
            assert!((share.0.part() - part).abs() < 1e-12, "{text}");
        }
        assert_eq!("4%".parse(), Ok(ShareArg(Share::USUAL)), "as the command line's own default");
        for text in ["", "%", "60", "x%", "0%", "51%", "-4%", "NaN%", "inf%"] {
            assert!(text.parse::<ShareArg>().is_err(), "{text}");
        }
    }
}
