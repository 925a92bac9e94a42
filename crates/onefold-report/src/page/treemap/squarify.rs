//! Divides a frame into rectangles: the area of each is proportional to its size, and most are nearly square.
//!
//! The method is that of M. Bruls, K. Huizing and J. J. van Wijk, "Squarified Treemaps", Data Visualization 2000: rows
//! are laid along the shorter side of the remaining frame. A row takes another rectangle as long as that improves the
//! worst of its aspect ratios. The rectangles cover the whole frame without gaps.

/// A rectangle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Frame {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Frame {
    /// Returns a frame at the origin.
    pub(super) fn of(width: f64, height: f64) -> Frame {
        Frame { x: 0.0, y: 0.0, width, height }
    }

    pub(super) fn right(&self) -> f64 {
        self.x + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.y + self.height
    }

    /// Returns the rectangle in the form for drawings: corner and sides.
    pub(super) fn sides(&self) -> [f64; 4] {
        [self.x, self.y, self.width, self.height]
    }

    pub(super) fn area(&self) -> f64 {
        self.width * self.height
    }

    /// Returns whether the two have more than an edge in common.
    pub(super) fn overlaps(&self, other: &Frame) -> bool {
        self.x < other.right() && other.x < self.right() && self.y < other.bottom() && other.y < self.bottom()
    }

    fn shorter_side(&self) -> f64 {
        self.width.min(self.height)
    }

    /// Lays a row of rectangles with these areas along the shorter side. Returns the rest of the frame.
    fn lay(self, row: &[f64], placed: &mut Vec<Frame>) -> Frame {
        let side = self.shorter_side();
        let sum: f64 = row.iter().sum();
        if side <= 0.0 || sum <= 0.0 {
            placed.extend(row.iter().map(|_| Frame { width: 0.0, height: 0.0, ..self }));
            return self;
        }
        let is_column = self.width >= self.height;
        let thickness = (sum / side).min(if is_column { self.width } else { self.height });
        let mut along = 0.0;
        for area in row {
            let length = area / sum * side;
            placed.push(if is_column {
                Frame { y: self.y + along, width: thickness, height: length, ..self }
            } else {
                Frame { x: self.x + along, width: length, height: thickness, ..self }
            });
            along += length;
        }
        if is_column {
            Frame { x: self.x + thickness, width: self.width - thickness, ..self }
        } else {
            Frame { y: self.y + thickness, height: self.height - thickness, ..self }
        }
    }
}

/// Returns a rectangle in `frame` for each size. Descending sizes give the best aspect ratios. A size of zero gives an
/// empty rectangle.
pub(super) fn squarify(frame: Frame, sizes: &[u64]) -> Vec<Frame> {
    let sum: f64 = sizes.iter().map(|size| *size as f64).sum();
    let scale = if sum > 0.0 { frame.area() / sum } else { 0.0 };
    let areas: Vec<f64> = sizes.iter().map(|size| *size as f64 * scale).collect();
    let mut placed = Vec::with_capacity(areas.len());
    let (mut left, mut rest) = (frame, areas.as_slice());
    while !rest.is_empty() {
        let (row, after) = rest.split_at(row_length(rest, left.shorter_side()));
        left = left.lay(row, &mut placed);
        rest = after;
    }
    placed
}

