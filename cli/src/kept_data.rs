//! What an earlier `up --data FOLDER` left in its folder, and whether a new start fits it: no broker may
//! be left out (its partitions would have no leader), and the voters of the metadata quorum stay the same
//! (a voter without its log could bring back a past that the others have left).

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The nodes found in the folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KeptData {
    brokers: BTreeSet<i32>,
    controllers: BTreeSet<i32>,
}

impl KeptData {
    /// Looks through the folders `node1`, `node2`, ... An absent folder holds nothing.
    pub fn find(folder: &Path, first_controller_id: i32) -> Result<KeptData> {
        let mut kept = KeptData::default();
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(kept),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", folder.display()));
            }
        };
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(|name| name.strip_prefix("node")) else {
                continue;
            };
            let (Ok(id), data) = (id.parse(), entry.path().join("data")) else { continue };
            if !data.join("meta.properties").exists() {
                continue;
            }
            if data.join("__cluster_metadata-0").exists() {
                kept.controllers.insert(id);
            }
            if id < first_controller_id {
                kept.brokers.insert(id);
            }
        }
        Ok(kept)
    }

    /// How many of the brokers are controllers too, if the data says so.
    pub fn combined(&self) -> Option<i32> {
        let combined = self.controllers.intersection(&self.brokers).count();
        (combined > 0).then(|| i32::try_from(combined).unwrap_or(i32::MAX))
    }

    /// Refuses a start that leaves out a broker or changes the controllers.
    pub fn check(
        &self,
        folder: &Path,
        brokers: &BTreeSet<i32>,
        controllers: &BTreeSet<i32>,
    ) -> Result<()> {
        let fits = self.brokers.is_subset(brokers)
            && (self.controllers.is_empty() || self.controllers == *controllers);
        let own_controllers = self.controllers.difference(&self.brokers).count();
        ensure!(
            fits,
            "{} holds the data of brokers {} and controllers {}, and this start would have brokers {} and \
             controllers {}: start it with --brokers {} --controllers {}, or choose another folder",
            folder.display(),
            listed(&self.brokers),
            listed(&self.controllers),
            listed(brokers),
            listed(controllers),
            self.brokers.len(),
            own_controllers,
        );
        Ok(())
    }
}

fn listed(ids: &BTreeSet<i32>) -> String {
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(nodes: &[(i32, bool)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (id, is_controller) in nodes {
            let data = folder.path().join(format!("node{id}/data"));
            std::fs::create_dir_all(&data).expect("data");
            std::fs::write(data.join("meta.properties"), "").expect("meta.properties");
            if *is_controller {
                std::fs::create_dir(data.join("__cluster_metadata-0")).expect("metadata");
            }
        }
        folder
    }

    fn set(ids: impl IntoIterator<Item = i32>) -> BTreeSet<i32> {
        ids.into_iter().collect()
    }

    #[test]
    fn fewer_brokers_than_the_data_has_are_refused_with_what_to_do() {
        let folder = folder(&[(1, true), (2, true), (3, true)]);
        let kept = KeptData::find(folder.path(), 3000).expect("found");
        let error = kept.check(folder.path(), &set([1]), &set([1])).expect_err("two are missing");
        assert!(error.to_string().contains("--brokers 3 --controllers 0"), "{error}");
    }

    #[test]
    fn more_brokers_join_beside_the_controllers_that_there_are() {
        let folder = folder(&[(1, true), (2, true), (3, true)]);
        let kept = KeptData::find(folder.path(), 3000).expect("found");
        assert_eq!(kept.combined(), Some(3));
        kept.check(folder.path(), &set(1..=4), &set(1..=3)).expect("one more broker");
        kept.check(folder.path(), &set(1..=4), &set(1..=4)).expect_err("one more controller");
    }

    #[test]
    fn controllers_of_their_own_stay_as_they_are() {
        let folder = folder(&[(1, false), (3000, true)]);
        let kept = KeptData::find(folder.path(), 3000).expect("found");
        assert_eq!((kept.combined(), kept.brokers.clone()), (None, set([1])));
        kept.check(folder.path(), &set([1]), &set([3000])).expect("as before");
        let error = kept.check(folder.path(), &set([1]), &set([1])).expect_err("another quorum");
        assert!(error.to_string().contains("--brokers 1 --controllers 1"), "{error}");
    }

    #[test]
    fn a_new_folder_fits_any_cluster() {
        let folder = tempfile::tempdir().expect("a folder");
        let absent = folder.path().join("absent");
        let kept = KeptData::find(&absent, 3000).expect("nothing");
        assert_eq!((kept.combined(), &kept), (None, &KeptData::default()));
        kept.check(&absent, &set([1]), &set([1])).expect("a new cluster");
    }
}
