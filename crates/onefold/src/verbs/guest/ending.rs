//! The end of a verb: reports damage, doubts and failures on standard error or in the document.

use std::collections::BTreeSet;
use std::path::Path;

use glob::Pattern;
use onefold_block::Show;
use onefold_guest::budget::Budget;
use onefold_guest::content::VolumeContent;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::State;
use onefold_guest::guest::{Guest, GuestVolume};
use onefold_guest::lvm::VolumeGroup;
use onefold_guest::tree::{ProblemLog, WalkError};
use onefold_guest::volume::VolumeOrigin;
use serde_json::{Map, Value};

use super::describe::origin;
use super::messages::{ImageIndex, MessageLog, TextNames};
use super::open::GuestImage;
use crate::failure::{Exit, Failure};

/// Damage, doubts and failures that a verb has met. Each belongs to the current image.
#[derive(Debug)]
pub(super) struct Ending {
    messages: MessageLog,
    /// For each image whose files were verified, the number of files as packaged.
    verified: Vec<Value>,
    in_use: bool,
    damaged: bool,
    failed: bool,
    interrupted: bool,
}

impl Ending {
    /// Returns the ending of a verb without an image so far. `names_images` tells whether the messages name their
    /// images, because there are several.
    pub(super) fn new(names_images: bool) -> Ending {
        Ending {
            messages: MessageLog::new(names_images),
            verified: Vec::new(),
            in_use: false,
            damaged: false,
            failed: false,
            interrupted: false,
        }
    }

    /// Returns the ending of a verb for one image.
    pub(super) fn of_one(image: &GuestImage) -> Ending {
        let mut ending = Ending::new(false);
        ending.begin(image.path());
        ending
    }

    /// Begins with another image.
    pub(super) fn begin(&mut self, image: &Path) -> ImageIndex {
        self.messages.begin(image)
    }

    /// Returns to an image.
    pub(super) fn turn_to(&mut self, image: ImageIndex) {
        self.messages.turn_to(image);
    }

    /// Ends the work on images: what follows belongs to none of them.
    pub(super) fn leave(&mut self) {
        self.messages.leave();
    }

    /// Notes that one thing failed while the rest continued.
    pub(super) fn failed(&mut self, failure: Failure) {
        self.fail(failure, TextNames::NoImage);
    }

    /// As [`Self::failed`], for a failure that names the image.
    pub(super) fn failed_by_name(&mut self, failure: Failure) {
        self.fail(failure, TextNames::Image);
    }

    fn fail(&mut self, failure: Failure, names: TextNames) {
        match failure.exit {
            Exit::Damage => self.damaged = true,
            Exit::Interrupted => self.interrupted = true,
            _ => self.failed = true,
        }
        self.messages.fail(failure, names);
    }

    /// Returns a failure that ends the verb, with the name of the current image if there are several.
    pub(super) fn named(&self, failure: Failure) -> Failure {
        self.messages.named(failure)
    }

    /// Notes that a pattern has matched no `thing` of any image: most likely it has a spelling error. Says nothing if a
    /// part was not read, which may have had one.
    pub(super) fn unmatched(&mut self, thing: &str, pattern: &Pattern) {
        if self.has_failed() {
            return;
        }
        self.failed(Failure::new(format!("no {thing} matches the pattern `{}`", pattern.as_str())));
    }

    /// Notes that a file of the guest could not be read.
    pub(super) fn failed_path(&mut self, path: &[u8], error: &GuestError) {
        self.failed(Failure::of_guest(format!("cannot read `{}`", path.shown()), error));
    }

    /// Notes that a walk left something out.
    pub(super) fn failed_walk(&mut self, path: &[u8], error: &WalkError) {
        match error {
            WalkError::Guest(error) => self.failed_path(path, error),
            other => {
                let failure = Failure::new(format!("cannot enter `{}`", path.shown())).because(other);
                self.failed(Failure { exit: Exit::Damage, ..failure });
            }
        }
    }

