//! A fault proxy on the links between nodes: cuts and slows them, and holds back or loses messages by
//! their names. Frames that no fault names are copied as they are.
//!
//! How it knows who is at the other end:
//!
//! - **Control plane.** One entrance per ordered pair: every node is told addresses of its own for the
//!   controllers (`controller.quorum.voters`), so the address that is dialed says who dials and for whom.
//!   A node's way to the controller in its own process leads through the proxy too.
//! - **Data plane.** Brokers learn each other's addresses from the metadata, which is the same for all: one
//!   entrance per broker, which the broker advertises under the listener that brokers use. Who dials is
//!   said by the client id of the first request (`broker-3-fetcher-0`), as followers of Highwater and of
//!   Apache Kafka call themselves. The way on is dialed after that request.
//!
//! Clients do not come here: they know the brokers' own listeners. Links under TLS cannot be understood and
//! are refused. The proxy has a runtime of its own; when it is dropped all its connections end.

mod connection;
mod faults;
mod http2;
mod kafka;
mod lane;
mod message;
mod switchboard;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use self::connection::{Ends, carry};
use self::switchboard::Switchboard;
use super::NodeId;

pub use faults::{Fault, FaultId, Harm, Way};
pub use message::{Message, Plane};

/// Connections through one entrance at a time; the next ones are closed at once.
const MOST_CONNECTIONS: usize = 256;
/// How long accepting rests when the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The longest latency of a slow link.
pub const LONGEST_LATENCY: Duration = Duration::from_secs(60);

/// See the head of this file.
#[derive(Debug)]
pub struct Proxy {
    /// `None` once it is being dropped.
    runtime: Option<Runtime>,
    faults: Faults,
}

/// Makes faults and ends them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Faults {
    board: Arc<Switchboard>,
}

impl Proxy {
    /// A proxy without entrances.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start() -> Result<Proxy> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fault-proxy")
            .enable_all()
            .build()?;
        let board = Arc::new(Switchboard::new());
        Ok(Proxy { runtime: Some(runtime), faults: Faults { board } })
    }

    /// The faults of its links.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// An entrance to a broker for all other brokers; `address` is where it listens for them.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn to_broker(&self, target: NodeId, address: &str) -> Result<SocketAddr> {
        let address = address.to_owned();
        self.open(Ends { plane: Plane::Data, dialer: None, target, address })
    }

    /// An entrance to a controller for one node.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn to_controller(&self, from: NodeId, to: NodeId, address: &str) -> Result<SocketAddr> {
        let address = address.to_owned();
        self.open(Ends { plane: Plane::Control, dialer: Some(from), target: to, address })
    }

    fn open(&self, ends: Ends) -> Result<SocketAddr> {
        let runtime = self.runtime.as_ref().context("the proxy has ended")?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        runtime.spawn(accept(listener, self.faults.board.clone(), ends));
        Ok(address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, board: Arc<Switchboard>, ends: Ends) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                let (board, ends) = (board.clone(), ends.clone());
                tokio::spawn(async move {
                    let _place = place;
                    enter(stream, board, ends).await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "the proxy could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Finds out who dials, and carries the connection.
async fn enter(stream: TcpStream, board: Arc<Switchboard>, mut ends: Ends) {
    // Fails only when the dialer has gone already.
    let _ = stream.set_nodelay(true);
    let (reads, writes) = stream.into_split();
    let mut reads = BufReader::new(reads);
    let mut first = None;
    if ends.plane == Plane::Data {
        match kafka::read_frame(&mut reads).await {
            Ok(Some(frame)) => {
                ends.dialer = kafka::dialer(&frame);
                first = Some(frame);
            }
            Ok(None) => return,
            Err(error) => {
                let target = ends.target;
                return tracing::debug!(target, %error, "the proxy does not understand a dialer");
            }
        }
    }
    carry(board, ends, first, reads, writes).await;
}

impl Faults {
    /// Puts a fault in force.
    ///
    /// # Errors
    /// For what no proxy can do: hold answers of controllers, lose parts of streams, be slower than
    /// [`LONGEST_LATENCY`].
    pub fn add(&self, way: Way, harm: Harm) -> Result<FaultId> {
        match harm {
            Harm::Hold(Message::Answer(_)) | Harm::Drop(Message::Answer(_)) => ensure!(
                way.plane != Some(Plane::Control),
                "answers of controllers cannot be told apart; those of brokers can"
            ),
            Harm::Drop(message @ (Message::Raft | Message::MetadataStream)) => bail!(
                "{message} goes on without end, so nothing can be missing in it: hold it, or cut the link"
            ),
            Harm::Slow { latency, bytes_per_second } => {
                ensure!(latency <= LONGEST_LATENCY, "a latency of at most {LONGEST_LATENCY:?}");
                ensure!(bytes_per_second != Some(0), "0 bytes a second would be a cut");
            }
            Harm::Cut | Harm::Hold(_) | Harm::Drop(Message::Request(_)) => {}
        }
        Ok(self.board.change(|table| table.add(way, harm)))
    }

    /// Cuts the link between two nodes, both ways.
    ///
    /// # Errors
    /// As [`Faults::add`].
    pub fn cut_both_ways(
        &self,
        one: NodeId,
        other: NodeId,
        plane: Option<Plane>,
    ) -> Result<[FaultId; 2]> {
        let way = |from, to| Way { from: Some(from), to: Some(to), plane };
        Ok([self.add(way(one, other), Harm::Cut)?, self.add(way(other, one), Harm::Cut)?])
    }

    /// Ends a fault. Messages that it held go on, in their order. Gives what it was.
    pub fn end(&self, id: FaultId) -> Option<Fault> {
        self.board.change(|table| table.end(id, false))
    }

    /// Ends a fault. Messages that it held are lost. Gives what it was.
    pub fn end_and_lose(&self, id: FaultId) -> Option<Fault> {
        self.board.change(|table| table.end(id, true))
    }

    /// Ends all faults that `which` takes; messages that were held go on. Gives how many they were.
    pub fn heal(&self, which: impl Fn(&Fault) -> bool) -> usize {
        self.board.change(|table| {
            let ended: Vec<Fault> = table.list().into_iter().filter(which).collect();
            for fault in &ended {
                table.end(fault.id, false);
            }
            ended.len()
        })
    }

    /// The faults in force, oldest first.
    pub fn list(&self) -> Vec<Fault> {
        self.board.with(|table| table.list())
    }

    /// A fault that is in force.
    pub fn get(&self, id: FaultId) -> Option<Fault> {
        self.board.with(|table| table.get(id))
    }

    /// Whether bytes from one node to another do not arrive.
    pub fn is_cut(&self, from: NodeId, to: NodeId, plane: Plane) -> bool {
        self.board.with(|table| table.is_cut(Some(from), Some(to), plane))
    }

    /// How many connections there are: by who dialed (`None`: no node), to whom, on which plane.
    pub fn connections(&self) -> BTreeMap<(Option<NodeId>, NodeId, Plane), usize> {
        self.board.connections()
    }
}