/// Returns how many of the next areas (at least one) the next row takes along `side`.
fn row_length(areas: &[f64], side: f64) -> usize {
    let (mut sum, mut largest, mut smallest, mut worst) = (0.0, 0.0_f64, f64::INFINITY, f64::INFINITY);
    for (count, &area) in areas.iter().enumerate() {
        sum += area;
        largest = largest.max(area);
        smallest = smallest.min(area);
        let (side, whole) = (side * side, sum * sum);
        let next = (side * largest / whole).max(whole / (side * smallest));
        // Sizes of zero have no aspect ratio, and the end of a row does not make any ratio worse.
        if count > 0 && (next > worst || next.is_nan()) {
            return count;
        }
        worst = next;
    }
    areas.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;

    fn ratio(frame: &Frame) -> f64 {
        (frame.width / frame.height).max(frame.height / frame.width)
    }

    /// Asserts that the rectangles cover the frame, and that the area of each matches its size.
    fn check(frame: Frame, sizes: &[u64]) -> Vec<Frame> {
        let placed = squarify(frame, sizes);
        assert_eq!(placed.len(), sizes.len());
        let sum: f64 = sizes.iter().map(|size| *size as f64).sum();
        for (place, size) in placed.iter().zip(sizes) {
            let expected = frame.area() * *size as f64 / sum;
            assert!((place.area() - expected).abs() <= frame.area() * 1e-9, "{place:?} is not {expected} large");
            let slack = 1e-6;
            assert!(place.x >= frame.x - slack && place.right() <= frame.right() + slack, "{place:?}");
            assert!(place.y >= frame.y - slack && place.bottom() <= frame.bottom() + slack, "{place:?}");
        }
        let smaller = |frame: &Frame| Frame {
            x: frame.x + 1e-6,
            y: frame.y + 1e-6,
            width: frame.width - 2e-6,
            height: frame.height - 2e-6,
        };
        let inner: Vec<Frame> = placed.iter().filter(|place| place.shorter_side() > 2e-6).map(smaller).collect();
        for (at, one) in inner.iter().enumerate() {
            assert!(!inner[..at].iter().any(|other| one.overlaps(other)), "{one:?} of {sizes:?}");
        }
        placed
    }

    /// Figure 4 of the paper.
    #[test]
    fn the_example_of_the_paper_comes_out_as_there() {
        let placed = check(Frame::of(6.0, 4.0), &[6, 6, 4, 3, 2, 2, 1]);
        let expected = [
            (0.0, 0.0, 3.0, 2.0),
            (0.0, 2.0, 3.0, 2.0),
            (3.0, 0.0, 12.0 / 7.0, 7.0 / 3.0),
            (3.0 + 12.0 / 7.0, 0.0, 9.0 / 7.0, 7.0 / 3.0),
        ];
        for (place, (x, y, width, height)) in placed.iter().zip(expected) {
            let differences = [place.x - x, place.y - y, place.width - width, place.height - height];
            assert!(differences.iter().all(|difference| difference.abs() < 1e-9), "{place:?}");
        }
    }

    #[test]
    fn areas_are_right_and_nothing_overlaps_whatever_the_sizes() {
        let random = SeededRandom::new(23);
        for round in 0..300_u64 {
            let count = 1 + random.below(60);
            let bits = 1 + random.below(63);
            let mut sizes: Vec<u64> = (0..count).map(|_| 1 + random.below(1 << bits)).collect();
            if round % 3 > 0 {
                sizes.sort_unstable_by(|a, b| b.cmp(a));
            }
            let frame = Frame { x: 3.0, y: 7.0, width: 10.0 + random.below(1000) as f64, height: 300.0 };
            check(frame, &sizes);
        }
    }

    #[test]
    fn sizes_as_those_of_files_give_nearly_square_rectangles() {
        // Each size is a fraction of the previous one, like sizes of packages.
        for (count, fall) in [(10, 70), (40, 90), (200, 97), (100, 100)] {
            let sizes: Vec<u64> =
                std::iter::successors(Some(1 << 40), |size| Some(size * fall / 100)).take(count).collect();
            let placed = check(Frame::of(1000.0, 560.0), &sizes);
            let mean = placed.iter().map(ratio).sum::<f64>() / placed.len() as f64;
            let worst = placed.iter().map(ratio).fold(0.0, f64::max);
            assert!(mean < 1.6 && worst < 5.0, "{count}, {fall}: {mean} on average, {worst} at worst");
        }
    }

    #[test]
    fn nothing_and_the_largest_numbers_are_placed() {
        assert!(squarify(Frame::of(10.0, 10.0), &[]).is_empty());
        for sizes in [&[0][..], &[0, 0, 0], &[u64::MAX, u64::MAX, 0, 1], &[0, 5, 0], &[u64::MAX; 9]] {
            for frame in [Frame::of(10.0, 10.0), Frame::of(0.0, 10.0), Frame::default()] {
                let placed = squarify(frame, sizes);
                assert_eq!(placed.len(), sizes.len());
                for place in placed {
                    let numbers = [place.x, place.y, place.width, place.height];
                    assert!(
                        numbers.iter().all(|number| (0.0..=10.0 + 1e-9).contains(number)),
                        "{place:?} of {sizes:?}"
                    );
                }
            }
        }
        assert_eq!(squarify(Frame::of(10.0, 10.0), &[7]), [Frame::of(10.0, 10.0)]);
    }

    #[test]
    fn a_hundred_thousand_sizes_are_placed_in_one_walk() {
        let sizes = vec![4096; 100_000];
        let placed = squarify(Frame::of(1000.0, 560.0), &sizes);
        assert!(placed.iter().all(|place| (place.area() - 5.6).abs() < 1e-6));
    }
}
