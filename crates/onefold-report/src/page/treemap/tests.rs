use super::*;
use crate::files::{GroupName, GroupShare, PartShare, ShareBytes};
use onefold_block::shown::is_hidden;

fn share(bytes: u64, shared_with_others_bytes: u64) -> ShareBytes {
    let only_here_bytes = bytes - shared_with_others_bytes;
    ShareBytes { bytes, shared_with_others_bytes, only_here_bytes, repeated_within_bytes: 0 }
}

fn part(name: &str, bytes: u64, shared: u64, parts: Vec<PartShare>) -> PartShare {
    PartShare { name: name.to_owned(), share: share(bytes, shared), parts }
}

fn files(parts: Vec<PartShare>) -> FilesAnalysis {
    let share = sum(parts.iter().map(|part| part.share));
    let groups = vec![GroupShare { name: GroupName::Packages, share, parts }];
    FilesAnalysis { total: BytesUse { groups, ..BytesUse::default() }, ..FilesAnalysis::default() }
}

#[test]
fn nothing_is_no_section() {
    assert_eq!(section(&FilesAnalysis::default()), "");
    assert_eq!(section(&files(Vec::new())), "");
}

#[test]
fn the_table_has_the_numbers_of_the_drawing() {
    let folders = vec![part("/usr/lib", 3 << 20, 3 << 20, Vec::new()), part("/etc", 1 << 20, 0, Vec::new())];
    let page = section(&files(vec![part("libc6", 4 << 20, 3 << 20, folders), part("bash", 4 << 20, 1, Vec::new())]));
    for row in [
        "<tr class=\"level0\" data-value=\"8388608\"><th scope=\"row\" class=\"name\">packages</th><td>8.00 MiB</td>\
         <td><i class=\"back1\"></i>37.5 %</td>",
        "<tr class=\"level1\" data-value=\"4194304\"><th scope=\"row\" class=\"name\">libc6</th><td>4.00 MiB</td>\
         <td><i class=\"back3\"></i>75.0 %</td><td>1.00 MiB</td><td>0 B</td><td>50.0 %</td></tr>",
        "<tr class=\"level2\" data-value=\"1048576\"><th scope=\"row\" class=\"name\">/etc</th><td>1.00 MiB</td>\
         <td><i class=\"back0\"></i>0.0 %</td><td>1.00 MiB</td>",
    ] {
        assert!(page.contains(row), "{row}: {page}");
    }
    assert_eq!(page.matches("<svg").count(), SHAPES.len());
    let tip = "<title>packages › libc6 › /usr/lib: 3.00 MiB, other images have 100.0 % of it</title>";
    assert_eq!(page.matches(tip).count(), SHAPES.len(), "{page}");
    let words = "aria-label=\"Treemap of 8.00 MiB: packages 8.00 MiB, of which other images have 38 %. ";
    assert_eq!(page.matches(words).count(), SHAPES.len(), "{page}");
}

#[test]
fn each_fifth_has_its_colour() {
    for (shared, tone) in [(0, 0), (19, 0), (20, 1), (59, 2), (60, 3), (80, 4), (100, 4)] {
        assert_eq!(draw::tone(share(100, shared)), tone, "{shared} %");
    }
    assert_eq!(draw::tone(ShareBytes::default()), 0);
    assert_eq!(draw::tone(share(u64::MAX, u64::MAX)), TONES - 1);
    let more_than_all = ShareBytes { bytes: 1, shared_with_others_bytes: u64::MAX, ..ShareBytes::default() };
    assert_eq!(draw::tone(more_than_all), TONES - 1);
}

/// Names come from inside images, whose owner may be hostile.
#[test]
fn names_of_the_guest_stay_text_and_turn_no_text_around() {
    let evil = "\"><script>\u{202e}\u{2066}\u{200f}\u{1b}[31m</text></svg>";
    let folders = vec![part(evil, 1 << 30, 0, Vec::new()), part(evil, 1 << 30, 0, Vec::new())];
    let page = section(&files(vec![part(evil, 2 << 30, 0, folders)]));
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "{page}");
    assert_eq!(page.matches("</svg>").count(), SHAPES.len());
    let hidden = page.chars().find(|&character| is_hidden(character) && character != '\n');
    assert_eq!(hidden, None, "{page}");
}

#[test]
fn a_million_parts_and_the_largest_numbers_are_a_page_of_bounded_size() {
    let many = |count: u64| -> Vec<PartShare> {
        (0..count).map(|at| part(&format!("package-{at}"), 4096 * (1 + at % 977), 4096, Vec::new())).collect()
    };
    let mut parts = many(1_000_000);
    let folders = many(1000);
    let share = sum(folders.iter().map(|part| part.share));
    parts.push(PartShare { name: "of many folders".to_owned(), share, parts: folders });
    let page = section(&files(parts));
    assert!(page.len() < 300_000, "{}", page.len());
    for word in ["NaN", "inf", "\"-"] {
        assert!(!page.contains(word), "{word}");
    }
    let page = section(&files(vec![part("a", u64::MAX, 0, Vec::new()), part("b", 1, 1, Vec::new())]));
    assert!(page.contains("16383.99 PiB") && !page.contains("NaN"), "{page}");
}
