//! Errors of lists that are sorted in the background.

use super::Problem;

/// Seconds after which a list that could not be sorted may be asked for again.
const FAILED_RETRY_S: u64 = 60;

impl Problem {
    /// 503: the list is being sorted. The member `sortedPercent` says how far that is.
    pub(in crate::api) fn sorting(percent: u8, retry_s: u16) -> Problem {
        let detail = format!(
            "The list is too long to sort it for one request, so it is being sorted in the background: {percent} % are done. Send the request again in {retry_s} s."
        );
        // Also in the body, as for 429: the console reads it there.
        let mut problem = Problem::unavailable(detail).and("sortedPercent", percent).and("retryAfter", retry_s);
        problem.retry_after = Some(u64::from(retry_s));
        problem
    }

    /// 503: too many other lists are to be sorted first.
    pub(in crate::api) fn sorts_waiting() -> Problem {
        let detail = "The list is too long to sort it for one request, and too many other lists wait to be sorted in the background. Try again later, or narrow the list with tags[], startDate and endDate.";
        let mut problem = Problem::unavailable(detail);
        problem.retry_after = Some(10);
        problem
    }

    /// 503: the list could not be sorted.
    pub(in crate::api) fn not_sorted() -> Problem {
        let detail = "The list could not be sorted: the disk of the node has no room for it, or has failed. See the log of the node. To need less room, narrow the list with tags[], startDate and endDate.";
        let mut problem = Problem::unavailable(detail);
        problem.retry_after = Some(FAILED_RETRY_S);
        problem
    }
}
