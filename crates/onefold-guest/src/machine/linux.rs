//! Information about a Linux system from its files.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::Release;
use super::program::{Architecture, of_program};
use crate::error::GuestError;
use crate::filesystem::FileKind;
use crate::tree::{Links, ProblemLog, Tree};

/// Maximum length of a text. These files have some hundred bytes.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a host name.
const HOST_NAME_BYTES_MAX: usize = 253;
/// Maximum number of kernels.
const KERNELS_MAX: usize = 1000;

const RELEASE_PATHS: [&[u8]; 2] = [b"/etc/os-release", b"/usr/lib/os-release"];
/// Programs and libraries, at least one of which exists on almost every system. The dynamic linker is for images
/// without a shell.
const PROGRAM_PATHS: [&[u8]; 10] = [
    b"/bin/sh",
    b"/sbin/init",
    b"/usr/bin/env",
    b"/bin/busybox",
    b"/usr/lib/systemd/systemd",
    b"/lib64/ld-linux-x86-64.so.2",
    b"/lib/ld-linux-aarch64.so.1",
    b"/lib/ld-musl-x86_64.so.1",
    b"/lib/ld-musl-aarch64.so.1",
    b"/lib/ld-linux.so.2",
];
/// Prefixes of kernel files in `/boot`. The version follows.
const KERNEL_PREFIXES: [&[u8]; 3] = [b"vmlinuz-", b"vmlinux-", b"Image-"];

/// A kernel of a Linux system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its version, as in the names of its files. Bytes of the guest.
    pub version: Vec<u8>,
    /// The path of the kernel in `/boot`; `None` if there are only modules.
    pub image: Option<Vec<u8>>,
    /// Whether `/lib/modules` has modules for it.
    pub has_modules: bool,
}

/// Returns the release of the system.
pub(super) fn release(tree: &Tree<'_>, problems: &ProblemLog) -> Option<Release> {
    RELEASE_PATHS
        .iter()
        .find_map(|path| problems.skip(path, tree.read_path(path, TEXT_BYTES_MAX)))
        .map(|text| Release::parse(&text))
}

/// Returns the host name.
pub(super) fn host_name(tree: &Tree<'_>, problems: &ProblemLog) -> Option<Vec<u8>> {
    let read = |path: &[u8]| problems.skip(path, tree.read_path(path, TEXT_BYTES_MAX));
    let of_file = read(b"/etc/hostname").and_then(|text| first_word(&text));
    // Red Hat systems before systemd had it here.
    of_file.or_else(|| {
        let text = read(b"/etc/sysconfig/network")?;
        let value = text.split(|byte| *byte == b'\n').find_map(|line| line.trim_ascii().strip_prefix(b"HOSTNAME="))?;
        first_word(value.trim_ascii_start().strip_prefix(b"\"").unwrap_or(value).split(|byte| *byte == b'"').next()?)
    })
}

/// Returns the first word of the first line that is not a comment.
fn first_word(text: &[u8]) -> Option<Vec<u8>> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let line = lines.into_iter().find(|line| !line.is_empty() && !line.starts_with(b"#"))?;
    let word = line.split(u8::is_ascii_whitespace).next()?;
    Some(word.get(..HOST_NAME_BYTES_MAX).unwrap_or(word).to_vec())
}

/// Returns the architecture of the first program that exists.
pub(super) fn architecture(tree: &Tree<'_>, problems: &ProblemLog) -> Option<Architecture> {
    PROGRAM_PATHS.iter().find_map(|path| of_program(tree, path, problems))
}

/// Returns the kernels, sorted by version.
pub(super) fn kernels(tree: &Tree<'_>, problems: &ProblemLog) -> Vec<Kernel> {
    let mut kernels: BTreeMap<Vec<u8>, Kernel> = BTreeMap::new();
    let mut note = |version: &[u8], image: Option<Vec<u8>>| {
        if kernels.len() >= KERNELS_MAX && !kernels.contains_key(version) {
            return;
        }
        let version = version.to_vec();
        let kernel = Kernel { version: version.clone(), image: None, has_modules: false };
        let kernel = kernels.entry(version).or_insert(kernel);
        kernel.has_modules |= image.is_none();
        kernel.image = kernel.image.take().or(image);
    };
    each_name(tree, b"/boot", problems, &mut |name, kind| {
        let version = KERNEL_PREFIXES.iter().find_map(|prefix| name.strip_prefix(*prefix));
        if let (Some(version), FileKind::Regular | FileKind::SymbolicLink) = (version, kind) {
            note(version, Some([b"/boot/", name].concat()));
        }
    });
    each_name(tree, b"/lib/modules", problems, &mut |name, kind| {
        if kind == FileKind::Directory {
            note(name, None);
        }
    });
    let mut kernels: Vec<Kernel> = kernels.into_values().collect();
    kernels.sort_by(|one, two| by_version(&one.version, &two.version));
    kernels
}

