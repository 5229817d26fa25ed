//! What `GET /cluster` and `GET /faults` show.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use testkit::real::{ClusterView, Crew, Fault, Harm, Hosting, PartitionView, Plane, look};

use super::Controlled;

/// How long a node may take to answer before it counts as silent.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// A fault as JSON.
pub fn fault(fault: &Fault) -> Value {
    let mut shown = json!({
        "id": fault.id.0,
        "kind": match fault.harm {
            Harm::Cut => "cut",
            Harm::Slow { .. } => "slow",
            Harm::Hold(_) => "hold",
            Harm::Drop(_) => "drop",
        },
        "from": fault.way.from,
        "to": fault.way.to,
        "plane": fault.way.plane.map(|plane| plane.to_string()),
    });
    let mut add = |key: &str, value: Value| {
        shown.as_object_mut().map(|fields| fields.insert(key.into(), value));
    };
    match fault.harm {
        Harm::Cut => {}
        Harm::Slow { latency, bytes_per_second } => {
            add("latency_ms", json!(latency.as_millis() as u64));
            add("bytes_per_second", json!(bytes_per_second));
        }
        Harm::Hold(message) => {
            add("message", json!(message.to_string()));
            add("held", json!(fault.held));
            add("met", json!(fault.met));
        }
        Harm::Drop(message) => {
            add("message", json!(message.to_string()));
            add("met", json!(fault.met));
        }
    }
    shown
}

/// The faults in force, oldest first.
pub fn faults(controlled: &Controlled) -> Value {
    controlled.faults().list().iter().map(fault).collect()
}

/// The whole cluster. Waits for nodes.
pub fn cluster(controlled: &Controlled, internal: bool) -> Value {
    let (mode, nodes, responsive) = {
        let crew = controlled.crew.lock();
        let mode = match crew.hosting() {
            Hosting::Processes(_) => "processes",
            Hosting::OneProcess => "one process",
        };
        (mode, nodes(controlled, &crew), crew.responsive())
    };
    let addresses: BTreeMap<i32, String> = responsive
        .into_iter()
        .filter_map(|node| Some((node, controlled.planned.get(&node)?.address.clone()?)))
        .collect();
    let seen = look(&addresses, LOOK_TIMEOUT, &|topic| internal || !topic.is_internal);
    json!({
        "mode": mode,
        "nodes": nodes,
        "links": links(controlled),
        "faults": faults(controlled),
        "silent": seen.silent,
        "topics": topics(&seen),
    })
}

fn nodes(controlled: &Controlled, crew: &Crew) -> Value {
    let shown = controlled.planned.iter().map(|(id, planned)| {
        let dirs = crew.log_dirs(*id).unwrap_or_default();
        let dirs = dirs.iter().map(|dir| {
            json!({ "path": dir.display().to_string(), "taken_away": Crew::is_taken_away(dir) })
        });
        json!({
            "id": id,
            "state": crew.state(*id).word(),
            "broker": planned.address.is_some(),
            "controller": planned.is_controller,
            "address": planned.address,
            "pid": crew.pid(*id),
            "log_dirs": dirs.collect::<Value>(),
        })
    });
    shown.collect()
}

/// Every link that somebody uses, or that is cut.
fn links(controlled: &Controlled) -> Value {
    let used = controlled.faults().connections();
    let mut shown = Vec::new();
    for from in controlled.planned.keys() {
        for (to, planned) in &controlled.planned {
            let planes = [
                (Plane::Data, planned.address.is_some() && from != to),
                (Plane::Control, planned.is_controller),
            ];
            for (plane, _) in planes.into_iter().filter(|(_, exists)| *exists) {
                let connections = used.get(&(Some(*from), *to, plane)).copied().unwrap_or(0);
                let is_cut = controlled.faults().is_cut(*from, *to, plane);
                if connections > 0 || is_cut {
                    shown.push(json!({
                        "from": from,
                        "to": to,
                        "plane": plane.to_string(),
                        "connections": connections,
                        "cut": is_cut,
                    }));
                }
            }
        }
    }
    shown.into()
}

fn topics(seen: &ClusterView) -> Value {
    let mut topics: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for partition in &seen.partitions {
        topics.entry(&partition.topic).or_default().push(shown(partition));
    }
    let topics = topics.into_iter().map(|(name, partitions)| {
        let mut topic = Map::new();
        topic.insert("name".into(), name.into());
        topic.insert("partitions".into(), partitions.into());
        Value::Object(topic)
    });
    topics.collect()
}

fn shown(partition: &PartitionView) -> Value {
    json!({
        "partition": partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "replicas": partition.replicas,
    })
}
