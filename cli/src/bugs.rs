//! `--bug NAME`: a wrong rule of the past on a switch (`replication::bugs`), for `scenario run` and `sim`.
//! Only a build with the feature `historical-bugs` has them; any other says how to make one.

use anyhow::{Result, bail, ensure};
use clap::Args;
use replication::bugs::Bug;

/// The option.
#[derive(Clone, Debug, Default, Args)]
pub struct BugArgument {
    /// Have a historical bug on, by its name; may be given more than once. Only in builds with the
    /// feature `historical-bugs`.
    #[arg(long = "bug", value_name = "NAME")]
    names: Vec<String>,
}

impl BugArgument {
    /// The bugs that are asked for.
    pub fn bugs(&self) -> Result<Vec<Bug>> {
        let mut bugs = Vec::new();
        for name in &self.names {
            let Some(bug) = Bug::ALL.into_iter().find(|bug| bug.description().name == name) else {
                let known: Vec<String> = Bug::ALL
                    .iter()
                    .map(|bug| bug.description())
                    .map(|about| format!("  {} ({}): {}", about.name, about.origin, about.what))
                    .collect();
                bail!("there is no bug called {name}; there are\n{}", known.join("\n"));
            };
            bugs.push(bug);
        }
        ensure!(
            bugs.is_empty() || cfg!(feature = "historical-bugs"),
            "this build has no historical bugs; build one that has: \
             cargo build -p highwater --features historical-bugs"
        );
        Ok(bugs)
    }

    /// The option as it would be typed, with a space before it.
    pub fn typed(&self) -> String {
        self.names.iter().map(|name| format!(" --bug {name}")).collect()
    }
}

/// Has these bugs on in this thread, from now on.
#[cfg(feature = "historical-bugs")]
pub fn switch_on(bugs: &[Bug]) {
    replication::bugs::set(bugs);
}

/// Has nothing on: in this build no bug can be asked for.
#[cfg(not(feature = "historical-bugs"))]
pub fn switch_on(_: &[Bug]) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str) -> Result<Vec<Bug>> {
        BugArgument { names: vec![name.into()] }.bugs()
    }

    #[test]
    fn a_build_without_the_bugs_says_how_to_make_one_with_them() {
        let name = Bug::NoEpochFencing.description().name;
        let answer = asked(name);
        #[cfg(feature = "historical-bugs")]
        assert_eq!(answer.expect("this build has them"), [Bug::NoEpochFencing]);
        #[cfg(not(feature = "historical-bugs"))]
        {
            let error = answer.expect_err("this build has none").to_string();
            assert!(error.contains("--features historical-bugs"), "{error}");
        }
        assert_eq!(BugArgument { names: vec![name.into()] }.typed(), " --bug no-epoch-fencing");
    }

    #[test]
    fn a_name_that_no_bug_has_is_answered_with_those_that_there_are() {
        let error = asked("no-such").expect_err("no such bug").to_string();
        assert!(error.contains("truncate-to-high-watermark (KIP-101)"), "{error}");
    }
}