    /// Notes something that the user should know. Names in it must be escaped already.
    pub(super) fn warn(&mut self, warning: String) {
        self.messages.warn(warning, TextNames::NoImage);
    }

    /// As [`Self::warn`], for a text that names the image.
    pub(super) fn warn_by_name(&mut self, warning: String) {
        self.messages.warn(warning, TextNames::Image);
    }

    /// Notes the number of an image's files that are as packaged.
    pub(super) fn verified(&mut self, counts: Value) {
        self.verified.push(counts);
    }

    /// Notes damage that was skipped. Names in it must be escaped already.
    pub(super) fn damaged(&mut self, what: String) {
        self.damaged = true;
        self.warn(what);
    }

    /// Notes unreadable parts of texts and folders of a guest.
    pub(super) fn problems(&mut self, problems: &ProblemLog) {
        let first = problems.first();
        first.iter().for_each(|problem| self.damaged(problem.to_string().shown().to_string()));
        self.messages.add_further(problems.count().saturating_sub(first.len() as u64));
    }

    /// Notes the damage of the partition table; the damage and the doubts of `volumes`, and of the physical volumes
    /// that they lie in; the doubts of their groups; and whether the image is in use. Called once per image, which is
    /// the current one.
    pub(super) fn look_at(&mut self, image: &GuestImage, guest: &Guest<'_>, volumes: impl IntoIterator<Item = usize>) {
        if image.is_in_use() {
            self.in_use = true;
            self.warn_by_name(format!("`{}` is in use: the result mixes several moments", image.path().shown()));
        }
        for problem in guest.table().iter().flat_map(|table| &table.problems) {
            self.damaged = true;
            self.warn_by_name(format!("`{}`: {problem}", image.path().shown()));
        }
        self.look_at_budget(guest.budget(), image.path());
        guest.doubt().iter().for_each(|doubt| self.warn(format!("no volume is sure: {}", doubt.shown())));
        let mut all: BTreeSet<usize> = volumes.into_iter().collect();
        for group in guest.groups() {
            let is_of_group = |at: &usize| {
                let origin = guest.volumes().get(*at).map(|volume| &volume.volume.origin);
                matches!(origin, Some(VolumeOrigin::Logical { group: name, .. }) if *name == group.group.name)
            };
            if all.iter().any(is_of_group) || group.physical.iter().any(|at| all.contains(at)) {
                all.extend(&group.physical);
                let VolumeGroup { name, doubts, unsure, .. } = &group.group;
                let warning =
                    |(what, why): (&str, &String)| format!("group {} is {what}: {}", name.shown(), why.shown());
                let doubts = doubts.iter().map(|why| ("not read", why));
                doubts.chain(unsure.iter().map(|why| ("unsure", why))).for_each(|doubt| self.warn(warning(doubt)));
            }
        }
        all.into_iter().filter_map(|at| guest.volumes().get(at)).for_each(|volume| self.look_at_volume(volume));
    }

    /// Notes that allocation maps were too long: for the available memory, or for any.
    fn look_at_budget(&mut self, budget: &Budget, image: &Path) {
        let cannot = || Failure::new(format!("cannot keep the allocation maps of `{}` in memory", image.shown()));
        if budget.is_short() {
            let why = "they need more memory than --memory allows; the rest counts as allocated";
            self.failed_by_name(cannot().because_of(why).hint("give more with --memory"));
        }
        if budget.has_too_many() {
            let why = "they have more pieces than can be kept with any memory; the rest counts as allocated";
            self.failed_by_name(cannot().because_of(why));
        }
    }

