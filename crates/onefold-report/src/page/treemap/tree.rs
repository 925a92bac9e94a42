//! The tree for the drawing: groups, packages and folders. The small ones of each are counted together.

use crate::files::{BytesUse, OTHERS, PartShare, ShareBytes};

/// A node with its bytes and its parts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) share: ShareBytes,
    /// The largest first. Either empty, or together as many bytes as the node.
    pub(super) parts: Vec<Node>,
}

/// Limits for the nodes that are kept separately.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    /// Minimum part of all bytes that a node must have: one in this many.
    pub(super) one_of: u64,
    /// Maximum number of nodes, without groups and "others".
    pub(super) count: usize,
}

/// Returns the groups in their order, each with its largest parts and the sum of the others.
pub(super) fn groups(bytes: &BytesUse, limit: Limit) -> Vec<Node> {
    let smallest_bytes = smallest(bytes, limit);
    let group = |group: &crate::files::GroupShare| Node {
        name: group.name.title().to_owned(),
        share: group.share,
        parts: parts(group.share, &group.parts, smallest_bytes),
    };
    bytes.groups.iter().filter(|group| group.share.bytes > 0).map(group).collect()
}

/// Returns the minimum bytes of a part that is kept separately.
fn smallest(bytes: &BytesUse, limit: Limit) -> u64 {
    let all = sum(bytes.groups.iter().map(|group| group.share)).bytes;
    let floor = (all / limit.one_of.max(1)).max(1);
    let mut sizes: Vec<u64> = Vec::new();
    for part in bytes.groups.iter().flat_map(|group| &group.parts) {
        sizes.extend([part.share.bytes].into_iter().filter(|size| *size >= floor));
        sizes.extend(part.parts.iter().map(|part| part.share.bytes).filter(|size| *size >= floor));
    }
    if sizes.len() <= limit.count {
        return floor;
    }
    // If several parts have the size at the limit, none of them is kept, because a choice among them would be
    // arbitrary.
    let (_, largest_left_out, _) = sizes.select_nth_unstable_by(limit.count, |a, b| b.cmp(a));
    largest_left_out.saturating_add(1)
}

/// Returns the sum of shares.
pub(super) fn sum(shares: impl Iterator<Item = ShareBytes>) -> ShareBytes {
    shares.fold(ShareBytes::default(), |sum, share| ShareBytes {
        bytes: sum.bytes.saturating_add(share.bytes),
        shared_with_others_bytes: sum.shared_with_others_bytes.saturating_add(share.shared_with_others_bytes),
        only_here_bytes: sum.only_here_bytes.saturating_add(share.only_here_bytes),
        repeated_within_bytes: sum.repeated_within_bytes.saturating_add(share.repeated_within_bytes),
    })
}

/// Returns the parts of `whole` with at least `smallest_bytes`, the largest first, and the sum of the others.
fn parts(whole: ShareBytes, parts: &[PartShare], smallest_bytes: u64) -> Vec<Node> {
    let there = || parts.iter().filter(|part| part.share.bytes > 0);
    // The drawing would be wrong if the sum of the parts differed from the whole.
    if sum(there().map(|part| part.share)).bytes != whole.bytes {
        return Vec::new();
    }
    let (kept, small): (Vec<_>, Vec<_>) =
        there().partition(|part| part.share.bytes >= smallest_bytes && part.name != OTHERS);
    if kept.is_empty() {
        return Vec::new();
    }
    let mut nodes: Vec<Node> = kept.into_iter().map(|part| node(part, smallest_bytes)).collect();
    match small.as_slice() {
        [] => {}
        [one] => nodes.push(node(one, smallest_bytes)),
        _ => nodes.push(others(&small)),
    }
    nodes.sort_by_key(|node| std::cmp::Reverse(node.share.bytes));
    nodes
}

fn node(part: &PartShare, smallest_bytes: u64) -> Node {
    Node { name: part.name.clone(), share: part.share, parts: parts(part.share, &part.parts, smallest_bytes) }
}

/// Combines small parts into one. Its name includes their number, if known.
fn others(small: &[&PartShare]) -> Node {
    let is_counted = small.iter().all(|part| part.name != OTHERS);
    let name = if is_counted { format!("{} {OTHERS}", small.len()) } else { OTHERS.to_owned() };
    Node { name, share: sum(small.iter().map(|part| part.share)), parts: Vec::new() }
}

