//! Which request does what. `openapi.json` describes these routes; a test compares the two.

use serde_json::{Value, json};
use testkit::real::{Crew, FaultId, Harm, NodeState, Way};

use super::requests::{Cut, Named, Nothing, OneDirectory, OneNode, Release, Slow, read};
use super::{Controlled, Refusal, STOP_PATIENCE, view};

/// The description of all this.
pub const OPENAPI: &str = include_str!("openapi.json");

/// Every method and path that is served; `{id}` stands for a number.
pub const ROUTES: [(&str, &str); 19] = [
    ("GET", "/cluster"),
    ("GET", "/openapi.json"),
    ("GET", "/faults"),
    ("DELETE", "/faults"),
    ("GET", "/faults/{id}"),
    ("DELETE", "/faults/{id}"),
    ("POST", "/faults/kill"),
    ("POST", "/faults/stop"),
    ("POST", "/faults/start"),
    ("POST", "/faults/freeze"),
    ("POST", "/faults/thaw"),
    ("POST", "/faults/cut"),
    ("POST", "/faults/slow"),
    ("POST", "/faults/hold"),
    ("POST", "/faults/drop"),
    ("POST", "/faults/release"),
    ("POST", "/faults/heal"),
    ("POST", "/faults/fail-disk"),
    ("POST", "/faults/mend-disk"),
];

type Answer = Result<Value, Refusal>;

/// The methods that a path takes; none when there is no such path.
pub fn methods(path: &str) -> Vec<&'static str> {
    let takes = |route: &str| match route.strip_suffix("{id}") {
        Some(before) => path.strip_prefix(before).is_some_and(|id| id.parse::<u64>().is_ok()),
        None => route == path,
    };
    ROUTES.iter().filter(|(_, route)| takes(route)).map(|(method, _)| *method).collect()
}

/// Does what a request to one of [`ROUTES`] asks for.
pub fn answer(
    controlled: &Controlled,
    method: &str,
    path: &str,
    query: &str,
    body: &[u8],
) -> Answer {
    match (method, path) {
        ("GET", "/cluster") => {
            let internal = flag(query, "internal")?;
            Ok(view::cluster(controlled, internal))
        }
        ("GET", "/openapi.json") => serde_json::from_str(OPENAPI)
            .map_err(|error| Refusal::new(500, format!("openapi.json: {error}"))),
        ("GET", "/faults") => Ok(view::faults(controlled)),
        ("DELETE", "/faults") | ("POST", "/faults/heal") => {
            read::<Nothing>(body)?;
            Ok(json!({ "ended": controlled.faults().heal(|_| true) }))
        }
        ("POST", "/faults/cut") => add(controlled, read::<Cut>(body)?.faults()?),
        ("POST", "/faults/slow") => add(controlled, read::<Slow>(body)?.faults()?),
        ("POST", "/faults/hold") => add(controlled, read::<Named>(body)?.faults(Harm::Hold)?),
        ("POST", "/faults/drop") => add(controlled, read::<Named>(body)?.faults(Harm::Drop)?),
        ("POST", "/faults/release") => {
            let Release { id, lost } = read(body)?;
            end(controlled, id, lost)
        }
        ("POST", "/faults/fail-disk") => fail_disk(controlled, &read(body)?),
        ("POST", "/faults/mend-disk") => mend_disk(controlled, &read(body)?),
        ("POST", path) => node(controlled, path.trim_start_matches("/faults/"), &read(body)?),
        (method, path) => {
            let id = path.trim_start_matches("/faults/").parse().map_err(Refusal::missing)?;
            match method {
                "GET" => controlled.faults().get(FaultId(id)).as_ref().map(view::fault),
                _ => return end(controlled, id, flag(query, "lost")?),
            }
            .ok_or_else(|| no_fault(id))
        }
    }
}

/// A flag of the query, which has nothing else.
fn flag(query: &str, name: &str) -> Result<bool, Refusal> {
    let mut is_set = false;
    for part in query.split('&').filter(|part| !part.is_empty()) {
        is_set = match part.split_once('=').unwrap_or((part, "true")) {
            (key, "true") if key == name => true,
            (key, "false") if key == name => false,
            _ => {
                let expected = format!("{name}=true or {name}=false");
                return Err(Refusal::bad(format!("the query {part:?}: expected {expected}")));
            }
        };
    }
    Ok(is_set)
}

fn no_fault(id: u64) -> Refusal {
    Refusal::missing(format!("no fault {id} is in force"))
}

fn add(controlled: &Controlled, faults: Vec<(Way, Harm)>) -> Answer {
    for (way, _) in &faults {
        for node in [way.from, way.to].into_iter().flatten() {
            known(controlled, node)?;
        }
    }
    let mut made = Vec::new();
    for (way, harm) in faults {
        made.push(controlled.faults().add(way, harm).map_err(Refusal::bad)?);
    }
    let shown = made.iter().filter_map(|id| controlled.faults().get(*id));
    Ok(json!({ "faults": shown.map(|fault| view::fault(&fault)).collect::<Value>() }))
}

