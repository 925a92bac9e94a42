//! The options of `onefold pool mount` as mount(8) and `/etc/fstab` spell them, derived from the command line.

use std::error::Error;
use std::ffi::OsStr;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Args, Command};

use crate::cli::pool::MountArgs;
use crate::failure::{Failure, Outcome};

/// Flags of the command that make no sense in a table of mounts.
const NOT_FOR_MOUNT: [&str; 1] = ["foreground"];

/// An option of a mounted pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountOption {
    /// Its name, as in `commit_interval`.
    pub(crate) name: String,
    /// The name of its value, as in `TIME`; `None` if it takes no value.
    pub(crate) value: Option<String>,
    /// Its default value, if it has one.
    pub(crate) default: Option<String>,
    /// Text of the help.
    pub(crate) help: String,
}

impl MountOption {
    /// Returns the option with the name of its value, as in `memory=SIZE`.
    pub(crate) fn synopsis(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={value}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Returns all options, in the order of the command's help.
pub(crate) fn all() -> Vec<MountOption> {
    command().get_arguments().filter_map(option_of).collect()
}

fn command() -> Command {
    MountArgs::augment_args(Command::new("mount"))
}

fn option_of(argument: &Arg) -> Option<MountOption> {
    let long = argument.get_long().filter(|long| !argument.is_hide_set() && !NOT_FOR_MOUNT.contains(long))?;
    let name = if long == "read-only" { "ro".to_owned() } else { long.replace('-', "_") };
    let takes_value = argument.get_action().takes_values();
    let choices: Vec<_> = argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let value_name = || argument.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let value = match choices.is_empty() {
        true => value_name().unwrap_or_else(|| long.to_uppercase()),
        false => choices.join("|"),
    };
    let default = argument.get_default_values().first().and_then(|default| default.to_str()).map(str::to_owned);
    Some(MountOption {
        name,
        value: takes_value.then_some(value),
        default: default.filter(|_| takes_value),
        help: argument.get_help().map(ToString::to_string).unwrap_or_default(),
    })
}

/// Returns whether the daemon, and not the kernel, implements an option such as `memory=2G`.
pub(crate) fn is_of_daemon(option: &str) -> bool {
    // The table of mounts always has the last one, whatever was asked for.
    const ALSO_OF_KERNEL: [&str; 3] = ["ro", "noatime", "allow_other"];
    let name = name_of(option);
    !ALSO_OF_KERNEL.contains(&name.as_str()) && all().iter().any(|known| known.name == name)
}

/// Returns the name of an option such as `memory=2G`. A dash counts as an underscore.
fn name_of(option: &str) -> String {
    option.split('=').next().unwrap_or_default().replace('-', "_")
}

/// Checks an option such as `memory=2G`, of which `flag` is the form for the command line.
///
/// # Errors
/// The failure names the option as the user gave it, and what is valid instead.
pub(crate) fn check(option: &str, flag: &OsStr) -> Outcome<()> {
    let name = name_of(option);
    let Some(known) = all().into_iter().find(|known| known.name == name) else {
        let names: Vec<_> = all().iter().map(MountOption::synopsis).collect();
        return Err(Failure::usage(format!("`{option}` is not an option of `mount -t fuse.onefold`"))
            .hint(format!("valid are {}; mount.fuse.onefold(8) explains them", names.join(", "))));
    };
    let invalid = || Failure::usage(format!("the mount option `{option}` is not valid"));
    let hint = || format!("`{}`: {}", known.synopsis(), known.help);
    // The command line would take the next argument for the value.
    if known.value.is_some() && option.split_once('=').is_none_or(|(_, value)| value.is_empty()) {
        return Err(invalid().because_of("its value is missing").hint(hint()));
    }
    let pool_and_directory = ["POOL", "DIRECTORY"].map(OsStr::new);
    let words = [OsStr::new("mount"), flag].into_iter().chain(pool_and_directory);
    let parsed = command().try_get_matches_from(words).map(drop);
    parsed.map_err(|error| invalid().because_of(reason_of(&error, &known)).hint(hint()))
}

/// Returns why the value of an option is refused, without the words of the command line.
fn reason_of(error: &clap::Error, option: &MountOption) -> String {
    if let Some(source) = error.source() {
        return source.to_string();
    }
    match (&option.value, error.get(ContextKind::InvalidValue)) {
        (None, _) => "it takes no value".to_owned(),
        (Some(_), Some(ContextValue::String(value))) => format!("`{value}` is no value of it"),
        (Some(_), _) => "it has no such value".to_owned(),
    }
}

/// Returns a failure whose hint names mount options in place of flags of the command line: `memory=SIZE` for
/// `--memory`.
pub(crate) fn with_mount_options(mut failure: Failure) -> Failure {
    let command = command();
    let option = |flag: &str| command.get_arguments().find(|known| known.get_long() == Some(flag)).and_then(option_of);
    let reworded = |word: &str| match word.strip_prefix("--").and_then(option) {
        Some(option) => format!("`{}`", option.synopsis()),
        None => word.to_owned(),
    };
    failure.hint = failure.hint.map(|hint| hint.split(' ').map(reworded).collect::<Vec<_>>().join(" "));
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(option: &str, flag: &str) -> String {
        check(option, OsStr::new(flag)).unwrap_err().to_string()
    }

    #[test]
    fn options_have_the_names_of_fstab() {
        let all = all();
        let synopsis = |name: &str| all.iter().find(|option| option.name == name).map(MountOption::synopsis);
        assert_eq!(synopsis("memory").as_deref(), Some("memory=SIZE"));
        assert_eq!(synopsis("commit_interval").as_deref(), Some("commit_interval=TIME"));
        assert_eq!(synopsis("verify").as_deref(), Some("verify=fingerprint|value"));
        assert_eq!(synopsis("ro").as_deref(), Some("ro"));
        for hidden in ["foreground", "report_ready", "kernel_option", "read_only", "json"] {
            assert_eq!(synopsis(hidden), None, "{hidden}");
        }
    }

    /// Seen: `mount -t fuse.onefold -o memory=1M` answered "give more with --memory".
    #[test]
    fn hints_of_later_failures_name_mount_options() {
        let hint = |hint: &str| with_mount_options(Failure::new("cannot mount").hint(hint)).hint.unwrap();
        assert_eq!(hint("give more with --memory"), "give more with `memory=SIZE`");
        assert_eq!(hint("mount the pool without --read-only"), "mount the pool without `ro`");
        let other = "`onefold pool check --repair` repairs it";
        assert_eq!(hint(other), other);
        assert_eq!(with_mount_options(Failure::new("cannot mount")).hint, None);
    }

    /// Seen: `mount -t fuse.onefold -o memroy=2G` answered "unexpected argument '--memroy' found".
    #[test]
    fn a_wrong_option_is_named_as_it_was_given() {
        let text = refused("memroy=2G", "--memroy=2G");
        assert!(text.contains("`memroy=2G`") && text.contains("memory=SIZE, ") && !text.contains("--"), "{text}");
        let text = refused("json", "--json");
        assert!(text.contains("`json` is not an option"), "{text}");
    }

    #[test]
    fn a_wrong_value_is_explained() {
        for (option, flag, reason) in [
            ("memory=x", "--memory=x", "expected a number with an optional unit"),
            ("memory", "--memory", "its value is missing"),
            ("polling=maybe", "--polling=maybe", "`maybe` is no value of it"),
            ("filter_index_bits=100", "--filter-index-bits=100", "expected a number from 8 to 40"),
            ("noatime=3", "--noatime=3", "it takes no value"),
        ] {
            let text = refused(option, flag);
            assert!(text.contains(&format!("`{option}`")) && text.contains(reason), "{text}");
            assert!(!text.contains("--") && !text.contains("<"), "{text}");
        }
        assert_eq!(check("memory=2G", OsStr::new("--memory=2G")), Ok(()));
    }

    #[test]
    fn a_remount_leaves_options_of_the_daemon() {
        assert!(is_of_daemon("memory=2G") && is_of_daemon("commit-interval=1s") && is_of_daemon("strictatime"));
        assert!(!is_of_daemon("ro") && !is_of_daemon("noatime") && !is_of_daemon("user_id=0"));
    }
}
