//! The distribution of requests over links. Pure.

use rand_pcg::Pcg64;

use crate::workload::random;

/// A distribution over `n` links.
#[derive(Clone, Debug)]
pub(crate) enum Popularity {
    /// All links are equally popular.
    Uniform { n: u64 },
    /// Popularity follows Zipf's law: the k-th most popular link gets a share in proportion to 1 / k^s.
    Zipf { zipf: Zipf, spread: RankPermutation },
}

impl Popularity {
    /// Returns a distribution over `n` links: Zipf's with a positive exponent, else a uniform one.
    pub(crate) fn new(n: u64, exponent: Option<f64>, random: &mut Pcg64) -> Popularity {
        match exponent {
            Some(exponent) if exponent > 0.0 => {
                Popularity::Zipf { zipf: Zipf::new(n, exponent), spread: RankPermutation::new(n, random) }
            }
            _ => Popularity::Uniform { n },
        }
    }

    /// Returns the number of a link, from 0 to `n` - 1.
    pub(crate) fn pick(&self, random: &mut Pcg64) -> u64 {
        match self {
            Popularity::Uniform { n } => random::below(random, *n),
            Popularity::Zipf { zipf, spread } => spread.link(zipf.rank(random) - 1),
        }
    }
}

/// Maps ranks to links independently of the order of the file: a fixed affine permutation, so that a rank needs no
/// memory.
#[derive(Clone, Debug)]
pub(crate) struct RankPermutation {
    n: u64,
    factor: u64,
    offset: u64,
}

impl RankPermutation {
    fn new(n: u64, random: &mut Pcg64) -> RankPermutation {
        let factor = loop {
            let factor = random::below(random, n.max(2) - 1) + 1;
            if gcd(factor, n) == 1 {
                break factor;
            }
        };
        RankPermutation { n, factor, offset: random::below(random, n) }
    }

    fn link(&self, rank: u64) -> u64 {
        ((u128::from(rank) * u128::from(self.factor) + u128::from(self.offset)) % u128::from(self.n)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Zipf's distribution by rejection-inversion: W. Hörmann and G. Derflinger, "Rejection-inversion to generate
/// variates from monotone discrete distributions", ACM TOMACS 6 (1996). It needs no table, for any `n`.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    n: f64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    shortcut: f64,
}

impl Zipf {
    fn new(n: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { n: n as f64, exponent, integral_first: 0.0, integral_last: 0.0, shortcut: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(zipf.n + 0.5);
        zipf.shortcut = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// Returns x^-s.
    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Returns the integral of the density from 1 to x, in the form that stays exact near s = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over((1.0 - self.exponent) * log) * log
    }

    fn integral_inverse(&self, x: f64) -> f64 {
        // Rounding may put it below the lowest value that has an inverse.
        let t = (x * (1.0 - self.exponent)).max(-1.0);
        (ln1p_over(t) * x).exp()
    }

    /// Returns a rank from 1 to n.
    fn rank(&self, random: &mut Pcg64) -> u64 {
        loop {
            let u = self.integral_last + random::open_unit(random) * (self.integral_first - self.integral_last);
            let x = self.integral_inverse(u);
            let k = (x + 0.5).floor().clamp(1.0, self.n);
            if k - x <= self.shortcut || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u64;
            }
        }
    }
}

/// Returns (e^x - 1) / x.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// Returns ln(1 + x) / x.
fn ln1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ranks_have_the_frequencies_of_zipf() {
        for exponent in [0.5, 1.0, 1.3] {
            let zipf = Zipf::new(1_000, exponent);
            let mut random = random::stream(3, 0);
            let mut counts = vec![0u32; 1_001];
            const DRAWS: u32 = 400_000;
            for _ in 0..DRAWS {
                counts[zipf.rank(&mut random) as usize] += 1;
            }
            let total: f64 = (1..=1_000).map(|k| (k as f64).powf(-exponent)).sum();
            for k in [1, 2, 3, 10, 100] {
                let expected = f64::from(DRAWS) * (k as f64).powf(-exponent) / total;
                let seen = f64::from(counts[k]);
                assert!((seen - expected).abs() < 6.0 * expected.sqrt(), "{exponent} {k}: {seen} for {expected}");
            }
        }
    }

    #[test]
    fn ranks_are_spread_over_all_links_once() {
        for n in [1, 2, 3, 10, 997, 1_000] {
            let spread = RankPermutation::new(n, &mut random::stream(9, 9));
            assert_eq!((0..n).map(|rank| spread.link(rank)).collect::<HashSet<_>>().len(), n as usize);
        }
    }

    #[test]
    fn every_pick_is_a_link() {
        let mut random = random::stream(1, 1);
        for n in [1, 2, 7, u64::from(u32::MAX)] {
            for exponent in [None, Some(0.0), Some(0.3), Some(1.0), Some(4.0)] {
                let popularity = Popularity::new(n, exponent, &mut random);
                assert!((0..200).all(|_| popularity.pick(&mut random) < n));
            }
        }
    }
}
