//! The rules that give a file its domain.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use onefold_substrate::{FileStat, ROOT, Substrate};

use super::label::{self, ATTRIBUTE, Label};
use super::settings::Settings;
use super::{Domain, Membership};

/// Users as which libvirt runs machines, beside root.
const MACHINE_USERS: [&str; 2] = ["libvirt-qemu", "qemu"];
/// The folders in which libvirt keeps images, the second within the first.
const LIBVIRT_FOLDERS: [&str; 2] = ["libvirt", "images"];

/// The rules of a file system at one moment. Folders are asked only once, so a scan or a pass makes its own rules.
pub struct DomainRules<'a, S: Substrate> {
    substrate: &'a S,
    settings: Settings,
    machine_users: BTreeSet<u32>,
    /// For a folder, the label that applies to its files, and the folder with that label.
    labels: RefCell<BTreeMap<PathBuf, Option<(Label, PathBuf)>>>,
    /// Whether only root may write to a folder.
    guarded: RefCell<BTreeMap<PathBuf, bool>>,
}

/// A file's domain, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDomain {
    /// The domain, and the facts that decided it.
    pub membership: Membership,
    /// The rule.
    pub cause: Cause,
    /// Whether the settings put it there instead of into the domain of that rule.
    pub is_joined: bool,
}

/// The rule that gave a file its domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its owner.
    Owner,
    /// The owner that it had before it was given to a user that runs machines.
    EarlierOwner,
    /// A label, of the file or of a folder.
    Label(PathBuf),
    /// It is a machine's, in a folder of libvirt's.
    Libvirt,
    /// The file system keeps domains apart by itself.
    FileSystem,
}

impl<'a, S: Substrate> DomainRules<'a, S> {
    /// Returns the rules of a file system with these settings.
    #[must_use]
    pub fn new(substrate: &'a S, settings: Settings) -> DomainRules<'a, S> {
        let named = MACHINE_USERS.iter().filter_map(|name| substrate.user_named(name));
        let machine_users = named.chain(settings.machine_users().iter().copied()).chain([ROOT]).collect();
        let (labels, guarded) = (RefCell::default(), RefCell::default());
        DomainRules { substrate, settings, machine_users, labels, guarded }
    }

    /// Returns the domain of an open file. `before` is the membership that was noted of it last.
    ///
    /// # Errors
    /// Errors of reading its label; `InvalidData` if a label names no domain. A file without a domain is not to be
    /// shared.
    pub fn find(
        &self,
        path: &Path,
        file: &S::File,
        stat: &FileStat,
        before: Option<&Membership>,
    ) -> io::Result<FoundDomain> {
        let found = |domain: Domain, tenant, cause| {
            let joined = self.settings.joined(&domain);
            let is_joined = joined.is_some();
            let domain = joined.unwrap_or(domain);
            FoundDomain { membership: Membership { domain, tenant, owner: stat.owner }, cause, is_joined }
        };
        if self.substrate.abilities().has_own_domains {
            return Ok(found(Domain::built_in(Domain::POOL), stat.owner, Cause::FileSystem));
        }
        let tenant = match before {
            Some(before) if self.is_machine_user(stat.owner) => before.tenant,
            _ => stat.owner,
        };
        let own = label::read(self.substrate.attribute_of(file, ATTRIBUTE)?, path)?;
        // A name in a folder may be a link that another user made there to a file of somebody else. So the folders of a
        // file with several names do not decide its domain.
        let has_one_name = stat.names <= 1;
        let label = match own {
            Some(label) => Some((label, path.to_owned())),
            None if has_one_name => self.label_of(path.parent().unwrap_or(Path::new("")))?,
            None => None,
        };
        Ok(match label {
            Some((Label::Domain(domain), by)) => found(domain, tenant, Cause::Label(by)),
            None if has_one_name && self.is_machine_user(tenant) && self.is_in_libvirts(path)? => {
                found(Domain::built_in(Domain::LIBVIRT), tenant, Cause::Libvirt)
            }
            _ if tenant == stat.owner => found(Domain::Owner(tenant), tenant, Cause::Owner),
            _ => found(Domain::Owner(tenant), tenant, Cause::EarlierOwner),
        })
    }

    /// Returns the label that applies to files in a folder, and the folder that has it.
    ///
    /// # Errors
    /// As [`DomainRules::find`].
    pub fn of_folder(&self, folder: &Path) -> io::Result<Option<(Label, PathBuf)>> {
        self.label_of(folder)
    }

    /// Does the same as [`DomainRules::find`], without the reason.
    ///
    /// # Errors
    /// As [`DomainRules::find`].
    pub fn membership(
        &self,
        path: &Path,
        file: &S::File,
        stat: &FileStat,
        before: Option<&Membership>,
    ) -> io::Result<Membership> {
        Ok(self.find(path, file, stat, before)?.membership)
    }

    /// Returns whether a user runs machines, so that a file that is given to this user keeps its tenant.
    fn is_machine_user(&self, user: u32) -> bool {
        self.machine_users.contains(&user)
    }

    /// Returns the label that applies in a folder. Folders that may not be read have none.
    fn label_of(&self, folder: &Path) -> io::Result<Option<(Label, PathBuf)>> {
        if let Some(known) = self.labels.borrow().get(folder) {
            return Ok(known.clone());
        }
        let value = match self.substrate.attribute(folder, ATTRIBUTE) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            value => value?,
        };
        let found = match (label::read(value, folder)?, folder.parent()) {
            (Some(label), _) => Some((label, folder.to_owned())),
            (None, Some(parent)) => self.label_of(parent)?,
            (None, None) => None,
        };
        self.labels.borrow_mut().insert(folder.to_owned(), found.clone());
        Ok(found)
    }

    /// Returns whether a file is in a folder of libvirt's, in which nobody but root can have put it: only root may
    /// write to that folder, and to all folders below it on the way to the file.
    fn is_in_libvirts(&self, path: &Path) -> io::Result<bool> {
        let mounted_at: Vec<Component<'_>> = self.substrate.mounted_at().components().collect();
        let folder = path.parent().unwrap_or(Path::new(""));
        let below: Vec<Component<'_>> = folder.components().collect();
        let whole: Vec<Component<'_>> = mounted_at.iter().chain(&below).copied().collect();
        let is_libvirts = |pair: &[Component<'_>]| {
            pair.iter().zip(LIBVIRT_FOLDERS).all(|(component, name)| component.as_os_str() == name)
        };
        let Some(first) = whole.windows(2).position(is_libvirts) else { return Ok(false) };
        // Folders above the root of the file system lead to a mount point, which only root can make.
        let shallowest = first.saturating_sub(mounted_at.len()) + usize::from(first >= mounted_at.len());
        for depth in shallowest..=below.len() {
            if !self.is_guarded(below[..depth].iter().collect())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether only root may write to a folder.
    fn is_guarded(&self, folder: PathBuf) -> io::Result<bool> {
        if let Some(known) = self.guarded.borrow().get(&folder) {
            return Ok(*known);
        }
        let is_guarded = match self.substrate.path_protection(&folder) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => false,
            protection => protection?.is_roots_alone(),
        };
        self.guarded.borrow_mut().insert(folder, is_guarded);
        Ok(is_guarded)
    }
}
