//! Writers: the users of the images, which know nothing of sharing.
//!
//! Each image is used through one host at a time, and through another one when that host is silent.

use std::collections::BTreeMap;
use std::rc::Rc;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::{ROOT, Refusal};

use super::content::{Content, Palette};
use super::dice::Dice;
use super::files::FileNo;
use super::host::{HostNo, SeenKind, SeenWrite};
use super::names::{FolderNo, Name};
use super::sharing::SharedRanges;
use super::world::{Actor, World};

/// The folders of images.
const FOLDERS: [&str; 4] = ["images", "images/a", "images/b", "images/b/c"];
/// Number of names per image to choose from; few, so that names are soon used again.
const NAMES_PER_IMAGE: u64 = 3;
/// Number of templates for the content of new images.
const TEMPLATES: usize = 3;
/// Maximum length of the run of blocks that one change writes or copies.
const RUN_BLOCKS_MAX: u64 = 4;
const COPY_BLOCKS_MAX: u64 = 12;
/// User number of the first of several owners of images.
const FIRST_OWNER: u32 = 1000;

/// A name of an image.
#[derive(Clone, Debug)]
struct WriterImage {
    folder: FolderNo,
    name: Name,
    no: FileNo,
}

/// All writers.
#[derive(Debug)]
pub(super) struct Writers {
    dice: Dice,
    owners: Dice,
    palette: Palette,
    /// Approximate contents of new images.
    templates: Vec<Vec<usize>>,
    folders: Vec<FolderNo>,
    /// The images named by the reference copy, as of its version.
    images: Vec<WriterImage>,
    names_version: u64,
    homes: BTreeMap<FileNo, HostNo>,
}

impl Writers {
    /// Makes the first images, and makes them durable.
    pub(super) fn new(world: &mut World) -> Writers {
        let mut dice = Dice::new(world.options.seed, 0x3417);
        // Separate dice, so that a seed runs as it did before there were several owners.
        let owners = Dice::new(world.options.seed, 0x0e12);
        let palette = Palette::new(world.options.contents);
        let mut template = || (0..world.options.image_blocks_max).map(|_| dice.index(palette.len())).collect();
        let templates = (0..TEMPLATES).map(|_| template()).collect();
        let writer = Actor::Writer(world.observer());
        let folder = |path: &&str| world.create_folder(writer, path.as_ref()).expect("the file system is empty");
        let folders = FOLDERS.iter().map(folder).collect();
        let mut writers = Writers {
            dice,
            owners,
            palette,
            templates,
            folders,
            images: Vec::new(),
            names_version: 0,
            homes: BTreeMap::new(),
        };
        for _ in 0..world.options.images {
            writers.create(world, writer);
        }
        world.settle_all_names();
        for no in world.machine(writer.host()).unsynced.clone() {
            world.make_durable(no);
        }
        writers
    }

    /// Makes one change.
    pub(super) fn step(&mut self, world: &mut World) {
        if self.names_version != world.reference.names_version() {
            let named = world.reference.names();
            self.images = named.map(|(folder, name, no)| WriterImage { folder, name: name.clone(), no }).collect();
            self.names_version = world.reference.names_version();
        }
        let fewest = world.options.images as usize / 2;
        let most = world.options.images as usize * 2;
        let Some(image) = self.draw_image() else { return };
        let Some(host) = self.home(world, image.no) else { return };
        let writer = Actor::Writer(host);
        if world.shares_in_two_steps() && !self.uses(world, host, image.no) {
            return;
        }
        if world.files.get(image.no).refusal == Some(Refusal::Immutable) {
            if self.dice.one_in(4) {
                world.files.get_mut(image.no).refusal = None;
            }
            return;
        }
        if world.options.owners > 1 && world.files.get(image.no).opens == 0 && self.owners.one_in(40) {
            let owner = self.draw_owner(world);
            return world.give(writer, image.no, owner);
        }
        world.counters.writes += 1;
        world.tell(|world| format!("writer through {host}: {}", world.names.path_of(image.no)));
        match self.dice.below(100) {
            0..55 => self.write_run(world, writer, &image),
            55..63 => self.write_part(world, writer, &image),
            63..66 => self.write_zeros(world, writer, &image),
            66..68 => self.set_aside(world, writer, &image),
            68..78 => self.copy_run(world, writer, &image),
            78..80 => self.set_length(world, writer, &image, 0),
            80..82 => self.set_length(world, writer, &image, world.files.get(image.no).length),
            82..84 => self.punch(world, writer, &image),
            84..90 => world.sync(host, image.no),
            90..92 if self.images.len() > fewest => {
                drop(world.remove_entry(writer, image.folder, image.name));
            }
            92..94 if self.images.len() < most => self.create(world, writer),
            94..96 => self.rename(world, writer, image, fewest),
            96..97 if self.images.len() < most => self.link(world, writer, &image),
            97..98 if self.images.len() < most => self.clone_image(world, writer, &image),
            98..99 if world.options.refuses_files => self.change_refusal(world, &image),
            99 => self.change_oddly(world, writer, &image),
            _ => {}
        }
    }

