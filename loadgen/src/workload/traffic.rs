//! The sequence of requests and the shares of their kinds. Pure: a seed yields the same sequence.

use rand_pcg::Pcg64;

use crate::workload::popularity::Popularity;
use crate::workload::random;

/// Kinds of requests, in the order of reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestKind {
    /// `GET` for a code that exists.
    Redirect,
    /// `HEAD` for a code that exists.
    Head,
    /// `GET` for a code that does not exist.
    Miss,
    /// `POST` of a new link.
    Create,
    /// `GET` of the target's URL as given.
    Url,
}

impl RequestKind {
    /// All kinds of requests.
    pub(crate) const ALL: [RequestKind; RequestKind::COUNT] =
        [RequestKind::Redirect, RequestKind::Head, RequestKind::Miss, RequestKind::Create, RequestKind::Url];

    /// Number of kinds.
    pub(crate) const COUNT: usize = 5;

    /// Kinds that a mix may name. The URL as given goes with no other kind.
    const OF_MIXES: [RequestKind; 4] =
        [RequestKind::Redirect, RequestKind::Head, RequestKind::Miss, RequestKind::Create];

    /// Returns the name of the kind on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            RequestKind::Redirect => "redirect",
            RequestKind::Head => "head",
            RequestKind::Miss => "miss",
            RequestKind::Create => "create",
            RequestKind::Url => "url",
        }
    }
}

/// Shares of the kinds, in [`RequestKind`]'s order. Only their ratios count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Mix {
    shares: [f64; RequestKind::COUNT],
}

impl Mix {
    /// Returns a mix of one kind only.
    pub(crate) fn only(kind: RequestKind) -> Mix {
        let mut shares = [0.0; RequestKind::COUNT];
        shares[kind as usize] = 1.0;
        Mix { shares }
    }

    /// Parses shares such as `redirect=99,create=1`.
    ///
    /// # Errors
    /// A message with the expected form.
    pub(crate) fn read(text: &str) -> Result<Mix, String> {
        let mut shares = [0.0; RequestKind::COUNT];
        for part in text.split(',') {
            let (name, share) =
                part.split_once('=').ok_or_else(|| format!("`{part}` is not a share such as miss=5"))?;
            let kind = RequestKind::OF_MIXES.into_iter().find(|kind| kind.name() == name.trim());
            let kind = kind.ok_or_else(|| format!("`{name}` is not redirect, head, miss or create"))?;
            let value = share.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
            shares[kind as usize] =
                value.ok_or_else(|| format!("`{share}` is not a share; expected a number of 0 or more"))?;
        }
        if shares.iter().sum::<f64>() <= 0.0 {
            return Err("at least one share must be above zero".to_owned());
        }
        Ok(Mix { shares })
    }

    /// True if requests of that kind occur.
    pub(crate) fn has(&self, kind: RequestKind) -> bool {
        self.shares[kind as usize] > 0.0
    }

    /// True if the mix needs codes of existing links.
    pub(crate) fn needs_links(&self) -> bool {
        self.has(RequestKind::Redirect) || self.has(RequestKind::Head)
    }

    fn pick(&self, random: &mut Pcg64) -> RequestKind {
        let total: f64 = self.shares.iter().sum();
        let mut at = (1.0 - random::open_unit(random)) * total;
        for kind in RequestKind::ALL {
            let share = self.shares[kind as usize];
            if at < share {
                return kind;
            }
            at -= share;
        }
        // Rounding may lead past the last share.
        RequestKind::ALL.into_iter().rfind(|kind| self.has(*kind)).unwrap_or(RequestKind::Redirect)
    }
}

impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shares = RequestKind::ALL.into_iter().filter(|kind| self.has(*kind));
        let texts: Vec<String> = shares.map(|kind| format!("{}={}", kind.name(), self.shares[kind as usize])).collect();
        f.write_str(&texts.join(","))
    }
}

/// A planned request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    /// Kind of the request.
    pub(crate) kind: RequestKind,
    /// Number of the link for redirects; a random number for misses; a unique number for creates; 0 for URLs.
    pub(crate) number: u64,
}

/// Generator of the requests of one thread.
#[derive(Clone, Debug)]
pub(crate) struct TrafficGenerator {
    mix: Mix,
    popularity: Popularity,
    random: Pcg64,
    created: u64,
    /// First number of this thread's creates. Each thread has its own range.
    first_created: u64,
}

impl TrafficGenerator {
    /// Returns the generator of thread `thread`.
    pub(crate) fn new(mix: Mix, popularity: Popularity, thread: usize, random: Pcg64) -> TrafficGenerator {
        TrafficGenerator { mix, popularity, random, created: 0, first_created: (thread as u64) << 40 }
    }

    /// Returns the next request.
    pub(crate) fn next(&mut self) -> Call {
        let kind = self.mix.pick(&mut self.random);
        let number = match kind {
            RequestKind::Redirect | RequestKind::Head => self.popularity.pick(&mut self.random),
            RequestKind::Miss => random::below(&mut self.random, u64::MAX),
            RequestKind::Create => {
                self.created += 1;
                self.first_created + self.created
            }
            RequestKind::Url => 0,
        };
        Call { kind, number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(mix: &str, seed: u64) -> TrafficGenerator {
        let mut random = random::stream(seed, 1);
        let popularity = Popularity::new(100, None, &mut random);
        TrafficGenerator::new(Mix::read(mix).unwrap(), popularity, 0, random)
    }

    #[test]
    fn shares_are_kept() {
        let mut traffic = traffic("redirect=90,miss=5,head=4,create=1", 1);
        let mut counts = [0; RequestKind::COUNT];
        (0..100_000).for_each(|_| counts[traffic.next().kind as usize] += 1);
        for (count, expected) in counts.into_iter().zip([90_000f64, 4_000.0, 5_000.0, 1_000.0]) {
            assert!((f64::from(count) - expected).abs() < 6.0 * expected.sqrt(), "{count} for {expected}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_calls_and_another_gives_others() {
        let calls = |seed| {
            let mut traffic = traffic("redirect=9,miss=1", seed);
            (0..100).map(|_| traffic.next()).collect::<Vec<_>>()
        };
        assert_eq!(calls(1), calls(1));
        assert_ne!(calls(1), calls(2));
    }

    #[test]
    fn wrong_shares_are_refused() {
        for wrong in ["", "redirect", "get=1", "redirect=x", "redirect=-1", "redirect=0", "miss=nan", "url=1"] {
            assert!(Mix::read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Mix::read("create=1, redirect=99").unwrap().to_string(), "redirect=99,create=1");
    }
}
