//! Times of the small functions, by criterion. `cargo bench -p carom-bench`, or `make bench-micro`.

#[path = "../src/micro.rs"]
mod micro;

use criterion::{Criterion, criterion_group, criterion_main};

/// Larger maps, which take too long to fill when callgrind counts instructions.
const LARGE: [&str; 2] = ["map: look-up, 1 M links", "map: look-up, 10 M links"];

fn all(criterion: &mut Criterion) {
    for name in micro::NAMES.into_iter().chain(LARGE) {
        let mut prepared = None;
        criterion.bench_function(name, |bencher| {
            // Prepared on first use: a filter on the command line skips the others.
            let work = prepared.get_or_insert_with(|| micro::work(name));
            let mut number = 0;
            bencher.iter(|| {
                work(number);
                number += 1;
            });
        });
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
