//! Parameters that narrow lists and statistics of visits: the app of the links, and values of properties of visits.

use crate::api::query::Params;
use carom_model::access::{AppName, Scope};
use carom_model::visits::breakdown::{VisitCondition, VisitProperty};

/// Reads the parameter `app`. Records an error if the name is invalid.
pub(super) fn app(params: &mut Params) -> Option<AppName> {
    params.read("app", |text| AppName::parse(text).map_err(|error| error.to_string()))
}

/// Reads the parameters that each select the visits with one value of a property.
pub(super) fn conditions(params: &Params) -> Vec<VisitCondition> {
    let condition = |(property, _): (VisitProperty, &str)| {
        let value = params.text(property.parameter())?.into();
        Some(VisitCondition { property, value })
    };
    VisitProperty::ALL.into_iter().filter_map(condition).collect()
}

/// Restricts a scope to the links of an app: to no links if the scope is that of another app.
pub(super) fn of_app(scope: Scope, app: Option<AppName>) -> Scope {
    match app {
        None => scope,
        Some(app) if scope.app().is_none_or(|own| *own == app) => scope.of(app),
        Some(_) => scope.within([]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_are_conditions() {
        let params = Params::of(Some("utmCampaign=spring%20sale&country=&device=mobile&domain=DEFAULT"));
        let found = conditions(&params);
        let found: Vec<(VisitProperty, &str)> = found.iter().map(|one| (one.property, &*one.value)).collect();
        assert_eq!(found, [(VisitProperty::Device, "mobile"), (VisitProperty::UtmCampaign, "spring sale")]);
    }

    #[test]
    fn scopes_stay_in_their_app() {
        let name = |text: &str| AppName::parse(text).unwrap();
        let own = Scope::of_app(name("shop"));
        assert_eq!(of_app(Scope::ALL, Some(name("shop"))), own);
        assert_eq!(of_app(own.clone(), Some(name("shop"))), own);
        assert_eq!(of_app(own.clone(), None), own);
        let none = of_app(own, Some(name("news")));
        assert!(none.domains().is_some_and(<[_]>::is_empty));
    }
}
