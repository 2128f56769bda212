//! Dry runs of bulk creates: what each line would get, without a change.

use super::report::{push_create, push_problem};
use super::tried_slugs::TriedSlugs;
use super::work::LineWork;
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::rest::create::RequestedSlug;
use crate::api::rest::short_urls::{NewLink, refused, taken};
use crate::bridge::LinkAnswer;
use carom_model::access::idempotency::IdempotencyKey;
use carom_model::link::Reuse;

/// The work on creates that a dry run only checks.
pub(super) struct DryCreates {
    /// The idempotency key of the whole request.
    pub(super) key: Option<IdempotencyKey>,
    pub(super) tried: TriedSlugs,
}

impl LineWork for DryCreates {
    /// The link of a line that chooses its slug. The node would generate one that is free for any other line.
    type Item = Option<NewLink>;
    type Outcome = Result<(), Problem>;

    async fn read(&self, context: &Context, number: u64, line: &[u8]) -> Result<Option<NewLink>, Problem> {
        let create = context.create_of(number, line, self.key.as_ref()).await?;
        Ok(match create.slug {
            Some(RequestedSlug::Chosen(code)) => Some(context.new_link(create, code)),
            Some(RequestedSlug::Random(_)) | None => None,
        })
    }

    async fn carry_out(&mut self, context: &Context, items: &[&Option<NewLink>]) -> Vec<Result<(), Problem>> {
        let chosen: Vec<&NewLink> = items.iter().copied().flatten().collect();
        let answers = context.services.read_all(chosen.len(), |at| chosen[at].link.code).await;
        let mut answers = answers.into_iter();
        let check = |item: &&Option<NewLink>| match item {
            None => Ok(()),
            Some(new) => self.check(context, new, &answers.next().expect("each read has an answer")),
        };
        items.iter().map(check).collect()
    }

    fn report(line: u64, _item: &Option<NewLink>, outcome: Result<(), Problem>, out: &mut Vec<u8>) {
        match outcome {
            Ok(()) => push_create(line, None, false, out),
            Err(problem) => push_problem(line, problem, out),
        }
    }
}

impl DryCreates {
    /// Returns the result that a create with a chosen slug would get, as far as this node knows.
    fn check(&mut self, context: &Context, new: &NewLink, answer: &LinkAnswer) -> Result<(), Problem> {
        let finds = matches!(new.reuse, Reuse::OfSlug(_));
        match answer {
            LinkAnswer::Found(link, _)
                if finds && new.reuse.admits(&new.link, link) && !link.is_expired(context.services.unix_ms()) => {}
            LinkAnswer::NotFound => {}
            LinkAnswer::Found(..) | LinkAnswer::Damaged => return Err(taken(&new.link)),
            LinkAnswer::Refused(reason) => return Err(refused(reason)),
        }
        // A create that finds existing links may get the link of the earlier line.
        if self.tried.take(&new.link).is_some() && !finds { Err(taken(&new.link)) } else { Ok(()) }
    }
}