/// Calls `visit` with each name of a readable directory.
fn each_name(tree: &Tree<'_>, path: &[u8], problems: &ProblemLog, visit: &mut dyn FnMut(&[u8], FileKind)) {
    let Some(directory) = problems.skip(path, tree.find(path, Links::Follow)) else { return };
    let mut outcome: Result<(), GuestError> = Ok(());
    let read = tree.each_entry(directory.file, &mut |entry, file| {
        match entry.kind.map_or_else(|| tree.stat(file).map(|stat| stat.kind), Ok) {
            Ok(kind) => visit(&entry.name, kind),
            Err(error) => outcome = Err(error),
        }
        ControlFlow::Continue(())
    });
    problems.skip(path, read.and(outcome));
}

/// Orders versions naturally: runs of digits compare by their numbers.
fn by_version(one: &[u8], two: &[u8]) -> Ordering {
    let (mut one, mut two) = (one, two);
    while let (Some(left), Some(right)) = (one.first(), two.first()) {
        if left.is_ascii_digit() && right.is_ascii_digit() {
            let (left, one_rest) = digits(one);
            let (right, two_rest) = digits(two);
            let order = left.len().cmp(&right.len()).then_with(|| left.cmp(right));
            if order.is_ne() {
                return order;
            }
            (one, two) = (one_rest, two_rest);
        } else {
            if left != right {
                return left.cmp(right);
            }
            (one, two) = (one.get(1..).unwrap_or_default(), two.get(1..).unwrap_or_default());
        }
    }
    one.len().cmp(&two.len())
}

/// Returns the leading digits of a text without leading zeros, and the rest.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let zeros = number.iter().take_while(|digit| **digit == b'0').count();
    (number.get(zeros..).unwrap_or_default(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryFileSystem;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let mut versions = ["6.1.0-25-amd64", "5.10.0-9", "6.1.0-9-amd64", "6.12", "6.1.0-9-cloud", "6.1"];
        versions.sort_by(|one, two| by_version(one.as_bytes(), two.as_bytes()));
        assert_eq!(versions, ["5.10.0-9", "6.1", "6.1.0-9-amd64", "6.1.0-9-cloud", "6.1.0-25-amd64", "6.12"]);
    }

    #[test]
    fn a_kernel_is_an_image_or_its_modules() {
        let mut system = MemoryFileSystem::default();
        system.write("/boot/vmlinuz-6.1.0-25-amd64", "");
        system.write("/boot/vmlinuz-6.1.0-9-amd64", "");
        system.write("/boot/initrd.img-6.1.0-9-amd64", "");
        system.directory("/boot/vmlinuz-folder");
        system.directory("/usr/lib/modules/6.1.0-25-amd64");
        system.directory("/usr/lib/modules/6.0");
        system.symlink("/lib", "usr/lib");
        let problems = ProblemLog::default();
        let kernel = |version: &str, has_image: bool, has_modules| Kernel {
            version: version.into(),
            image: has_image.then(|| format!("/boot/vmlinuz-{version}").into_bytes()),
            has_modules,
        };
        let expected =
            [kernel("6.0", false, true), kernel("6.1.0-9-amd64", true, false), kernel("6.1.0-25-amd64", true, true)];
        assert_eq!(kernels(&Tree::new(&system), &problems), expected);
        assert_eq!(problems.count(), 0);
    }

    #[test]
    fn a_host_name_is_the_first_word_of_its_file() {
        for (path, text, expected) in [
            ("/etc/hostname", "web-1\n", Some("web-1")),
            ("/etc/hostname", "# set by hand\n\n  web-2 \n", Some("web-2")),
            ("/etc/hostname", "\n", None),
            ("/etc/sysconfig/network", "NETWORKING=yes\nHOSTNAME=old.example\n", Some("old.example")),
            ("/etc/sysconfig/network", "HOSTNAME=\"old\"\n", Some("old")),
            ("/etc/other", "x", None),
        ] {
            let mut system = MemoryFileSystem::default();
            system.write(path, text);
            let found = host_name(&Tree::new(&system), &ProblemLog::default());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{text}");
        }
    }
}
