//! Images that are cloned, written, shared and collected at random, on any file system: after each step the states of
//! all blocks are those that a look at the place of every block gives, and each block went a way that it may go.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod look;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use onefold_block::clock::ManualClock;
use onefold_block::random::{Random, SeededRandom};
use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_share::block_state::BlockState;
use onefold_share::clone::{CloneOptions, ExistingFilePolicy, clone};
use onefold_share::format::FileBlock;
use onefold_share::pace::Pace;
use onefold_share::pass::{
    ContentKey, Engine, FilePlace, Finder, FinderRun, PassError, PassOptions, RunBatch, RunSorter, SortedRuns,
    share_found,
};
use onefold_share::scan::list;
use onefold_share::selection::Selection;
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_substrate::{Access, At, Substrate};

use self::look::place;

const K: u64 = BLOCK_BYTES_U64;
/// Blocks of an image.
const BLOCKS: u64 = 24;
/// Contents that guests write. Half of the time they write one of a few, so that many blocks are equal.
const CONTENTS: u64 = 200;
const FREQUENT: u64 = 8;
const IMAGES_MAX: usize = 5;
const TEMPLATE: &str = "template";
const VOLUME: &str = "volume";

/// A block of an image.
type Block = (String, u64);
/// What happened to a block: the step, and its states before and after.
type Way = (&'static str, &'static str, &'static str);

/// A step of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Clone,
    Write(Block),
    Pass,
    /// The volume gets the content of a block, by a clone of it.
    Publish(Block),
    /// The volume loses what no image has.
    Collect,
    Remove(String),
}

/// Images on a file system, and what they hold.
pub(crate) struct Walk<'a, S: Substrate> {
    substrate: &'a S,
    random: SeededRandom,
    /// Has writes get their places, and time pass.
    settle: &'a dyn Fn(),
    /// Whether the file system keeps attributes: the record of a template, and the mark of a volume.
    has_attributes: bool,
    /// The content of each block, by the number that it is made from.
    contents: BTreeMap<String, Vec<u64>>,
    /// What each block of the volume holds; none in a hole.
    volume: Vec<Option<u64>>,
    clones: Cell<u32>,
    seen: BTreeSet<Way>,
}

fn name(state: BlockState) -> &'static str {
    match state {
        BlockState::Template => "template",
        BlockState::Own => "own",
        BlockState::Common => "common",
        BlockState::Shared => "shared",
    }
}

fn bytes_of(content: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    SeededRandom::new(content + 1).fill(&mut bytes).unwrap();
    bytes
}

/// Yields runs that were made before, as one batch.
struct Truths(Option<RunSorter>, Option<SortedRuns>);

impl<'b, S: Substrate> Finder<'b, S> for Truths {
    fn next_batch(&mut self, _: &mut Engine<'_, 'b, S>) -> Result<Option<&mut dyn RunBatch>, PassError> {
        let Some(sorter) = self.0.take() else { return Ok(None) };
        let batch = self.1.insert(sorter.finish()?);
        Ok(Some(batch))
    }
}

