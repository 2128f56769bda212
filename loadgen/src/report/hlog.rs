//! A histogram for each second, in HdrHistogram's interval log format. Values are nanoseconds; maxima in the log
//! are in milliseconds, as its readers expect.

use std::io::Cursor;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};

use crate::run::Second;

/// Returns the log of a run that began at `began`.
pub(super) fn write(began: SystemTime, series: &[Second]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let takes = "a vector takes what is written";
    let mut builder = IntervalLogWriterBuilder::new();
    builder.with_start_time(began).with_base_time(began).with_max_value_divisor(1e6);
    let mut log = builder.begin_log_with(&mut out, &mut serializer).expect(takes);
    log.write_comment("latency from the planned send time, nanoseconds").expect(takes);
    for second in series {
        let histogram = Deserializer::new().deserialize::<u64, _>(&mut Cursor::new(&second.packed));
        let histogram = histogram.expect("we have packed it ourselves");
        let (start, length) = (Duration::from_secs(second.second), Duration::from_secs(1));
        log.write_histogram(&histogram, start, length, None::<Tag<'_>>).expect(takes);
    }
    out
}
