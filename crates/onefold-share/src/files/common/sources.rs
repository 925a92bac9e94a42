//! The images that give content to a common volume, opened one at a time, and the volume as it was listed with them.
//!
//! A search of many guests may take hours. Meanwhile an image may be replaced or opted out, become a common volume, or
//! get another owner or domain. So an image is looked at again when its blocks are to be cloned, and it is open only as
//! long as it is the last one that was asked for. The volume is looked at again as well, before its new generation is
//! made and before that gets its name.

use std::rc::Rc;

use onefold_substrate::{FileStat, ROOT, Substrate, UserNo};

use super::CommonError;
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
        let (file, stat) = open_again(self.substrate, &self.domains, self.marks, listed)?;
        if !may_give(stat.owner, self.volume_owner) || is_marked(self.substrate, &listed.path) {
            return None;
        }
        let file = Rc::new(file);
        self.open = Some((index, Rc::clone(&file)));
        Some(file)
    }
}

/// A volume as it was listed with the images that give it content.
pub(super) struct ListedVolume<'v, 'a, S: Substrate> {
    pub(super) state: &'v State<'a, S>,
    pub(super) marks: &'v Marks,
    pub(super) listed: ListedFile,
}

impl<S: Substrate> ListedVolume<'_, '_, S> {
    /// Checks that the volume may still get content of these images.
    ///
    /// # Errors
    /// `Replaced` if its name leads to another file, or it was opted out, or has got another domain or owner. Errors of
    /// the settings of domains.
    pub(super) fn check(&self) -> Result<(), CommonError> {
        let domains = DomainRules::of(self.state)?;
        let opened = open_again(self.state.substrate(), &domains, self.marks, &self.listed);
        match opened.filter(|(_, stat)| stat.owner == self.listed.stat.owner) {
            Some(_) => Ok(()),
            None => Err(CommonError::Replaced { path: self.listed.path.clone() }),
        }
    }
}

/// Opens a listed file once more. `None` if it cannot be opened, or may not share any more as it could then: its name
/// leads to another file, it was opted out, or it has got another domain. Its folders are asked for opt-outs each time.
fn open_again<S: Substrate>(
    substrate: &S,
    domains: &DomainRules<'_, S>,
    marks: &Marks,
    listed: &ListedFile,
) -> Option<(S::File, FileStat)> {
    let (file, stat) = open_listed(substrate, listed).ok()?;
    let before = marks.get(listed.number).map(|mark| &mark.membership);
    let membership = domains.membership(&listed.path, &file, &stat, before).ok()?;
    let is_opted_out = OptOuts::new(substrate).of(&listed.path).ok()?.is_some();
    (membership.domain == listed.domain && !is_opted_out).then_some((file, stat))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use onefold_block::BLOCK_BYTES;
    use onefold_substrate::{Files, Names};
    use onefold_testing::simulated::{HostNo, SimulatedFileSystem, SimulatedSubstrate, SimulationOptions};

    use super::super::volume;
    use super::*;
    use crate::domain::label;
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

    /// Regression: a volume that was moved to another domain in the course of a search got content of images that were
    /// not, and one that was given away went back to its earlier owner.
    #[test]
    fn a_volume_that_was_moved_given_away_opted_out_or_replaced_gets_no_content() {
        let label = |path, domain: &'static str| (path, label::ATTRIBUTE, domain);
        let out = |path| (path, opt_out::ATTRIBUTE, "off");
        let changes: [Option<(&str, &str, &str)>; 6] = [
            None,
            Some(label("folder", "customer-a")),
            Some(label("folder/volume", "customer-a")),
            Some(label("folder/image", "customer-a")),
            Some(out("folder")),
            Some(out("folder/volume")),
        ];
        let good = changes.map(|change| {
            is_good_after(&|_, substrate| {
                if let Some((path, name, value)) = change {
                    substrate.set_attribute(Path::new(path), name, Some(value.as_bytes())).unwrap();
                }
            })
        });
        assert_eq!(good, [true, false, false, true, false, false]);
        assert!(!is_good_after(&|file_system, _| file_system.give_image(HostNo(0), "folder/volume", 4711).unwrap()));
        let replace = |substrate: &SimulatedSubstrate<'_>| {
            substrate.rename(Path::new("folder/image"), Path::new("folder/volume")).unwrap();
        };
        assert!(!is_good_after(&|_, substrate| replace(substrate)));
    }

    /// Returns whether a volume may get content after a change that came once it was listed.
    fn is_good_after(change: &dyn Fn(&SimulatedFileSystem, &SimulatedSubstrate<'_>)) -> bool {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let host = file_system.mount(HostNo(0));
        let substrate = &host.substrate;
        substrate.create_dir(Path::new("folder")).unwrap();
        for name in ["folder/volume", "folder/image"] {
            substrate.write_at(&substrate.create(Path::new(name)).unwrap(), 0, &[7; BLOCK_BYTES]).unwrap();
        }
        let state = State::open(substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let mut marks = Marks::load(&state).unwrap();
        let listed = list(&state, &mut marks, &Selection::all()).unwrap();
        let listed = listed.into_iter().find(|file| file.path.ends_with("volume")).unwrap();
        let volume = ListedVolume { state: &state, marks: &marks, listed };
        change(&file_system, substrate);
        match volume.check() {
            Ok(()) => true,
            Err(CommonError::Replaced { .. }) => false,
            Err(other) => panic!("{other}"),
        }
    }
}
