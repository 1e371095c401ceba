//! Roots of unity from exact fractions of a turn.

use std::f64::consts::FRAC_PI_4;

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Complex {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl Complex {
    #[inline(always)]
    pub(super) fn times(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }

    pub(super) fn conjugate(self) -> Self {
        Self { re: self.re, im: -self.im }
    }

    /// The real part in place of the imaginary one, and the other way round: a forward transform of such numbers gives such numbers of the inverse one.
    #[inline(always)]
    pub(super) fn swapped_if(self, is_swapped: bool) -> Self {
        if is_swapped { Self { re: self.im, im: self.re } } else { self }
    }
}

/// `exp(-2 pi i part / whole)`, of a part below the whole: the angle is brought into an octant in integers, of which the fraction is rounded once.
pub(super) fn root(part: u64, whole: u64) -> Complex {
    let whole = u128::from(whole.max(1));
    // In eighths of a turn over the whole.
    let mut at = 8 * u128::from(part);
    let (mut is_sine_turned, mut is_cosine_turned, mut is_other) = (false, false, false);
    if at > 4 * whole {
        (at, is_sine_turned) = (8 * whole - at, true);
    }
    if at > 2 * whole {
        (at, is_cosine_turned) = (4 * whole - at, true);
    }
    if at > whole {
        (at, is_other) = (2 * whole - at, true);
    }
    let angle = at as f64 / whole as f64 * FRAC_PI_4;
    let (mut sine, mut cosine) = angle.sin_cos();
    if is_other {
        (sine, cosine) = (cosine, sine);
    }
    Complex { re: if is_cosine_turned { -cosine } else { cosine }, im: if is_sine_turned { sine } else { -sine } }
}

/// The square of a position modulo a whole, of which chirps are made.
pub(super) fn square(position: u64, whole: u64) -> u64 {
    let square = u128::from(position) * u128::from(position) % u128::from(whole.max(1));
    u64::try_from(square).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_exact_where_they_are_whole() {
        for (part, re, im) in [(0, 1.0, 0.0), (1, 0.0, -1.0), (2, -1.0, 0.0), (3, 0.0, 1.0)] {
            let found = root(part, 4);
            assert_eq!((found.re, found.im), (re, im), "{part}/4");
        }
        for whole in [3, 5, 7, 8, 12, 1000, 999_983] {
            for part in (0..whole).step_by(1 + whole as usize / 97) {
                let (found, angle) = (root(part, whole), -std::f64::consts::TAU * part as f64 / whole as f64);
                assert!(
                    (found.re - angle.cos()).abs() < 1e-15 && (found.im - angle.sin()).abs() < 1e-15,
                    "{part}/{whole}"
                );
            }
        }
    }

    #[test]
    fn squares_do_not_wrap() {
        assert_eq!(square(u64::MAX, 10), 5);
        assert_eq!(square(3_000_000_000, 7), 3_000_000_000 % 7 * (3_000_000_000 % 7) % 7);
    }
}
