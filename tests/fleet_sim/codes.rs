//! The codes of the simulated code space: a few slugs, and one issued code for each counter value.
//!
//! Their names are chosen so that all of them belong to three partitions. Steps that have to do with each other are
//! then frequent. Every fourth one is of another domain than the default one. The model speaks of codes by their place
//! in the table.

use std::sync::OnceLock;

use carom_model::link::labels::LinkLabels;
use carom_model::link::{Link, Origin, Version};
use carom_model::replication::{Partition, State};
use carom_shards::{Code, DomainId, Policy};

/// Partitions in which there are codes, from 0 on.
pub(crate) const PARTS: usize = 3;

/// Custom slugs; they come first in the table.
pub(crate) const SLUGS: usize = 3;

/// Counter values that have a code.
pub(crate) const VALUES: u64 = 1_500;

/// The place of a code in the table.
pub(crate) type Index = u16;

struct Table {
    codes: Vec<Code>,
    sorted: Vec<(Code, Index)>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let domain = |number: u64| DomainId::from_bytes([if number % 4 == 3 { 7 } else { 0 }; 6]);
        let within = |name: &str, part: usize, domain: Option<DomainId>| {
            let codes = (0..).map(|nth| Code::parse(format!("{name}-{nth}").as_bytes()).unwrap().within(domain));
            codes.into_iter().find(|code| Partition::of(code).index() == part).unwrap()
        };
        let slugs = [("slug-a", 0, 0), ("slug-a", 0, 3), ("slug-c", 1, 0)];
        let slugs = slugs.into_iter().map(|(name, part, number)| within(name, part, domain(number)));
        let issued = (0..VALUES).map(|value| within(&format!("i{value}"), value as usize % PARTS, domain(value)));
        let codes: Vec<Code> = slugs.chain(issued).collect();
        let mut sorted: Vec<(Code, Index)> = codes.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        Table { codes, sorted }
    })
}

/// The code at a place.
pub(crate) fn code_at(index: Index) -> Code {
    table().codes[usize::from(index)]
}

/// The place of a code.
pub(crate) fn index_of(code: &Code) -> Index {
    let sorted = &table().sorted;
    sorted[sorted.binary_search_by(|(other, _)| other.cmp(code)).unwrap()].1
}

/// The place of the code that a counter value stands for.
pub(crate) fn issued(value: u64) -> Index {
    Index::try_from(SLUGS as u64 + value).unwrap()
}

/// The counter value that stands for an issued code.
pub(crate) fn value_of(index: Index) -> u64 {
    u64::from(index) - SLUGS as u64
}

/// True if it is one of the slugs.
pub(crate) fn is_slug(index: Index) -> bool {
    usize::from(index) < SLUGS
}

/// The partition of the code at a place.
pub(crate) fn part_of(index: Index) -> usize {
    match usize::from(index) {
        0 | 1 => 0,
        2 => 1,
        issued => (issued - SLUGS) % PARTS,
    }
}

/// A link that nobody has changed, with a destination that names its claim.
pub(crate) fn new_link(index: Index, claim: u64, created_ms: u64) -> Link {
    Link {
        code: code_at(index),
        policy: Policy::default(),
        target: format!("https://e.org/{claim}"),
        created_ms,
        origin: if is_slug(index) { Origin::Custom } else { Origin::Issued },
        version: Version { rev: 1, claim, edit: 0 },
        labels: LinkLabels::default(),
    }
}

/// The states of codes, in the order of the table. There are few of them in one schedule.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct States(Vec<(Index, State)>);

impl States {
    /// The state of a code.
    pub(crate) fn get(&self, index: Index) -> Option<&State> {
        self.0.binary_search_by_key(&index, |(other, _)| *other).ok().map(|at| &self.0[at].1)
    }

    /// Sets or removes the state of a code.
    pub(crate) fn set(&mut self, index: Index, state: Option<State>) {
        match (self.0.binary_search_by_key(&index, |(other, _)| *other), state) {
            (Ok(at), Some(state)) => self.0[at].1 = state,
            (Ok(at), None) => _ = self.0.remove(at),
            (Err(at), Some(state)) => self.0.insert(at, (index, state)),
            (Err(_), None) => {}
        }
    }

    /// The first code of a partition from that place on, with its state.
    pub(crate) fn next_of(&self, part: usize, from: Index) -> Option<&(Index, State)> {
        self.0.iter().find(|(index, _)| *index >= from && part_of(*index) == part)
    }

    /// Iterates over all codes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Index, State)> {
        self.0.iter()
    }
}