    fn draw_image(&mut self) -> Option<WriterImage> {
        (!self.images.is_empty()).then(|| self.images[self.dice.index(self.images.len())].clone())
    }

    /// Returns the host through which an image is used; another one than before if that is silent.
    fn home(&mut self, world: &World, no: FileNo) -> Option<HostNo> {
        let is_heard = |host: HostNo| world.machine(host).is_up && !world.machine(host).is_stalled;
        let moves = self.dice.one_in(200);
        if let Some(home) = self.homes.get(&no).filter(|home| is_heard(**home) && !moves) {
            return Some(*home);
        }
        let hosts = u64::from(world.options.hosts);
        let first = self.dice.below(hosts);
        let mut others = (0..hosts).map(|step| (first + step) % hosts);
        let home = others.find_map(|host| u32::try_from(host).ok().map(HostNo).filter(|host| is_heard(*host)))?;
        self.homes.insert(no, home);
        Some(home)
    }

    /// Returns whether a writer has an image open through a host. If not, it opens the image if it can. It rarely opens
    /// one with a hole that a share has left: a host repairs images before it starts their machines.
    fn uses(&mut self, world: &mut World, host: HostNo, no: FileNo) -> bool {
        match world.files.get(no).in_use {
            Some(user) if user == host => {
                let closes = self.dice.one_in(16);
                if closes {
                    world.files.get_mut(no).in_use = None;
                }
                !closes
            }
            Some(user) => {
                self.homes.insert(no, user);
                false
            }
            None if world.has_holes_left(no) && !self.dice.one_in(16) => false,
            None => world.open_for_writer(host, no),
        }
    }

    /// Draws the user that an image belongs to.
    fn draw_owner(&mut self, world: &World) -> u32 {
        match world.options.owners {
            0 | 1 => ROOT,
            owners => FIRST_OWNER + u32::try_from(self.owners.below(u64::from(owners))).expect("fewer than there are"),
        }
    }

    fn draw_content(&mut self) -> Content {
        self.palette.get(self.dice.index(self.palette.len())).clone()
    }

    /// Draws a run of blocks for an image.
    fn draw_run(&mut self, world: &World, most: u64) -> std::ops::Range<u64> {
        let end = u64::from(world.options.image_blocks_max);
        let first = self.dice.below(end);
        first..(first + 1 + self.dice.below(most)).min(end)
    }

    /// Writes whole blocks, as far as they fit.
    fn write_blocks(
        world: &mut World,
        writer: Actor,
        image: &WriterImage,
        first: u64,
        contents: impl IntoIterator<Item = Option<Content>>,
    ) {
        let mut length = 0;
        for (content, index) in contents.into_iter().zip(first..) {
            if world.write_block(writer, image.no, index, content).is_err() {
                break;
            }
            length += BLOCK_BYTES_U64;
        }
        Self::show(world, writer, image, SeenKind::Written, first * BLOCK_BYTES_U64, length);
    }

