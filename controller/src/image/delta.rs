//! What a run of records changed, so that a broker reacts to the difference instead of the whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::types::{NodeId, TopicId};

use super::{ClusterImage, TopicImage};
use crate::config::ConfigResource;

/// The names of what changed between two images. It names; the values are in the images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageDelta {
    /// Topics that exist now and did not before.
    pub created_topics: BTreeSet<TopicId>,
    /// Topics that are gone, as they last were.
    pub deleted_topics: BTreeMap<TopicId, Arc<TopicImage>>,
    /// Partitions of existing topics that are new or changed.
    pub changed_partitions: BTreeSet<(TopicId, i32)>,
    /// Brokers that are new, changed or gone.
    pub changed_brokers: BTreeSet<NodeId>,
    /// Resources of which some config changed, those of deleted topics among them.
    pub changed_configs: BTreeSet<ConfigResource>,
    /// Whether a finalized feature changed.
    pub features_changed: bool,
}

impl ImageDelta {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == ImageDelta::default()
    }

    /// The difference between two images that no run of records connects: what a broker needs that
    /// was given a snapshot.
    pub fn between(before: &ClusterImage, after: &ClusterImage) -> ImageDelta {
        let mut delta = ImageDelta::default();
        for (id, topic) in before.topics.iter() {
            if !after.topics.contains_key(id) {
                delta.deleted_topics.insert(*id, Arc::clone(topic));
            }
        }
        for (id, topic) in after.topics.iter() {
            let earlier = before.topics.get(id);
            if earlier.is_none() {
                delta.created_topics.insert(*id);
            }
            for (index, partition) in &topic.partitions {
                let same = earlier.and_then(|topic| topic.partitions.get(index));
                if same.is_none_or(|earlier| earlier != partition) {
                    delta.changed_partitions.insert((*id, *index));
                }
            }
        }
        delta.changed_brokers = differing_keys(&before.brokers, &after.brokers);
        delta.changed_configs = differing_keys(&before.configs, &after.configs);
        delta.features_changed = before.features != after.features;
        delta
    }
}

fn differing_keys<K: Ord + Clone, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
) -> BTreeSet<K> {
    let changed = after.iter().filter(|(key, value)| before.get(key) != Some(value));
    let gone = before.iter().filter(|(key, _)| !after.contains_key(key));
    changed.chain(gone).map(|(key, _)| key.clone()).collect()
}
