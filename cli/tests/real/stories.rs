//! The stories of `scenarios`, each from the file that the simulator tells too, with real processes.

use scenarios::{list, run};
use testkit::stage::RealStage;

#[test]
fn every_story_is_true_on_a_real_cluster() {
    let _alone = super::alone();
    for scenario in list() {
        let stage = RealStage::start_with(scenario.needs, super::cluster());
        let told = stage.and_then(|mut stage| run(scenario.name, &mut stage, &mut |_| {}));
        if let Err(error) = told {
            panic!("{}: {error:?}", scenario.name);
        }
    }
}