impl<'a, S: Substrate> Walk<'a, S> {
    /// Makes a template, two clones of it, and an empty volume.
    pub(crate) fn new(substrate: &'a S, seed: u64, has_attributes: bool, settle: &'a dyn Fn()) -> Walk<'a, S> {
        let mut walk = Walk {
            substrate,
            random: SeededRandom::new(seed),
            settle,
            has_attributes,
            contents: BTreeMap::new(),
            volume: Vec::new(),
            clones: Cell::new(0),
            seen: BTreeSet::new(),
        };
        let contents: Vec<u64> = (0..BLOCKS).map(|_| walk.draw_content()).collect();
        let bytes: Vec<u8> = contents.iter().flat_map(|content| bytes_of(*content)).collect();
        walk.create(TEMPLATE, &bytes);
        walk.contents.insert(TEMPLATE.to_owned(), contents);
        if has_attributes {
            walk.create(VOLUME, &[]);
            let volume = substrate.open(Path::new(VOLUME), Access::Write).unwrap();
            substrate.set_len(&volume, CONTENTS * K).unwrap();
            substrate.set_attribute(Path::new(VOLUME), "user.onefold.common", Some(b"1")).unwrap();
            walk.volume = vec![None; usize::try_from(CONTENTS).unwrap()];
        }
        walk
    }

    /// Takes so many steps. Returns the ways that blocks went, as step, state before and state after.
    pub(crate) fn go(mut self, steps: u32) -> BTreeSet<Way> {
        let (mut before, mut volume) = self.look();
        for _ in 0..steps {
            let Some(step) = self.draw() else { continue };
            self.take(&step);
            (self.settle)();
            let (after, volume_after) = self.look();
            self.judge(&step, &before, &after);
            if step == Step::Collect {
                let used = volume.as_ref().map_or(0, |volume| volume.used);
                let held = volume_after.as_ref().map_or(0, |volume| volume.held);
                assert_eq!(held, used, "{volume:?} {volume_after:?}");
                if volume.is_some_and(|volume| volume.held > used) {
                    self.seen.insert(("collect", "common", "gone"));
                }
            }
            (before, volume) = (after, volume_after);
        }
        self.compare();
        self.seen
    }

    fn create(&self, name: &str, bytes: &[u8]) {
        let file = self.substrate.create(Path::new(name)).unwrap();
        self.substrate.write_at(&file, 0, bytes).unwrap();
        self.substrate.sync(&file).unwrap();
        (self.settle)();
    }

    fn draw_content(&self) -> u64 {
        let below = if self.random.below(2) == 0 { FREQUENT } else { CONTENTS };
        self.random.below(below)
    }

    fn draw(&self) -> Option<Step> {
        let names: Vec<&String> = self.contents.keys().collect();
        let image = names[usize::try_from(self.random.below(names.len() as u64)).unwrap()].clone();
        // Writes into the template are rarer: all clones are to have something of it.
        let writes = image != TEMPLATE || self.random.below(4) == 0;
        let block = (image.clone(), self.random.below(BLOCKS));
        Some(match self.random.below(20) {
            0..3 if names.len() < IMAGES_MAX => Step::Clone,
            3..13 if writes => Step::Write(block),
            13..15 => Step::Pass,
            15..17 if self.has_attributes => Step::Publish(block),
            17..19 if self.has_attributes => Step::Collect,
            19 if image != TEMPLATE => Step::Remove(image),
            _ => return None,
        })
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Clone => self.clone_template(),
            Step::Write((image, block)) => {
                let content = self.draw_content();
                let file = self.substrate.open(Path::new(image), Access::Write).unwrap();
                self.substrate.write_at(&file, block * K, &bytes_of(content)).unwrap();
                self.substrate.sync(&file).unwrap();
                self.contents.get_mut(image).unwrap()[usize::try_from(*block).unwrap()] = content;
            }
            Step::Pass => self.pass().unwrap(),
            Step::Publish((image, block)) => {
                let content = self.contents[image][usize::try_from(*block).unwrap()];
                if self.volume.iter().flatten().any(|held| *held == content) {
                    return;
                }
                let [from, into] = [(image.as_str(), Access::Read), (VOLUME, Access::Write)]
                    .map(|(path, access)| self.substrate.open(Path::new(path), access).unwrap());
                let source = At { file: &from, offset: block * K };
                self.substrate.clone_range(source, At { file: &into, offset: content * K }, K).unwrap();
                self.volume[usize::try_from(content).unwrap()] = Some(content);
            }
            Step::Collect => {
                let volume = self.substrate.open(Path::new(VOLUME), Access::Write).unwrap();
                let places: BTreeSet<u64> = self.places().into_values().collect();
                for (at, content) in self.volume.iter_mut().enumerate() {
                    let offset = at as u64 * K;
                    if content.is_some() && !places.contains(&place(self.substrate, &volume, offset).unwrap()) {
                        self.substrate.punch(&volume, offset, K).unwrap();
                        *content = None;
                    }
                }
                self.substrate.sync(&volume).unwrap();
            }
            Step::Remove(image) => {
                self.substrate.remove(Path::new(image)).unwrap();
                self.contents.remove(image);
            }
        }
    }

    fn state<T>(&self, work: impl FnOnce(&State<'_, S>, &mut Marks) -> T) -> T {
        let clock = ManualClock::starting_at(1000);
        let state = State::open(self.substrate, &clock, &self.random, &|_| {}).unwrap();
        let mut marks = Marks::load(&state).unwrap();
        list(&state, &mut marks, &Selection::all()).unwrap();
        work(&state, &mut marks)
    }

    fn clone_template(&mut self) {
        self.clones.set(self.clones.get() + 1);
        let name = format!("clone-{}", self.clones.get());
        let options = CloneOptions {
            existing: ExistingFilePolicy::Keep,
            temporary_folder: Path::new("/var/tmp"),
            memory_bytes: 1 << 16,
            clock: &ManualClock::starting_at(1000),
            random: &self.random,
        };
        let made = self.state(|state, _| {
            clone(self.substrate, Some(state), Path::new(TEMPLATE), Path::new(&name), &options)
                .map(|cloned| assert!(cloned.unrecorded.is_none(), "{cloned:?}"))
        });
        match made {
            Err(_) if !self.has_attributes => {
                // A file system without clones of files: a clone of all its blocks, of which nothing is recorded.
                let from = self.substrate.open(Path::new(TEMPLATE), Access::Read).unwrap();
                let file = self.substrate.create(Path::new(&name)).unwrap();
                self.substrate.set_len(&file, BLOCKS * K).unwrap();
                let [source, into] = [&from, &file].map(|file| At { file, offset: 0 });
                self.substrate.clone_range(source, into, BLOCKS * K).unwrap();
            }
            made => made.unwrap(),
        }
        let contents = self.contents[TEMPLATE].clone();
        self.contents.insert(name, contents);
    }

    /// Shares all that is equal, with the volume as the source of what it has.
    fn pass(&self) -> Result<(), PassError> {
        self.state(|state, marks| {
            let listed = list(state, marks, &Selection::all())?;
            let numbers: BTreeMap<&Path, _> = listed.iter().map(|file| (file.path.as_path(), file.number)).collect();
            let at = |image: &str, block| FilePlace { file: numbers[Path::new(image)], block: FileBlock(block) };
            let of_volume = self.volume.iter().flatten().map(|content| (*content, at(VOLUME, *content)));
            let mut sources: BTreeMap<u64, FilePlace> = of_volume.collect();
            let mut sorter = RunSorter::new(Path::new("/var/tmp"), 1 << 16);
            // The template comes first where the volume has nothing.
            let template = self.contents.get_key_value(TEMPLATE).into_iter();
            for (image, contents) in template.chain(self.contents.iter().filter(|(image, _)| *image != TEMPLATE)) {
                for (block, content) in (0..).zip(contents) {
                    let target = at(image, block);
                    let source = *sources.entry(*content).or_insert(target);
                    if let Some(run) = FinderRun::between(source, target, 1, ContentKey::default()) {
                        sorter.push(&run)?;
                    }
                }
            }
            let pace = Pace::unlimited();
            let clock = ManualClock::starting_at(1000);
            let options = PassOptions::new(Path::new("/var/tmp"), &pace, &clock);
            share_found(state, marks, &mut Truths(Some(sorter), None), &options).map(drop)
        })
    }

    /// Holds the way of each block against what it may go by such a step.
    fn judge(&mut self, step: &Step, before: &BTreeMap<Block, BlockState>, after: &BTreeMap<Block, BlockState>) {
        use BlockState::{Common, Own, Shared, Template};
        for (block, now) in after {
            let Some(was) = before.get(block) else {
                assert_eq!((step, *now), (&Step::Clone, Template), "{block:?}");
                continue;
            };
            let way = (*was, *now);
            let (verb, may_be) = match step {
                Step::Write(written) if written == block => ("write", *now == Own),
                // Others lose a reference, or their template.
                Step::Write((image, at)) => {
                    let loses_template = image == TEMPLATE && *at == block.1;
                    let goes = way == (Shared, Own) || loses_template && was == &Template;
                    ("write elsewhere", was == now || goes)
                }
                Step::Clone => ("clone", was == now || way == (Own, Shared)),
                Step::Pass => ("pass", self.may_pass(block, way)),
                Step::Publish(_) => ("publish", was == now || *now == Common),
                Step::Collect => ("collect", was == now),
                Step::Remove(_) => ("remove", was == now || way == (Shared, Own)),
            };
            assert!(may_be, "{step:?}: {block:?} went from {was:?} to {now:?}");
            if was != now {
                self.seen.insert((verb, name(*was), name(*now)));
            }
        }
    }

    /// Tells whether a pass may leave a block so: nothing equal lies at two places afterwards.
    fn may_pass(&self, block: &Block, (was, now): (BlockState, BlockState)) -> bool {
        let content = self.contents[&block.0][usize::try_from(block.1).unwrap()];
        let is_in_volume = self.volume.iter().flatten().any(|held| *held == content);
        let count = self.contents.values().flatten().filter(|other| **other == content).count();
        match now {
            BlockState::Template => true,
            BlockState::Common => is_in_volume,
            BlockState::Shared => !is_in_volume && count > 1,
            BlockState::Own => !is_in_volume && count == 1 && was == BlockState::Own,
        }
    }

    /// Compares all images with what they are to hold.
    fn compare(&self) {
        for (image, contents) in &self.contents {
            let file = self.substrate.open(Path::new(image), Access::Read).unwrap();
            let mut bytes = vec![0; usize::try_from(BLOCKS * K).unwrap()];
            assert_eq!(self.substrate.read_at(&file, 0, &mut bytes).unwrap(), bytes.len());
            let expected: Vec<u8> = contents.iter().flat_map(|content| bytes_of(*content)).collect();
            assert!(bytes == expected, "{image}");
        }
    }
}

/// Holds that blocks went each way of the paper's figure; without volumes, those that need none.
pub(crate) fn hold_figure(seen: &BTreeSet<Way>, has_volumes: bool) {
    let plain = [
        ("write", "template", "own"),
        ("pass", "own", "shared"),
        ("write", "shared", "own"),
        ("clone", "own", "shared"),
    ];
    let of_volumes = [("pass", "own", "common"), ("write", "common", "own"), ("collect", "common", "gone")];
    for way in plain.iter().chain(of_volumes.iter().filter(|_| has_volumes)) {
        assert!(seen.contains(way), "no block went {way:?}: {seen:?}");
    }
}
