//! The headers that tell a client the remainder of its rate limit.

use std::time::Duration;

use hyper::header::HeaderName;

use super::response::{ApiResponse, with};
use carom_model::access::usage::Quota;

const LIMIT_FIELDS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// Adds the headers with the remainder of a rate limit to a response.
pub(super) fn with_quota(answer: ApiResponse, quota: Option<Quota>) -> ApiResponse {
    let Some(quota) = quota else { return answer };
    let reset = seconds(quota.reset);
    let values = [quota.limit.into(), quota.remaining.into(), reset];
    LIMIT_FIELDS
        .into_iter()
        .zip(values)
        .fold(answer, |answer, (name, value): (_, u64)| with(answer, name, &value.to_string()))
}

/// Rounds a duration up to whole seconds.
pub(super) fn seconds(time: Duration) -> u64 {
    time.as_millis().div_ceil(1_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_rounded_up() {
        let of_ms = |ms| seconds(Duration::from_millis(ms));
        assert_eq!((of_ms(0), of_ms(1), of_ms(1_000), of_ms(1_001)), (0, 1, 1, 2));
    }
}