    /// Shows a change to a monitor on the host.
    fn show(world: &mut World, writer: Actor, image: &WriterImage, kind: SeenKind, offset: u64, length: u64) {
        if !world.options.tells_writes {
            return;
        }
        let file_length = world.files.get(image.no).length;
        // A write that found no room, or whose blocks reach behind the end, leaves the file shorter than its range.
        let is_beyond = kind == SeenKind::Written && offset + length > file_length;
        let end = is_beyond.then_some((SeenKind::Truncated, 0, file_length));
        for (kind, offset, length) in std::iter::once((kind, offset, length)).chain(end) {
            let path = world.names.path_of(image.no).into();
            let seen = SeenWrite { handle: world.handle(image.no), path, kind, offset, length };
            let writes = &mut world.machine_mut(writer.host()).seen_writes;
            if writes.len() == SeenWrite::KEPT_MAX {
                writes.pop_front();
            }
            writes.push_back(seen);
        }
    }

    fn write_run(&mut self, world: &mut World, writer: Actor, image: &WriterImage) {
        let run = self.draw_run(world, RUN_BLOCKS_MAX);
        let contents: Vec<_> = run.clone().map(|_| Some(self.draw_content())).collect();
        Self::write_blocks(world, writer, image, run.start, contents);
    }

    fn write_zeros(&mut self, world: &mut World, writer: Actor, image: &WriterImage) {
        let run = self.draw_run(world, RUN_BLOCKS_MAX);
        let zeros = self.palette.get(0).clone();
        Self::write_blocks(world, writer, image, run.start, run.map(|_| Some(zeros.clone())));
    }

    /// Sets room aside for holes, as `fallocate` does.
    fn set_aside(&mut self, world: &mut World, writer: Actor, image: &WriterImage) {
        let run = self.draw_run(world, COPY_BLOCKS_MAX);
        for index in run.clone() {
            let content = world.content_at(image.no, index).unwrap_or(&world.unwritten).clone();
            if Rc::ptr_eq(&content, &world.unwritten)
                && world.write_block(writer, image.no, index, Some(content)).is_err()
            {
                break;
            }
        }
        // The range includes blocks that were no holes; the monitor's reader reads those again in vain.
        let (offset, length) = (run.start * BLOCK_BYTES_U64, (run.end - run.start) * BLOCK_BYTES_U64);
        Self::show(world, writer, image, SeenKind::Written, offset, length);
    }

    fn write_part(&mut self, world: &mut World, writer: Actor, image: &WriterImage) {
        let offset = self.dice.below((u64::from(world.options.image_blocks_max) - 1) * BLOCK_BYTES_U64 + 1);
        let length = 1 + self.dice.index(BLOCK_BYTES);
        let content = self.draw_content();
        // If the room ran out, some of it may have been written.
        let _ = world.write(writer, image.no, offset, &content[..length]);
        Self::show(world, writer, image, SeenKind::Written, offset, length as u64);
    }

    /// Copies a run of another image, to the same place or another, which makes runs of duplicates.
    fn copy_run(&mut self, world: &mut World, writer: Actor, image: &WriterImage) {
        let Some(other) = self.draw_image() else { return };
        let from = self.draw_run(world, COPY_BLOCKS_MAX);
        let into = if self.dice.one_in(2) { from.start } else { self.draw_run(world, 1).start };
        let room = u64::from(world.options.image_blocks_max) - into;
        let whole = world.files.get(other.no).length / BLOCK_BYTES_U64;
        let from = from.start..from.end.min(whole).min(from.start + room);
        let contents: Vec<_> = from.map(|index| world.reference.get(other.no, index).cloned()).collect();
        Self::write_blocks(world, writer, image, into, contents);
    }

    fn set_length(&mut self, world: &mut World, writer: Actor, image: &WriterImage, least: u64) {
        let most = u64::from(world.options.image_blocks_max) * BLOCK_BYTES_U64;
        let mut length = least + self.dice.below(most.saturating_sub(least) + 1);
        if self.dice.one_in(2) {
            length -= length % BLOCK_BYTES_U64;
        }
        // Without room for the cut last block, nothing changes.
        if world.set_length(writer, image.no, length).is_ok() {
            Self::show(world, writer, image, SeenKind::Truncated, 0, length);
        }
    }