    fn look_at_volume(&mut self, volume: &GuestVolume<'_>) {
        let name = origin(&volume.volume.origin);
        match &volume.content {
            VolumeContent::FileSystem(system) => {
                if let State::Unsure(doubts) = system.state() {
                    doubts.iter().for_each(|doubt| self.warn(format!("{name} is unsure: {doubt}")));
                }
                let first = system.damage().first();
                first.iter().for_each(|damage| self.damaged(format!("{name}: {damage}")));
                self.messages.add_further(system.damage().count().saturating_sub(first.len() as u64));
            }
            VolumeContent::PhysicalVolume(physical) => {
                physical.damage.iter().for_each(|damage| self.damaged(format!("{name}: {damage}")));
            }
            // A refused variant is no more a failure than LUKS is, but users expect its kind to be read.
            VolumeContent::NotRead(found) if found.is_refused => {
                self.warn(format!("{name} is not read: {} cannot be read", found.name));
            }
            VolumeContent::Failed(error) => self.failed(Failure::of_guest(format!("cannot read {name}"), error)),
            VolumeContent::Swap(_) | VolumeContent::NotRead(_) | VolumeContent::Unknown => {}
        }
    }

    /// Returns whether anything failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed || self.damaged || self.interrupted
    }

    /// Returns how the command ends.
    pub(super) fn exit(&self) -> Exit {
        match (self.failed, self.damaged) {
            _ if self.interrupted => Exit::Interrupted,
            (true, _) => Exit::Failed,
            (false, true) => Exit::Damage,
            (false, false) => Exit::Done,
        }
    }

    /// Returns the members of a document, and prints the messages for people on standard error.
    pub(super) fn tell(&self) -> Map<String, Value> {
        self.messages.print();
        let mut members = self.messages.members();
        if !self.verified.is_empty() {
            members.insert("verified".to_owned(), self.verified.clone().into());
        }
        members.insert("in_use".to_owned(), self.in_use.into());
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_guest::error::{Damage, Encoding};
    use onefold_guest::tree::Problem;
    use serde_json::json;

    #[test]
    fn problems_of_texts_are_damage_and_all_are_counted() {
        let (mut ending, problems) = (Ending::new(false), ProblemLog::default());
        ending.problems(&problems);
        assert_eq!(ending.exit(), Exit::Done);
        for line in 1..=150 {
            problems.note(Problem::of_line(b"/etc/fstab", line, "it has no path"));
        }
        ending.problems(&problems);
        assert_eq!((ending.exit(), &ending.tell()["further"]), (Exit::Damage, &50.into()));
    }

    #[test]
    fn more_memory_is_asked_for_only_where_it_helps() {
        let told = |budget: &Budget| {
            let mut ending = Ending::new(false);
            ending.look_at_budget(budget, Path::new("a.raw"));
            (ending.exit(), ending.tell()["failures"].clone())
        };
        let budget = Budget::new(100);
        assert_eq!(told(&budget), (Exit::Done, json!([])));
        budget.note_full(budget.draw(100).rows(1, 1, 4));
        let error = "cannot keep the allocation maps of `a.raw` in memory";
        let why = "they have more pieces than can be kept with any memory; the rest counts as allocated";
        let failures = json!([{ "image": null, "error": error, "causes": [why], "hint": null }]);
        assert_eq!(told(&budget), (Exit::Failed, failures));
        budget.note_full(budget.draw(200).rows(1, 1, 400));
        let (_, failures) = told(&budget);
        assert_eq!((&failures[0]["hint"], &failures[1]["hint"]), (&json!("give more with --memory"), &Value::Null));
    }

    #[test]
    fn a_failure_weighs_more_than_damage_and_all_are_told() {
        let mut ending = Ending::new(false);
        assert_eq!(ending.exit(), Exit::Done);
        let damage = Damage { place: 7, structure: "inode", problem: "it is odd" };
        ending.failed_path(b"/a\n", &GuestError::Damaged(damage));
        assert_eq!(ending.exit(), Exit::Damage);
        ending.failed_path(b"/b", &GuestError::Encoded(Encoding::Encrypted));
        assert_eq!(ending.exit(), Exit::Failed);
        (0..200).for_each(|number| ending.warn(number.to_string()));
        let told = ending.tell();
        assert_eq!(told["failures"][0]["error"], r"cannot read `/a\n`");
        assert_eq!(told["failures"][1]["causes"][0], "the content is encrypted, and is not decoded");
        assert_eq!(told["warnings"].as_array().map(Vec::len), Some(100));
        assert_eq!(told["further"], 100);
    }
}
