//! `onefold guest`: verbs that read the content of disk images, one file each.
//!
//! | module | is |
//! |---|---|
//! | `open` | opens images, and notices machines that use them |
//! | `scene` | the tree of files that a verb works on |
//! | `many`, `streaming` | the frames of verbs for many images, and of verbs that print while they look |
//! | `ending` | what was damaged or failed on the way, and the exit code |
//! | `messages` | the failures and warnings of each image, for people and programs |
//! | `stored` | which parts of a file are stored |
//! | `owned` | the file and the package of a byte of an image file, for `share explain` |
//! | `describe` | files, volumes and uses of bytes in words |

mod cat;
mod describe;
mod df;
mod diff;
mod du;
mod ending;
mod files_at;
mod find;
mod info;
mod ls;
mod many;
mod map;
mod messages;
mod open;
mod owned;
mod packages;
mod scene;
mod stored;
mod streaming;
mod tar;
mod who;

pub(in crate::verbs) use self::describe::{origin, path_members};
pub(in crate::verbs) use self::files_at::{PlaceUse, files_at};
pub(in crate::verbs) use self::owned::{OwnedByte, owned_byte, owned_bytes};

use crate::cli::Talk;
use crate::cli::guest::GuestCommand;
use crate::failure::Outcome;
use crate::output::Report;

/// Runs an `onefold guest` command.
pub(crate) fn run(command: GuestCommand, talk: Talk) -> Outcome<Report> {
    match command {
        GuestCommand::Info(arguments) => info::run(&arguments, talk),
        GuestCommand::Df(arguments) => df::run(&arguments, talk),
        GuestCommand::Ls(arguments) => ls::run(&arguments, talk),
        GuestCommand::Cat(arguments) => cat::run(&arguments, talk),
        GuestCommand::Map(arguments) => map::run(&arguments, talk),
        GuestCommand::Who(arguments) => who::run(&arguments, talk),
        GuestCommand::Du(arguments) => du::run(&arguments, talk),
        GuestCommand::Find(arguments) => find::run(&arguments, talk),
        GuestCommand::Packages(arguments) => packages::run(&arguments, talk),
        GuestCommand::Diff(arguments) => diff::run(&arguments, talk),
        GuestCommand::Tar(arguments) => tar::run(&arguments, talk),
    }
}
