//! What commands print, compared with kept texts that were read by a person.
//!
//! A test records the commands of a session with [`transcript::Transcript`] and ends with `assert_kept("NAME")`, which
//! compares the record with `kept/NAME.txt`:
//!
//! ```text
//! let folder = Folder::new();
//! let mut session = Transcript::in_folder(&folder.path("")).masking(&["free than before"]);
//! session.run("pool stat images.pool");
//! session.assert_kept("pool-stat");
//! ```
//!
//! Commands run in the folder, so paths appear as a user gives them. The record replaces the folder's own path with
//! `FOLDER`, durations with `N s`, dates with `YYYY-MM-DD hh:mm`, and every number of a line that contains one of the
//! `masking` words with `N`. All other text has to be equal, byte for byte.
//!
//! After an intended change, `ONEFOLD_KEEP_TRANSCRIPTS=1 cargo test -p onefold --test transcript` writes the kept texts
//! anew. Read the difference before you commit it: the kept text is what a user sees.
//!
//! `session.shell("LINE")` runs a line of the shell, for pipes and other programs. In a [`namespace::Namespace`] a
//! session may mount pools and run commands as a user without rights.
//!
//! [`file_system::FileSystem`] mounts a new XFS or Btrfs on a file for the verbs that need one; such tests are skipped
//! where the caller is not root or the tools are missing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod analyze;
mod check;
#[path = "../common/mod.rs"]
mod common;
mod file_system;
mod namespace;
mod pool;
mod progress;
mod share;
mod transcript;
mod users;