    fn punch(&mut self, world: &mut World, writer: Actor, image: &WriterImage) {
        let run = self.draw_run(world, RUN_BLOCKS_MAX);
        let offset =
            run.start * BLOCK_BYTES_U64 + if self.dice.one_in(2) { 0 } else { self.dice.below(BLOCK_BYTES_U64) };
        // Without room for its ends, the punched part stays punched.
        let length = (run.end - run.start) * BLOCK_BYTES_U64;
        let _ = world.punch(writer, image.no, offset, length);
        Self::show(world, writer, image, SeenKind::Zeroed, offset, length);
    }

    /// Draws a name for an image.
    fn draw_name(&mut self, world: &World) -> (FolderNo, Name) {
        let number = self.dice.below(u64::from(world.options.images) * NAMES_PER_IMAGE + 1);
        let folder = self.folders[self.dice.index(self.folders.len())];
        (folder, format!("disk{number}").into_bytes().into())
    }

    /// Makes an image that differs from a template in a few blocks.
    fn create(&mut self, world: &mut World, writer: Actor) {
        let (folder, name) = self.draw_name(world);
        let Ok(no) = world.create_file(writer, folder, &name) else { return };
        world.files.get_mut(no).owner = self.draw_owner(world);
        let template = self.templates[self.dice.index(TEMPLATES)].clone();
        let length = 1 + self.dice.index(template.len());
        let mut draw =
            |content: &usize| if self.dice.one_in(8) { self.dice.index(self.palette.len()) } else { *content };
        let contents: Vec<_> = template[..length].iter().map(&mut draw).collect();
        let contents = contents.into_iter().map(|content| Some(self.palette.get(content).clone()));
        Self::write_blocks(world, writer, &WriterImage { folder, name, no }, 0, contents);
    }

    fn rename(&mut self, world: &mut World, writer: Actor, image: WriterImage, fewest: usize) {
        let to = if self.dice.one_in(2) && self.images.len() > fewest {
            self.draw_image().map(|other| (other.folder, other.name)).expect("there is the one that is renamed")
        } else {
            self.draw_name(world)
        };
        let replaced = world.reference.name(to.0, &to.1);
        let is_kept = replaced.is_some_and(|no| world.files.get(no).refusal == Some(Refusal::Immutable));
        if !is_kept && (replaced.is_none() || self.images.len() > fewest) {
            let _ = world.rename_entry(writer, (image.folder, image.name), to);
        }
    }

    fn link(&mut self, world: &mut World, writer: Actor, image: &WriterImage) {
        let to = self.draw_name(world);
        let _ = world.link_entry(writer, (image.folder, &image.name), to);
    }

    /// Makes a clone, as `cp --reflink` does.
    fn clone_image(&mut self, world: &mut World, writer: Actor, image: &WriterImage) {
        if world.has_holes_left(image.no) {
            // The clone would have the holes, too, and no host would know of them.
            return;
        }
        let (folder, name) = self.draw_name(world);
        let Ok(no) = world.create_file(writer, folder, &name) else { return };
        world.files.get_mut(no).owner = self.draw_owner(world);
        let count = world.files.get(image.no).length / BLOCK_BYTES_U64;
        if world.set_length(writer, no, count * BLOCK_BYTES_U64).is_ok() && count > 0 {
            world.clone_range(writer, SharedRanges { source: (image.no, 0), into: (no, 0), count });
        }
    }

    fn change_refusal(&mut self, world: &mut World, image: &WriterImage) {
        let refusals = [Refusal::Immutable, Refusal::Swap, Refusal::NoCopyOnWrite];
        let refusal = refusals[self.dice.index(refusals.len())];
        let file = world.files.get_mut(image.no);
        file.refusal = if file.refusal.is_none() { Some(refusal) } else { None };
    }

    /// Sets a file's time back, or puts something else among the images.
    fn change_oddly(&mut self, world: &mut World, writer: Actor, image: &WriterImage) {
        if self.dice.one_in(2) && world.options.sets_times_back {
            let earlier = self.dice.below(3_600_000_000_000);
            let now = world.file_time(writer.host());
            let file = world.files.get_mut(image.no);
            (file.modified, file.changed) = (file.modified - earlier, now);
        } else {
            let (folder, name) = self.draw_name(world);
            let _ = world.create_symlink(writer, folder, name);
        }
    }
}
