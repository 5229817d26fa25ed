//! Cases that are the same for every API: versions that do not exist, and bodies that are not there.

use protocol::{ApiKey, Listener};

use crate::language::value::Expression;
use crate::language::{Call, Options, Step, Story};

/// One story for each kind of bad request.
pub fn stories() -> Vec<Story> {
    let apis: Vec<ApiKey> = ApiKey::ALL
        .into_iter()
        .filter(|key| key.is_served_on(Listener::Broker) && *key != ApiKey::ApiVersions)
        .collect();
    let below = apis.iter().map(|key| {
        let first = *key.served_versions().start();
        call(*key, "a version below", first - 1, Some(first))
    });
    let above = apis.iter().map(|key| {
        let last = *key.served_versions().end();
        call(*key, "a version above", last + 1, Some(last))
    });
    let empty =
        apis.iter().map(|key| call(*key, "without its body", *key.served_versions().end(), None));
    let controllers = ApiKey::ALL
        .into_iter()
        .filter(|key| !key.is_served_on(Listener::Broker))
        .map(|key| call(key, "what only controllers serve", *key.served_versions().end(), None));
    vec![
        story("versions that do not exist", below.chain(above)),
        story("requests that end after their header", empty),
        story("requests for controllers", controllers),
    ]
}

fn story(name: &str, calls: impl Iterator<Item = Step>) -> Story {
    Story { name: name.into(), repeat: None, steps: calls.collect() }
}

fn call(api_key: ApiKey, label: &str, version: i16, written_as: Option<i16>) -> Step {
    Step::Call(Call {
        label: label.into(),
        connection: "main".into(),
        api_key,
        versions: Expression::List(vec![Expression::Number(version.into())]),
        body: Expression::Text(String::new()),
        options: Options { written_as, ..Options::default() },
    })
}
