//! Limits for exports and bulk requests: how many a core serves at once, for one app and in all.

use carom_limits::{LONG_REQUESTS_MAX, LONG_REQUESTS_OF_APP_MAX};
use carom_model::access::AppName;

/// A kind of long request. Each kind has slots of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LongKind {
    /// Many links read in one answer.
    Export,
    /// Many links created in one request.
    Bulk,
}

/// A refusal of one more long request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooMany {
    /// The app has as many as one app may have.
    OfApp,
    /// All slots of this kind are taken.
    OfAll,
}

/// The long requests of a core that are in flight: their kinds and their apps.
#[derive(Debug, Default)]
pub(super) struct LongRequests(Vec<(LongKind, Option<AppName>)>);

impl LongRequests {
    /// Takes a slot. Without API keys there are no apps, and any client may take any slot.
    pub(super) fn begin(&mut self, kind: LongKind, app: Option<&AppName>) -> Result<(), TooMany> {
        let of_kind = self.0.iter().filter(|(other, _)| *other == kind);
        if of_kind.clone().count() >= LONG_REQUESTS_MAX {
            return Err(TooMany::OfAll);
        }
        if app.is_some() && of_kind.filter(|(_, other)| other.as_ref() == app).count() >= LONG_REQUESTS_OF_APP_MAX {
            return Err(TooMany::OfApp);
        }
        self.0.push((kind, app.cloned()));
        Ok(())
    }

    /// Returns a slot.
    pub(super) fn end(&mut self, kind: LongKind, app: Option<&AppName>) {
        let at = self.0.iter().position(|(other, of)| *other == kind && of.as_ref() == app);
        self.0.swap_remove(at.expect("a request that ends has begun"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_takes_half_of_the_slots_and_each_kind_has_its_own() {
        let (shop, mail) = (AppName::parse("shop").unwrap(), AppName::parse("mail").unwrap());
        let mut requests = LongRequests::default();
        for kind in [LongKind::Export, LongKind::Bulk] {
            for app in [&shop, &mail] {
                for _ in 0..LONG_REQUESTS_OF_APP_MAX {
                    assert_eq!(requests.begin(kind, Some(app)), Ok(()));
                }
                let is_full = *app == mail;
                let refused = if is_full { TooMany::OfAll } else { TooMany::OfApp };
                assert_eq!(requests.begin(kind, Some(app)), Err(refused));
            }
        }
        requests.end(LongKind::Bulk, Some(&mail));
        assert_eq!(requests.begin(LongKind::Bulk, Some(&shop)), Err(TooMany::OfApp));
        assert_eq!(requests.begin(LongKind::Bulk, Some(&mail)), Ok(()));
        let mut open = LongRequests::default();
        assert!((0..LONG_REQUESTS_MAX).all(|_| open.begin(LongKind::Export, None).is_ok()));
        assert_eq!(open.begin(LongKind::Export, None), Err(TooMany::OfAll));
    }
}