fn end(controlled: &Controlled, id: u64, lost: bool) -> Answer {
    let faults = controlled.faults();
    let ended = if lost { faults.end_and_lose(FaultId(id)) } else { faults.end(FaultId(id)) };
    Ok(json!({ "ended": view::fault(&ended.ok_or_else(|| no_fault(id))?) }))
}

fn known(controlled: &Controlled, node: i32) -> Result<(), Refusal> {
    controlled.crew.lock().spec(node).map(|_| ()).map_err(Refusal::missing)
}

/// What is done to one node.
fn node(controlled: &Controlled, what: &str, OneNode { node }: &OneNode) -> Answer {
    let node = *node;
    known(controlled, node)?;
    let mut crew = controlled.crew.lock();
    let is = crew.state(node);
    let wanted: &[NodeState] = match what {
        "start" => &[NodeState::IsDown, NodeState::HasFailed],
        "thaw" => &[NodeState::IsFrozen],
        "kill" => &[NodeState::Runs, NodeState::IsFrozen],
        _ => &[NodeState::Runs],
    };
    if !wanted.contains(&is) {
        let wanted: Vec<&str> = wanted.iter().map(|state| state.word()).collect();
        let (wanted, is) = (wanted.join(" or "), is.word());
        return Err(Refusal::conflict(format!("{what}: node {node} is {is}, not {wanted}")));
    }
    let done = match what {
        "start" => crew.start(node),
        "thaw" => crew.thaw(node),
        "kill" => crew.kill(node),
        "freeze" => crew.freeze(node),
        _ => crew.stop(node, STOP_PATIENCE),
    };
    done.map_err(|error| Refusal::new(500, format!("{what}: {error:#}")))?;
    Ok(state(&crew, node))
}

fn state(crew: &Crew, node: i32) -> Value {
    json!({ "node": node, "state": crew.state(node).word() })
}

fn fail_disk(controlled: &Controlled, OneDirectory { node, dir }: &OneDirectory) -> Answer {
    known(controlled, *node)?;
    let mut crew = controlled.crew.lock();
    let dirs = crew.log_dirs(*node).map_err(Refusal::missing)?;
    let Some(path) = dirs.get(*dir) else {
        let count = dirs.len();
        return Err(Refusal::missing(format!(
            "dir {dir}: node {node} has {count} log directories"
        )));
    };
    if !path.is_dir() {
        let path = path.display();
        return Err(Refusal::conflict(format!(
            "{path} is no directory; it may be taken away already"
        )));
    }
    crew.fail_disk(*node, path).map_err(|error| Refusal::new(500, format!("{error:#}")))?;
    Ok(json!({ "node": node, "taken_away": path.display().to_string() }))
}

fn mend_disk(controlled: &Controlled, OneNode { node }: &OneNode) -> Answer {
    known(controlled, *node)?;
    let mut crew = controlled.crew.lock();
    let mended = crew.mend_disk(*node).map_err(|error| Refusal::new(500, format!("{error:#}")))?;
    if mended == 0 {
        return Err(Refusal::conflict(format!("no log directory of node {node} is taken away")));
    }
    Ok(json!({ "node": node, "given_back": mended }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_openapi_document_names_every_route_that_is_served_and_no_other() {
        let document: Value = serde_json::from_str(OPENAPI).expect("JSON");
        assert_eq!(document["openapi"], "3.1.0");
        let mut described = BTreeSet::new();
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("methods") {
                if method == "parameters" {
                    continue;
                }
                assert!(operation["summary"].is_string(), "{method} {path} says nothing");
                assert!(operation["responses"]["200"].is_object(), "{method} {path} has no answer");
                if method == "post" {
                    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
                    assert!(body.is_object(), "{method} {path} has no body");
                }
                described.insert((method.to_uppercase(), path.clone()));
            }
        }
        let served = ROUTES.iter().map(|(method, path)| (method.to_string(), path.to_string()));
        assert_eq!(described, served.collect());
    }

    #[test]
    fn every_reference_in_the_document_leads_somewhere() {
        let document: Value = serde_json::from_str(OPENAPI).expect("JSON");
        for (at, _) in OPENAPI.match_indices("\"$ref\"") {
            let reference = OPENAPI[at..].split('"').nth(3).expect("a reference");
            let pointer = reference.strip_prefix('#').expect("one inside the document");
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
    }

    #[test]
    fn a_path_tells_its_methods_and_an_id_is_a_number() {
        assert_eq!(methods("/faults/7"), ["GET", "DELETE"]);
        assert_eq!(methods("/faults/kill"), ["POST"]);
        for unknown in ["/", "/faults/", "/faults/-1", "/faults/7/x", "/cluster/"] {
            assert!(methods(unknown).is_empty(), "{unknown}");
        }
    }

    #[test]
    fn a_flag_of_the_query_is_true_or_false() {
        assert_eq!((flag("", "lost"), flag("lost", "lost")), (Ok(false), Ok(true)));
        assert_eq!(flag("lost=false", "lost"), Ok(false));
        for wrong in ["lost=1", "other=true"] {
            assert_eq!(flag(wrong, "lost").expect_err("wrong").status, 400);
        }
    }
}
