//! The stack against peers that follow no rule, and the rules of the RFCs segment by segment.

mod attacks;
mod hops;
mod peer;
mod rules;