/// Returns groups in descending order for a drawing. Groups that are smaller than one in `one_of` are combined.
pub(super) fn drawn(mut groups: Vec<Node>, one_of: u64) -> Vec<Node> {
    let all = sum(groups.iter().map(|group| group.share)).bytes;
    let small: Vec<Node> = groups.extract_if(.., |group| group.share.bytes < all / one_of.max(1)).collect();
    match small.len() {
        0 => {}
        1 => groups.extend(small),
        count => {
            let share = sum(small.iter().map(|group| group.share));
            groups.push(Node { name: format!("{count} {OTHERS}"), share, parts: Vec::new() });
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.share.bytes));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{GroupName, GroupShare};

    const ALL: Limit = Limit { one_of: u64::MAX, count: usize::MAX };

    fn share(bytes: u64) -> ShareBytes {
        ShareBytes { bytes, only_here_bytes: bytes, ..ShareBytes::default() }
    }

    fn part(name: &str, bytes: u64, parts: Vec<PartShare>) -> PartShare {
        PartShare { name: name.to_owned(), share: share(bytes), parts }
    }

    fn use_of(parts: Vec<PartShare>) -> BytesUse {
        let bytes = parts.iter().map(|part| part.share.bytes).fold(0, u64::saturating_add);
        let group = GroupShare { name: GroupName::Packages, share: share(bytes), parts };
        BytesUse { groups: vec![group], ..BytesUse::default() }
    }

    fn names(nodes: &[Node]) -> Vec<(&str, u64)> {
        nodes.iter().map(|node| (node.name.as_str(), node.share.bytes)).collect()
    }

    #[test]
    fn small_parts_are_counted_together_and_no_byte_is_lost() {
        let folders = vec![part("/usr/lib", 60, Vec::new()), part("/etc", 39, Vec::new()), part("/a", 1, Vec::new())];
        let all = use_of(vec![part("libc6", 100, folders), part("b", 5, Vec::new()), part("c", 4, Vec::new())]);
        let found = groups(&all, Limit { one_of: 10, count: 100 });
        assert_eq!(names(&found), [("packages", 109)]);
        assert_eq!(names(&found[0].parts), [("libc6", 100), ("2 others", 9)]);
        assert_eq!(names(&found[0].parts[0].parts), [("/usr/lib", 60), ("/etc", 39), ("/a", 1)], "one stays itself");
        assert_eq!(names(&groups(&all, ALL)[0].parts), [("libc6", 100), ("b", 5), ("c", 4)]);
    }

    #[test]
    fn others_that_were_counted_before_join_these() {
        let all = use_of(vec![part("a", 100, Vec::new()), part(OTHERS, 90, Vec::new()), part("b", 1, Vec::new())]);
        let found = groups(&all, Limit { one_of: 50, count: 100 });
        assert_eq!(names(&found[0].parts), [("a", 100), (OTHERS, 91)]);
    }

    #[test]
    fn no_more_than_the_given_number_is_kept() {
        let many: Vec<PartShare> = (0..5000).map(|at| part("x", 1_000_000 - at, Vec::new())).collect();
        let found = groups(&use_of(many), Limit { one_of: 1_000_000, count: 50 });
        assert_eq!(found[0].parts.len(), 51);
        assert_eq!(found[0].parts[0].name, "4950 others");
        let alike: Vec<PartShare> = (0..5000).map(|_| part("x", 4096, Vec::new())).collect();
        assert!(groups(&use_of(alike), Limit { one_of: 1_000_000, count: 50 })[0].parts.is_empty());
    }

    #[test]
    fn nothing_the_largest_numbers_and_wrong_sums_are_no_trouble() {
        assert!(groups(&BytesUse::default(), ALL).is_empty());
        assert!(groups(&use_of(vec![part("empty", 0, Vec::new())]), ALL).is_empty());
        let huge = vec![part("a", u64::MAX, Vec::new()), part("b", u64::MAX, Vec::new())];
        assert_eq!(names(&groups(&use_of(huge), ALL)), [("packages", u64::MAX)]);
        let wrong = part("a", 10, vec![part("b", 11, Vec::new())]);
        assert!(groups(&use_of(vec![wrong]), ALL)[0].parts[0].parts.is_empty());
    }

    #[test]
    fn groups_too_small_to_be_seen_are_drawn_together() {
        let group = |name: &str, bytes| Node { name: name.to_owned(), share: share(bytes), parts: Vec::new() };
        let few = vec![group("gaps", 2), group("packages", 10_000)];
        assert_eq!(names(&drawn(few.clone(), 1000)), [("packages", 10_000), ("gaps", 2)]);
        let more = [few, vec![group("swap", 3)]].concat();
        assert_eq!(names(&drawn(more, 1000)), [("packages", 10_000), ("2 others", 5)]);
        assert!(drawn(Vec::new(), 1000).is_empty());
    }
}
