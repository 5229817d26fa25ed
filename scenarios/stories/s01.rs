//! S01 (KIP-227): a fetch may open a session, and then name only what changes. The id and a number that counts up
//! hold both ends together: whoever loses count is told so, and the session stays as it was.

use anyhow::Result;
use testkit::stage::{Ask, CONSUMER, SessionAsk};

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "S01",
    rules: &["S01", "S04"],
    title: "a fetch session goes by its id and its count",
    replicas: &[1, 2, 3],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.produce(-1, &["m0"])?;
    let at = |offset| Some(Ask { offset, ..CONSUMER });
    let ask =
        |id, epoch, partition| SessionAsk { version: 12, id, epoch, partition, forgets: false };
    let opened = story.session_fetch(1, ask(0, 0, at(1)))?;
    let id = opened.id;
    story.claim("a session is opened, all of it told", id != 0 && opened.partition.is_some())?;
    let seen = story.session_fetch(1, ask(id, 1, None))?;
    story
        .claim("nothing has changed, nothing is told", seen.id == id && seen.partition.is_none())?;
    let seen = story.session_fetch(1, ask(id, 5, None))?;
    story.claim_same("a wrong count (71)", &(seen.error_code, seen.id), &(71, 0))?;
    let seen = story.session_fetch(1, ask(id ^ 1, 2, None))?;
    story.claim_same("an unknown id (70)", &(seen.error_code, seen.id), &(70, 0))?;
    story.produce(-1, &["m1"])?;
    let seen = story.session_fetch(1, ask(id, 2, None))?;
    let told = seen.partition.unwrap_or_default();
    story.claim_same("the right count goes on", &values(&told.records), &vec!["m1"])?;
    let seen = story.session_fetch(1, ask(id, 3, at(2)))?;
    story.claim("it reads on from there, and nothing is new", seen.partition.is_none())?;
    let by_id = SessionAsk { version: 13, ..ask(id, 4, None) };
    let seen = story.session_fetch(1, by_id)?;
    story.claim_same("names and ids do not mix (106)", &(seen.error_code, seen.id), &(106, 0))?;
    let seen = story.session_fetch(1, ask(id, 4, None))?;
    story.claim_same("which costs nothing", &(seen.error_code, seen.id), &(0, id))?;
    let seen = story.session_fetch(1, ask(id, -1, at(1)))?;
    story.claim_same("it is ended", &(seen.error_code, seen.id), &(0, 0))?;
    let seen = story.session_fetch(1, ask(id, 5, None))?;
    story.claim_same("and unknown from then on (70)", &seen.error_code, &70)?;
    let opened = story.session_fetch(1, ask(0, 0, at(2)))?;
    let forgets = SessionAsk { forgets: true, ..ask(opened.id, 1, None) };
    let seen = story.session_fetch(1, forgets)?;
    story.claim_same("one about nothing is over", &(seen.error_code, seen.id), &(0, 0))?;
    Ok(())
}
