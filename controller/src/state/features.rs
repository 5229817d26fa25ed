//! Finalized features (KIP-584): which levels the cluster is at.

use protocol::ErrorCode;
use protocol::messages::update_features_request::FeatureUpdateKey;
use protocol::messages::update_features_response::UpdatableFeatureResult;
use protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};

use super::eligible::ELR_FEATURE;
use super::{ApiError, ControllerState};
use crate::records::FeatureLevel;

impl ControllerState {
    /// All updates of a request apply, or none.
    pub(super) fn on_update_features(
        &mut self,
        api_version: i16,
        request: &UpdateFeaturesRequest,
    ) -> UpdateFeaturesResponse {
        let updates = &request.feature_updates;
        let outcomes: Vec<(String, Result<(), ApiError>)> = updates
            .iter()
            .map(|update| (update.feature.clone(), self.check_feature(api_version, update)))
            .collect();
        let failed = outcomes.iter().find_map(|(name, outcome)| {
            outcome.as_ref().err().map(|error| (name.clone(), error.clone()))
        });
        if let Some((name, error)) = failed {
            let reason = error.message.unwrap_or_default();
            return UpdateFeaturesResponse {
                error_code: error.code.code(),
                error_message: Some(format!(
                    "The update failed for all features since the following feature had an error: \
                     {name}: {reason}"
                )),
                ..Default::default()
            };
        }
        self.deciding(request.validate_only, |state| {
            for update in updates {
                let level = i32::from(update.max_version_level);
                let current = state.image.features().get(&update.feature).copied().unwrap_or(0);
                if i32::from(current) != level {
                    match level {
                        _ if update.feature != ELR_FEATURE => {}
                        0 => state.end_elr(),
                        _ => state.prepare_for_elr(),
                    }
                    state.decide(FeatureLevel { name: update.feature.clone(), level });
                }
            }
        });
        let results = updates.iter().filter(|_| api_version <= 1).map(|update| {
            UpdatableFeatureResult { feature: update.feature.clone(), ..Default::default() }
        });
        UpdateFeaturesResponse { results: results.collect(), ..Default::default() }
    }

    fn check_feature(&self, api_version: i16, update: &FeatureUpdateKey) -> Result<(), ApiError> {
        let name = &update.feature;
        let level = update.max_version_level;
        let invalid = |reason: String| {
            let text = format!("Invalid update version {level} for feature {name}. {reason}");
            Err(ApiError::new(ErrorCode::InvalidUpdateVersion, text))
        };
        let known = self.config.features.iter().find(|feature| feature.name == *name);
        let Some(known) = known else {
            return invalid("The controller does not support the given feature.".to_owned());
        };
        if !(known.min_level..=known.max_level).contains(&level) {
            return invalid(format!(
                "The controller only supports versions {}-{}",
                known.min_level, known.max_level
            ));
        }
        let current = self.image.features().get(name).copied().unwrap_or(0);
        let may_downgrade = if api_version == 0 {
            update.allow_downgrade
        } else {
            matches!(update.upgrade_type, 2 | 3)
        };
        if level < current && !may_downgrade {
            return invalid(
                "Can't downgrade the version of this feature without setting the upgrade type to \
                 either safe or unsafe downgrade."
                    .to_owned(),
            );
        }
        let refusing = self.image.brokers().find(|broker| {
            broker.features.iter().any(|feature| {
                *feature.name == **name
                    && !(feature.min_version..=feature.max_version).contains(&level)
            })
        });
        match refusing {
            Some(broker) => invalid(format!("Broker {} does not support this level.", broker.id)),
            None => Ok(()),
        }
    }
}
