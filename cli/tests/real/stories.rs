//! The stories of `scenarios`, each from the file that the simulator tells too, with real processes.

use scenarios::{keeps_from_reality, list, tell};
use testkit::stage::{RealStage, Stage};

#[test]
fn every_story_is_true_on_a_real_cluster() {
    let _alone = super::alone();
    let mut wrong = Vec::new();
    for scenario in list() {
        if let Some(ability) = keeps_from_reality(scenario) {
            println!("{} is for the simulator alone: it wants {ability}", scenario.name);
            continue;
        }
        let stage = RealStage::start_with(scenario.needs, super::cluster());
        let told = stage.and_then(|mut stage| {
            if let Some(ability) = scenario.demands.iter().find(|ability| !stage.can(**ability)) {
                println!("{} is not told: this machine does not allow {ability}", scenario.name);
                return Ok(());
            }
            tell(scenario, &mut stage, &mut |_| {}).map(|_| ())
        });
        if let Err(error) = told {
            wrong.push(format!("{}: {error:?}", scenario.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
