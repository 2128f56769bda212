//! Errors of lists that are sorted in the background.

use super::Problem;

impl Problem {
    /// 503: the list is being sorted. The member `sortedPercent` says how far that is.
    pub(in crate::api) fn sorting(percent: u8, retry_s: u16) -> Problem {
        let detail = format!(
            "The list is too long for one request. The node is sorting it: {percent}% done. Try again in {retry_s} s."
        );
        // Also in the body, as for 429: the console reads it there.
        let mut problem = Problem::unavailable(detail).and("sortedPercent", percent).and("retryAfter", retry_s);
        problem.retry_after = Some(u64::from(retry_s));
        problem
    }

    /// 503: too many other lists are to be sorted first.
    pub(in crate::api) fn sorts_waiting() -> Problem {
        let detail = "The list is too long for one request, and too many other lists wait to be sorted in the background. Try again later, or narrow the list with tags[], startDate and endDate.";
        let mut problem = Problem::unavailable(detail);
        problem.retry_after = Some(10);
        problem
    }

    /// 503: the list could not be sorted.
    pub(in crate::api) fn not_sorted(retry_s: u32) -> Problem {
        let detail = "The list could not be sorted: the disk has too little room, the list is too long, or the disk or the store has failed. The log of the node has the cause. Narrow the list with tags[], startDate and endDate, or try again later.";
        let mut problem = Problem::unavailable(detail);
        problem.retry_after = Some(u64::from(retry_s));
        problem
    }
}
