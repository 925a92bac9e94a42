//! Runs: the places of a stream's clusters.
//!
//! A non-resident attribute stores its runs as mapping pairs. Each pair is a byte with two lengths, a count of
//! clusters, and the distance of their first one from that of the previous run. A run without a distance is a hole. A
//! zero byte ends the list.
//!
//! | bits of the first byte | field |
//! |---|---|
//! | 0..4 | bytes of the count |
//! | 4..8 | bytes of the distance, which has a sign; 0 for a hole |

/// Consecutive clusters of a stream. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClusterRun {
    /// The first one in the stream.
    pub(super) first: u64,
    /// Their number.
    pub(super) count: u64,
    /// The place of the first one in the volume; `None` for a hole.
    pub(super) cluster: Option<u64>,
}

impl ClusterRun {
    /// Returns the cluster of the stream after the last one.
    pub(super) fn end(&self) -> u64 {
        self.first + self.count
    }
}

/// Removes the first pair from `pairs` and returns it: the count, and the distance. `None` at the end of the list.
fn next_pair(pairs: &mut &[u8]) -> Result<Option<(u64, Option<i64>)>, &'static str> {
    let Some((&lengths, rest)) = pairs.split_first().filter(|(lengths, _)| **lengths != 0) else { return Ok(None) };
    let (count_length, distance_length) = (usize::from(lengths & 15), usize::from(lengths >> 4));
    let (Some(count), Some(after)) = (rest.get(..count_length), rest.get(count_length..)) else {
        return Err("a run is cut off");
    };
    let (Some(distance), Some(after)) = (after.get(..distance_length), after.get(distance_length..)) else {
        return Err("a run is cut off");
    };
    let count = signed(count).and_then(|count| u64::try_from(count).ok()).filter(|count| *count > 0);
    let Some(count) = count else { return Err("a run has no clusters") };
    let distance = if distance.is_empty() { None } else { Some(signed(distance).ok_or("a run is too long")?) };
    *pairs = after;
    Ok(Some((count, distance)))
}

/// Returns a signed little-endian number of one to eight bytes.
fn signed(bytes: &[u8]) -> Option<i64> {
    let negative = bytes.last()? & 0x80 != 0;
    let mut number = [if negative { 0xff } else { 0 }; 8];
    number.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(number))
}

/// Adds the runs of a list of mapping pairs to `runs`. The first one begins at cluster `first` of the stream, and all
/// must be within the first `clusters` of the volume. Fails with the reason; the runs before the error have been added.
pub(super) fn decode(
    mut pairs: &[u8],
    first: u64,
    clusters: u64,
    runs: &mut Vec<ClusterRun>,
) -> Result<(), &'static str> {
    let (mut first, mut last_cluster) = (first, 0_i64);
    while let Some((count, distance)) = next_pair(&mut pairs)? {
        let cluster = match distance {
            None => None,
            Some(distance) => {
                last_cluster = last_cluster.checked_add(distance).ok_or("a run lies outside of the volume")?;
                let cluster = u64::try_from(last_cluster).map_err(|_| "a run lies outside of the volume")?;
                if cluster.checked_add(count).is_none_or(|end| end > clusters) {
                    return Err("a run lies outside of the volume");
                }
                Some(cluster)
            }
        };
        let end = first.checked_add(count).ok_or("the runs are too long")?;
        runs.push(ClusterRun { first, count, cluster });
        first = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(pairs: &[u8]) -> Result<Vec<ClusterRun>, &'static str> {
        let mut runs = Vec::new();
        decode(pairs, 10, 1000, &mut runs).map(|()| runs)
    }

    #[test]
    fn distances_go_both_ways_and_holes_have_none() {
        let pairs = [0x21, 3, 0x64, 0, 0x01, 5, 0x11, 2, 0xf6, 0x22, 0, 1, 0x64, 0, 0, 99];
        let run = |first, count, cluster| ClusterRun { first, count, cluster };
        let expected = [run(10, 3, Some(100)), run(13, 5, None), run(18, 2, Some(90)), run(20, 256, Some(190))];
        assert_eq!(decoded(&pairs).unwrap(), expected);
        assert_eq!(decoded(&[]).unwrap(), []);
        assert_eq!(decoded(&[0, 0x11]).unwrap(), []);
    }

    #[test]
    fn senseless_runs_are_errors() {
        let wrong: [&[u8]; 8] = [
            &[0x11, 3],
            &[0x11],
            &[0x10, 3],
            &[0x11, 0, 3],
            &[0x11, 0xff, 3],
            &[0x11, 1, 0xff],
            &[0x21, 3, 0xff, 0x03],
            &[0x19, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ];
        for pairs in wrong {
            assert!(decoded(pairs).is_err(), "{pairs:?}");
        }
        let longest = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert!(decoded(&[longest, longest, longest].concat()).is_err());
    }
}
