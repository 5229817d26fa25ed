//! The control port of `up --control`: a running cluster looked at and broken over HTTP.
//!
//! What a request asks for is done on a thread that may wait. Whoever reaches the port may kill nodes, so it
//! is on the loopback interface unless told otherwise, and a POST must say that it is JSON: no web page
//! can send that to another site unasked.

pub mod client;
mod requests;
mod routes;
mod server;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use testkit::real::{Crew, Faults, Mesh};

pub use server::{bind, serve};

/// Where the control port is, unless it is told.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9080";
/// How long a node may take to stop cleanly.
pub const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// A node as `up` planned it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Where clients reach it; `None` for one that is only a controller.
    pub address: Option<String>,
    /// Whether it votes in the metadata quorum.
    pub is_controller: bool,
}

/// The cluster behind the port.
#[derive(Debug)]
pub struct Controlled {
    /// Its nodes.
    pub crew: Mutex<Crew>,
    /// Its links.
    pub mesh: Mesh,
    /// What does not change.
    pub planned: BTreeMap<i32, Planned>,
}

impl Controlled {
    /// The faults of its links.
    pub fn faults(&self) -> &Faults {
        self.mesh.faults()
    }
}

/// Shared with every request.
pub type Shared = Arc<Controlled>;

/// Why a request is not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// HTTP's number.
    pub status: u16,
    /// A sentence for a person.
    pub error: String,
}

impl Refusal {
    fn new(status: u16, error: impl ToString) -> Self {
        Self { status, error: error.to_string() }
    }

    /// The request makes no sense.
    fn bad(error: impl ToString) -> Self {
        Self::new(400, error)
    }

    /// What it names is not there.
    fn missing(error: impl ToString) -> Self {
        Self::new(404, error)
    }

    /// It cannot be done as things are.
    fn conflict(error: impl ToString) -> Self {
        Self::new(409, error)
    }
}
