//! Statistical tests that an observer of codes learns nothing. Codes of consecutive counters are compared with
//! uniformly random ones, and the same tests must reject the plain counter, which proves that they are sensitive.

use carom_shards::{CodeLength, CodeSecret, CodeSpace, CounterValue, GeneratedCode};

const RADIX: u64 = 62;
const LENGTH: CodeLength = CodeLength::DEFAULT;

/// Consecutive codes that the observer has.
const OBSERVED: u64 = 200_000;

/// Standard deviations of the normal distribution that chance exceeds once in a million times. The keys are fixed, so a
/// test that passes once always does; the margin is for a change of a key.
const SIGMAS: f64 = 4.75;

fn space() -> CodeSpace {
    CodeSpace::new(&CodeSecret::from_bytes(*b"the key of all tests of codes..."))
}

/// Returns the codes of the first counter values.
fn permuted(count: u64) -> Vec<GeneratedCode> {
    space().codes(LENGTH, CounterValue(0), count).collect()
}

/// Returns the control: the counter itself, written in base 62 from a round number on.
fn plain(count: u64) -> Vec<GeneratedCode> {
    let code = |counter: u64| {
        let digits: Vec<u8> =
            (0..LENGTH.get() as u32).rev().map(|place| (counter / RADIX.pow(place) % RADIX) as u8).collect();
        GeneratedCode::from_digits(&digits)
    };
    (1_000_000_000..1_000_000_000 + count).map(code).collect()
}

/// Returns a code as a number below 62^7.
fn number(code: GeneratedCode) -> u64 {
    code.digits().fold(0, |number, digit| number * RADIX + u64::from(digit))
}

/// Returns Pearson's chi-square of counts that should all be the same: the sum over all bins of `(count - expected)^2 /
/// expected`. It is about the number of bins for random data, and grows with unevenness.
fn chi_square(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    assert!(expected >= 5.0, "bins with fewer are no chi-square");
    counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum()
}

/// Returns the bounds that the statistic of random data stays within all but twice in a million times, by the
/// approximation of Wilson and Hilferty (1931): the cube root of chi-square over its degrees of freedom is nearly
/// normal. The lower bound counts as well: a counter is *more* even than chance.
fn bounds(bins: usize) -> std::ops::Range<f64> {
    let freedom = (bins - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    let at = |sigmas: f64| freedom * (1.0 - spread + sigmas * spread.sqrt()).powi(3);
    at(-SIGMAS)..at(SIGMAS)
}

/// Counts numbers below `bins`.
fn count(bins: u64, numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut counts = vec![0; bins as usize];
    numbers.for_each(|number| counts[number as usize] += 1);
    counts
}

/// Returns all tests that these codes fail, as text.
fn failures(codes: &[GeneratedCode]) -> Vec<String> {
    let digits: Vec<Vec<u64>> = codes.iter().map(|code| code.digits().map(u64::from).collect()).collect();
    let pairs = || digits.windows(2);
    let mut tests: Vec<(String, Vec<u64>)> = Vec::new();
    for place in 0..LENGTH.get() {
        tests.push((format!("character {place}"), count(RADIX, digits.iter().map(|code| code[place]))));
        // From one code to the next each character must step by every amount equally often.
        let steps = pairs().map(|pair| (pair[1][place] + RADIX - pair[0][place]) % RADIX);
        tests.push((format!("step of character {place}"), count(RADIX, steps)));
    }
    for place in 1..LENGTH.get() {
        let joint = digits.iter().map(|code| code[place - 1] * RADIX + code[place]);
        tests.push((format!("characters {} and {place} together", place - 1), count(RADIX * RADIX, joint)));
    }
    // Whole codes as numbers, in a thousand ranges of the distance to the next.
    let distances = codes.windows(2).map(|pair| (number(pair[1]) + LENGTH.codes() - number(pair[0])) % LENGTH.codes());
    let ranges = distances.map(|distance| (u128::from(distance) * 1_000 / u128::from(LENGTH.codes())) as u64);
    tests.push(("distance to the next code".to_owned(), count(1_000, ranges)));
    let larger = codes.windows(2).map(|pair| u64::from(pair[1] > pair[0]));
    // True if the next is larger. Neighbouring comparisons share a code, so only every other one is independent.
    tests.push(("order".to_owned(), count(2, larger.step_by(2))));

    let failed = |(name, counts): (String, Vec<u64>)| {
        let (statistic, bounds) = (chi_square(&counts), bounds(counts.len()));
        (!bounds.contains(&statistic)).then(|| format!("{name}: {statistic:.1} is outside {bounds:.1?}"))
    };
    tests.into_iter().filter_map(failed).collect()
}

#[test]
fn consecutive_codes_look_random() {
    assert_eq!(failures(&permuted(OBSERVED)), Vec::<String>::new());
}

#[test]
fn the_plain_counter_is_rejected_by_every_kind_of_test() {
    let failures = failures(&plain(OBSERVED));
    for name in ["character 0", "character 6", "step of character 6", "characters 5 and 6", "distance", "order"] {
        assert!(failures.iter().any(|failure| failure.starts_with(name)), "{name} is not among {failures:#?}");
    }
}

/// By numeric integration of the gamma distribution, chi-square with 61 degrees of freedom is below 22.00 once in a
/// million times, and above 128.52 as often.
#[test]
fn the_bounds_are_those_of_the_distribution() {
    let bounds = bounds(62);
    assert!((bounds.start - 22.00).abs() < 0.5, "{bounds:?}");
    assert!((bounds.end - 128.52).abs() < 0.5, "{bounds:?}");
}

/// Sorts numbers rather than filling a set: a tenth of the time and of the memory.
#[test]
fn ten_million_codes_are_all_different() {
    let mut codes: Vec<u64> = permuted(10_000_000).into_iter().map(GeneratedCode::to_bits).collect();
    codes.sort_unstable();
    assert!(codes.windows(2).all(|pair| pair[0] < pair[1]));
}
