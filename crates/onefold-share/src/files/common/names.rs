//! Names in a common volume. They are made from names of guests and archives, which are not trusted.
//!
//! The names reach `debugfs`, whose input is a command language. So a component has plain characters only; any other
//! component is replaced by its digest.

use md5::{Digest as _, Md5};

/// The folder of a volume in which each package has its folder.
const PACKAGES: &str = "/dpkg";
/// Maximum number of characters of a component. A file system takes 255.
const COMPONENT_CHARS_MAX: usize = 120;
/// Maximum number of characters of a whole path.
const PATH_CHARS_MAX: usize = 1024;

/// Returns the folder of a package: `/dpkg/NAME_VERSION_ARCHITECTURE`.
pub(super) fn package_folder(name: &str, version: &str, architecture: &str) -> String {
    let whole = format!("{name}_{version}_{architecture}");
    format!("{PACKAGES}/{}", component(whole.as_bytes()))
}

/// Returns the place of a packaged file in the volume. Components without a meaning (`.`, `..`, empty ones) are left
/// out.
pub(super) fn file_path(folder: &str, path: &[u8]) -> String {
    let mut whole = folder.to_owned();
    for part in path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"." | b"..")) {
        whole.push('/');
        whole.push_str(&component(part));
        if whole.len() > PATH_CHARS_MAX {
            break;
        }
    }
    if whole.len() > PATH_CHARS_MAX || whole.len() == folder.len() {
        whole = format!("{folder}/{}", replaced(path));
    }
    whole
}

/// Returns a path for another content whose package gives it the same path.
pub(super) fn apart(path: &str, digest: &[u8; 16]) -> String {
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    format!("{parent}/~{}", hexadecimal(digest))
}

/// Returns whether this module makes a path of this form.
pub(super) fn is_plain(path: &str) -> bool {
    let below = path.strip_prefix(PACKAGES).and_then(|rest| rest.strip_prefix('/'));
    path.len() <= 2 * PATH_CHARS_MAX && below.is_some_and(|below| below.split('/').all(|part| is_kept(part.as_bytes())))
}

/// Returns the folders above a path, the highest first, except the root.
pub(super) fn folders_of(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| path.get(..at).unwrap_or_default()).filter(|folder| !folder.is_empty())
}

/// Returns bytes as hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn component(part: &[u8]) -> String {
    match std::str::from_utf8(part) {
        Ok(text) if is_kept(part) => text.to_owned(),
        _ => replaced(part),
    }
}

fn replaced(part: &[u8]) -> String {
    format!("~{}", hexadecimal(&Md5::digest(part)))
}

fn is_kept(part: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._+~:@%,=-".contains(byte);
    (1..=COMPONENT_CHARS_MAX).contains(&part.len()) && !matches!(part, b"." | b"..") && part.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_kept_and_others_replaced() {
        let folder = package_folder("libc++6", "1:2.3~rc1-4+b1", "amd64");
        assert_eq!(folder, "/dpkg/libc++6_1:2.3~rc1-4+b1_amd64");
        assert_eq!(file_path(&folder, b"/usr/bin/[[x"), format!("{folder}/usr/bin/{}", replaced(b"[[x")));
        assert_eq!(file_path("/dpkg/a_1_b", b"//usr/./../bin//tool"), "/dpkg/a_1_b/usr/bin/tool");
    }

    #[test]
    fn every_name_of_a_guest_becomes_a_plain_path() {
        let long = vec![b'a'; 5000];
        let deep = b"/a".repeat(3000);
        for path in
            [&b""[..], b"/", b"..", b"/a b", b"/a\nrm /b", b"/\"", b"/<2>", b"/\xff\xfe", b"/{}", b"/#", &long, &deep]
        {
            let path = file_path("/dpkg/a_1_b", path);
            assert!(is_plain(&path), "{path}");
            assert!(!path.chars().any(|letter| " \n\"<>{}#".contains(letter)), "{path}");
            assert!(is_plain(&apart(&path, &[7; 16])));
        }
        let folder = package_folder("a b\n", "../..", "x/y");
        assert!(is_plain(&format!("{folder}/f")), "{folder}");
        for path in ["/dpkg", "/dpkg/", "/dpkg/a/../b", "/other/a", "/dpkg/a//b", "/dpkg/a b"] {
            assert!(!is_plain(path), "{path}");
        }
    }

    #[test]
    fn folders_come_from_the_top() {
        assert_eq!(folders_of("/dpkg/a/b/c").collect::<Vec<_>>(), ["/dpkg", "/dpkg/a", "/dpkg/a/b"]);
    }
}
