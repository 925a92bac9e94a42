//! The images that give content to a common volume, opened one at a time.
//!
//! A search of many guests may take hours. Meanwhile an image may be replaced or opted out, become a common volume, or
//! get another owner or domain. So an image is looked at again when its blocks are to be cloned, and it is open only as
//! long as it is the last one that was asked for.

use std::rc::Rc;

use onefold_substrate::{ROOT, Substrate, UserNo};

use super::volume::is_marked;
use crate::domain::DomainRules;
use crate::files::identify::open_listed;
use crate::opt_out::OptOuts;
use crate::scan::ListedFile;
use crate::state::files::Marks;
use crate::state::{State, StateError};

/// Opens a file by its index among those that give content; `None` if it may not give content any more.
pub(super) type OpenSource<'a, F> = dyn FnMut(usize) -> Option<Rc<F>> + 'a;

/// Returns whether an image may give content to a volume: the owner of the volume can read all of its content.
pub(super) fn may_give(image_owner: u32, volume_owner: UserNo) -> bool {
    [ROOT, image_owner].contains(&volume_owner.0)
}

/// The images that give content to a volume.
pub(super) struct SourceImages<'a, S: Substrate> {
    substrate: &'a S,
    domains: DomainRules<'a, S>,
    marks: &'a Marks,
    volume_owner: UserNo,
    images: Vec<&'a ListedFile>,
    /// The last image that was asked for, by its index.
    open: Option<(usize, Rc<S::File>)>,
}

impl<'a, S: Substrate> SourceImages<'a, S> {
    /// Returns the images, none of which is open.
    ///
    /// # Errors
    /// Errors of the settings of domains.
    pub(super) fn new(
        state: &State<'a, S>,
        marks: &'a Marks,
        images: Vec<&'a ListedFile>,
        volume_owner: UserNo,
    ) -> Result<SourceImages<'a, S>, StateError> {
        let domains = DomainRules::of(state)?;
        Ok(SourceImages { substrate: state.substrate(), domains, marks, volume_owner, images, open: None })
    }

    /// Opens an image by its index. `None` if it cannot be opened, or may not give content any more: its name leads to
    /// another file, it was opted out, it has become a common volume, or it has got another domain or owner.
    pub(super) fn open(&mut self, index: usize) -> Option<Rc<S::File>> {
        if let Some((_, file)) = self.open.as_ref().filter(|(open, _)| *open == index) {
            return Some(Rc::clone(file));
        }
        self.open = None;
        let listed = self.images.get(index)?;
        let (file, stat) = open_listed(self.substrate, listed).ok()?;
        let before = self.marks.get(listed.number).map(|mark| &mark.membership);
        let membership = self.domains.membership(&listed.path, &file, &stat, before).ok()?;
        if membership.domain != listed.domain || !may_give(stat.owner, self.volume_owner) {
            return None;
        }
        // Folders are asked again for each image.
        let is_opted_out = OptOuts::new(self.substrate).of(&listed.path).ok()?.is_some();
        if is_opted_out || is_marked(self.substrate, &listed.path) {
            return None;
        }
        let file = Rc::new(file);
        self.open = Some((index, Rc::clone(&file)));
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use onefold_block::BLOCK_BYTES;
    use onefold_substrate::{Files, Names};
    use onefold_testing::simulated::{HostNo, SimulatedFileSystem, SimulationOptions};

    use super::super::volume;
    use super::*;
    use crate::opt_out;
    use crate::scan::list;
    use crate::selection::Selection;

    /// Regressions: an image gave content that another user wrote to it after the search, or though it was opted out
    /// then, and all images were open until the end.
    #[test]
    fn one_image_is_open_at_a_time_and_none_that_has_got_another_domain_or_was_replaced_or_opted_out() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let host = file_system.mount(HostNo(0));
        let substrate = &host.substrate;
        substrate.create_dir(Path::new("folder")).unwrap();
        for name in ["a", "b", "c", "d", "e", "f", "folder/g"] {
            substrate.write_at(&substrate.create(Path::new(name)).unwrap(), 0, &[7; BLOCK_BYTES]).unwrap();
        }
        let state = State::open(substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let mut marks = Marks::load(&state).unwrap();
        let listed = list(&state, &mut marks, &Selection::all()).unwrap();
        let images = || listed.iter().collect::<Vec<_>>();
        let mut sources = SourceImages::new(&state, &marks, images(), UserNo::ROOT).unwrap();
        let before = file_system.open_files(host.no);
        for index in [0, 0, 1, 3, 0] {
            assert!(sources.open(index).is_some(), "{index}");
            assert_eq!(file_system.open_files(host.no), before + 1);
        }
        assert!(sources.open(7).is_none());
        file_system.give_image(host.no, "b", 4711).unwrap();
        substrate.rename(Path::new("d"), Path::new("c")).unwrap();
        opt_out::exclude(substrate, Path::new("e")).unwrap();
        substrate.set_attribute(Path::new("f"), volume::ATTRIBUTE, Some(volume::ATTRIBUTE_VALUE)).unwrap();
        assert!(sources.open(6).is_some());
        opt_out::exclude(substrate, Path::new("folder")).unwrap();
        let opened: Vec<_> = (0..7).map(|index| sources.open(index).is_some()).collect();
        assert_eq!(opened, [true, false, false, false, false, false, false]);
        let mut of_user = SourceImages::new(&state, &marks, images(), UserNo(4712)).unwrap();
        assert!(of_user.open(0).is_none(), "the owner of the volume may not read the image");
    }
}
