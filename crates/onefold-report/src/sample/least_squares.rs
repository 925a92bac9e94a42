//! Fits the other quantities of regions by two known ones.

/// Coefficients of the two known quantities, by least squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Fit {
    pub(super) weights: [f64; 2],
}

/// Fits `value` of each row by its two `known` quantities. If they are linearly dependent, only the second one counts.
pub(super) fn fit(rows: impl Iterator<Item = ([f64; 2], f64)>) -> Fit {
    let (mut aa, mut ab, mut bb, mut ay, mut by) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for ([a, b], y) in rows {
        aa += a * a;
        ab += a * b;
        bb += b * b;
        ay += a * y;
        by += b * y;
    }
    let determinant = aa * bb - ab * ab;
    if determinant > aa * bb * 1e-9 {
        Fit { weights: [(ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant] }
    } else if bb > 0.0 {
        Fit { weights: [0.0, by / bb] }
    } else {
        Fit::default()
    }
}

impl Fit {
    /// Returns the value for `known`.
    pub(super) fn of(&self, known: [f64; 2]) -> f64 {
        self.weights[0] * known[0] + self.weights[1] * known[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_sum_of_both_is_found_and_what_cannot_be_told_apart_goes_to_one() {
        let rows = [[1.0, 3.0], [1.0, 5.0], [2.0, 1.0]].map(|known| (known, 4.0 * known[0] - 0.5 * known[1]));
        let found = fit(rows.into_iter());
        assert!((found.weights[0] - 4.0).abs() < 1e-9 && (found.weights[1] + 0.5).abs() < 1e-9, "{found:?}");
        let found = fit([([1.0, 2.0], 6.0), ([2.0, 4.0], 12.0)].into_iter());
        assert!((found.of([5.0, 10.0]) - 30.0).abs() < 1e-9, "{found:?}");
        assert_eq!(fit([].into_iter()), Fit::default());
    }
}
