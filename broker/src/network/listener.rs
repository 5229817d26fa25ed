//! Binds the listeners, accepts connections and stops them again.
//!
//! Binding and serving are two steps: a node that cannot have its ports fails before it touches
//! anything else, and a port of 0 is known before the node tells others where it listens.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use controller::handshake::Acceptor as TlsAcceptor;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::connection::{Connection, ConnectionHandle, ConnectionShared};
use super::counters::NetworkCounters;
use super::kernel_tls::KernelTls;
use super::limits::{ConnectionLimits, ConnectionQuota};
use super::request_slot::RequestSlot;
use super::service::{ConnectionInfo, RequestService};
use super::stream::{ListenerTls, Stream};
use crate::metrics::{ListenerCounters, Observer};

/// How long accepting rests after the system had no more descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerAddress {
    /// The listener's name, as in `listeners`.
    pub name: String,
    /// Host name or address; empty for every address of the machine.
    pub host: String,
    /// Port; 0 for any free one.
    pub port: u16,
    /// Whether it is the inter-broker listener among several, which does not wait when
    /// `max.connections` is reached: the longest idle connection of another listener is closed instead.
    pub is_protected: bool,
}

/// How the server treats connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkSettings {
    /// `socket.request.max.bytes`.
    pub max_request_bytes: usize,
    /// `connections.max.idle.ms`; also how long a client may take nothing of an answer.
    pub max_idle: Duration,
    /// `max.connections` and its kin.
    pub limits: ConnectionLimits,
    /// `socket.listen.backlog.size`.
    pub backlog: u32,
    /// `socket.send.buffer.bytes`, in bytes; `None` leaves it to the system, which lets it grow to megabytes.
    pub send_buffer_bytes: Option<usize>,
    /// `socket.receive.buffer.bytes`, in bytes; `None` leaves it to the system.
    pub receive_buffer_bytes: Option<usize>,
}

/// What one connection may have on its way where nobody says otherwise. Records in a small buffer are still
/// in the processor's cache when the other side takes them; measured with `sendfile` to 1, 4 and 64 readers,
/// this is 1.7 to 3 times as fast as a buffer that grows, and Kafka's 100 KB costs readers that keep up
/// one wake-up in two.
const SEND_BUFFER_BYTES: usize = 212_992;

impl Default for NetworkSettings {
    fn default() -> Self {
        NetworkSettings {
            max_request_bytes: 100 * 1024 * 1024,
            max_idle: Duration::from_secs(600),
            limits: ConnectionLimits::default(),
            backlog: 50,
            send_buffer_bytes: Some(SEND_BUFFER_BYTES),
            receive_buffer_bytes: None,
        }
    }
}

/// A listener could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("listener {listener} cannot listen on {host}:{port}: {source}")]
pub struct ListenError {
    /// The listener's name.
    pub listener: String,
    /// The host asked for.
    pub host: String,
    /// The port asked for.
    pub port: u16,
    /// What the system said.
    pub source: io::Error,
}

/// Listeners that hold their ports and accept nobody yet.
#[derive(Debug)]
pub struct BoundListeners {
    listeners: Vec<BoundListener>,
    settings: NetworkSettings,
}

#[derive(Debug)]
struct BoundListener {
    name: Arc<str>,
    address: SocketAddr,
    socket: TcpListener,
    is_protected: bool,
    tls: Option<ListenerTls>,
}

impl BoundListeners {
    /// Binds all of `addresses`, or none.
    pub async fn bind(
        addresses: &[ListenerAddress],
        settings: NetworkSettings,
    ) -> Result<BoundListeners, ListenError> {
        let mut listeners = Vec::with_capacity(addresses.len());
        for address in addresses {
            let bound = bind_one(address, &settings).await;
            let (socket, bound_to) = bound.map_err(|source| ListenError {
                listener: address.name.clone(),
                host: address.host.clone(),
                port: address.port,
                source,
            })?;
            listeners.push(BoundListener {
                name: address.name.as_str().into(),
                address: bound_to,
                socket,
                is_protected: address.is_protected,
                tls: None,
            });
        }
        Ok(BoundListeners { listeners, settings })
    }

    /// Puts a listener under TLS, of which the kernel does what it can if it may.
    pub fn encrypt(
        &mut self,
        listener: &str,
        acceptor: &TlsAcceptor,
        kernel: Option<&Arc<KernelTls>>,
    ) {
        let tls = ListenerTls { acceptor: acceptor.clone(), kernel: kernel.cloned() };
        for bound in self.listeners.iter_mut().filter(|bound| &*bound.name == listener) {
            bound.tls = Some(tls.clone());
        }
    }

    /// The address that a listener got.
    pub fn address(&self, listener: &str) -> Option<SocketAddr> {
        self.listeners.iter().find(|bound| &*bound.name == listener).map(|bound| bound.address)
    }

    /// Starts to accept connections for `service`.
    pub fn serve(self, service: Arc<dyn RequestService>) -> NetworkServer {
        self.serve_observed(service, Arc::default())
    }

    /// As [`BoundListeners::serve`], and tells `observer` of every request.
    pub fn serve_observed(
        self,
        service: Arc<dyn RequestService>,
        observer: Arc<Observer>,
    ) -> NetworkServer {
        let counters = Arc::clone(&observer.network);
        let (stop, stopped) = watch::channel(false);
        let server = Arc::new(ServerShared {
            connections: Mutex::default(),
            quota: ConnectionQuota::new(self.settings.limits.clone()),
            shared: Arc::new(ConnectionShared {
                service,
                counters: Arc::clone(&counters),
                observer: Arc::clone(&observer),
                max_request_bytes: self.settings.max_request_bytes,
                max_idle: self.settings.max_idle,
                started: Instant::now(),
            }),
            next_id: AtomicU64::new(0),
            send_buffer_bytes: self.settings.send_buffer_bytes,
        });
        let addresses =
            self.listeners.iter().map(|bound| (bound.name.to_string(), bound.address)).collect();
        let acceptors = self
            .listeners
            .into_iter()
            .map(|bound| {
                let counters = observer.listener(&bound.name);
                let server = Arc::clone(&server);
                let acceptor = Acceptor { bound, server, counters, stopped: stopped.clone() };
                tokio::spawn(acceptor.run())
            })
            .collect();
        NetworkServer { server, counters, addresses, acceptors, stop }
    }
}

/// Binds to the first address of the host that can be had.
async fn bind_one(
    address: &ListenerAddress,
    settings: &NetworkSettings,
) -> io::Result<(TcpListener, SocketAddr)> {
    let candidates: Vec<SocketAddr> = if address.host.is_empty() {
        // Both families at once where there is IPv6, as Java does.
        let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        any.map(|ip| SocketAddr::new(ip, address.port)).to_vec()
    } else {
        let host = address.host.trim_start_matches('[').trim_end_matches(']');
        tokio::net::lookup_host((host, address.port)).await?.collect()
    };
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for candidate in candidates {
        match listen(candidate, settings) {
            Ok(socket) => {
                let bound_to = socket.local_addr()?;
                return Ok((socket, bound_to));
            }
            // A port that is taken is the answer; only a family that is not there makes way for the next.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn listen(address: SocketAddr, settings: &NetworkSettings) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    // Set before listening: connections inherit it, and their window is agreed on in the handshake.
    if let Some(bytes) = settings.receive_buffer_bytes {
        socket.set_recv_buffer_size(u32::try_from(bytes).unwrap_or(u32::MAX))?;
    }
    socket.bind(address)?;
    socket.listen(settings.backlog)
}

/// A running server. Dropping it stops it at once; [`NetworkServer::shutdown`] lets answers go out.
#[derive(Debug)]
pub struct NetworkServer {
    server: Arc<ServerShared>,
    counters: Arc<NetworkCounters>,
    addresses: BTreeMap<String, SocketAddr>,
    acceptors: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl NetworkServer {
    /// The address that a listener got.
    pub fn address(&self, listener: &str) -> Option<SocketAddr> {
        self.addresses.get(listener).copied()
    }

    /// What was moved so far.
    pub fn counters(&self) -> &Arc<NetworkCounters> {
        &self.counters
    }

    /// The connections open now, in the order in which they came.
    pub fn connections(&self) -> Vec<Arc<ConnectionInfo>> {
        self.server.connections.lock().values().map(|handle| Arc::clone(&handle.info)).collect()
    }

    /// Stops accepting, closes idle connections, lets requests in flight be answered for up to
    /// `grace`, then closes what is left.
    pub async fn shutdown(mut self, grace: Duration) {
        let _ = self.stop.send(true);
        for handle in self.server.connections.lock().values() {
            handle.slot.request_stop();
        }
        let deadline = Instant::now() + grace;
        for acceptor in &mut self.acceptors {
            if tokio::time::timeout_at(deadline, &mut *acceptor).await.is_err() {
                acceptor.abort();
                let _ = acceptor.await;
            }
        }
    }
}

impl Drop for NetworkServer {
    fn drop(&mut self) {
        for acceptor in &self.acceptors {
            acceptor.abort();
        }
    }
}

/// What all listeners of a server use.
struct ServerShared {
    connections: Mutex<BTreeMap<u64, Entry>>,
    quota: Arc<ConnectionQuota>,
    shared: Arc<ConnectionShared>,
    next_id: AtomicU64,
    send_buffer_bytes: Option<usize>,
}

#[derive(Debug)]
struct Entry {
    handle: Arc<ConnectionHandle>,
    is_protected: bool,
}

impl std::ops::Deref for Entry {
    type Target = ConnectionHandle;
    fn deref(&self) -> &ConnectionHandle {
        &self.handle
    }
}

impl std::fmt::Debug for ServerShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerShared")
            .field("connections", &self.connections.lock().len())
            .finish_non_exhaustive()
    }
}

impl ServerShared {
    /// Makes room for a protected connection at the cost of the longest idle one that is not.
    fn close_longest_idle(&self) {
        let connections = self.connections.lock();
        let longest_idle = connections
            .values()
            .filter(|entry| !entry.is_protected && !entry.slot.is_stopping())
            .min_by_key(|entry| entry.last_active_ms.load(Ordering::Relaxed));
        if let Some(entry) = longest_idle {
            entry.slot.request_stop();
        }
    }
}

/// Gives the entry in the server's table back, also when a connection's task is aborted.
struct Registration {
    server: Arc<ServerShared>,
    counters: Arc<ListenerCounters>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.server.connections.lock().remove(&self.id);
        self.server.shared.counters.connections_open.subtract(1);
        self.counters.open.subtract(1);
        self.counters.closed.add(1);
    }
}

/// Accepts on one listener. Its connections are aborted when it is.
struct Acceptor {
    bound: BoundListener,
    server: Arc<ServerShared>,
    counters: Arc<ListenerCounters>,
    stopped: watch::Receiver<bool>,
}

impl Acceptor {
    async fn run(self) {
        let mut tasks = JoinSet::new();
        let mut stopped = self.stopped.clone();
        loop {
            tokio::select! {
                _ = stopped.changed() => break,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
                accepted = self.bound.socket.accept() => match accepted {
                    Ok((stream, peer)) => {
                        tokio::select! {
                            _ = stopped.changed() => break,
                            () = self.make_room() => self.start(stream, peer, &mut tasks),
                        }
                    }
                    Err(error) => {
                        tracing::warn!(listener = %self.bound.name, "accepting failed: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(self.bound.socket);
        while tasks.join_next().await.is_some() {}
    }

    /// Waits while `max.connections` is reached; a protected listener has another connection closed instead.
    async fn make_room(&self) {
        if !self.bound.is_protected {
            self.server.quota.wait_for_room().await;
        } else if self.server.quota.is_full() {
            self.server.close_longest_idle();
        }
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr, tasks: &mut JoinSet<()>) {
        let (server, counters) = (&self.server, &self.server.shared.counters);
        let Some(place) = server.quota.admit(peer.ip().to_canonical()) else {
            counters.connections_refused.add(1);
            self.counters.refused.add(1);
            tracing::info!(%peer, listener = %self.bound.name, "too many connections from this address");
            return;
        };
        if let Err(error) = self.set_options(&stream) {
            tracing::debug!(%peer, "the connection is gone before it was used: {error}");
            return;
        }
        let id = server.next_id.fetch_add(1, Ordering::Relaxed);
        let handle = Arc::new(ConnectionHandle {
            info: Arc::new(ConnectionInfo {
                id,
                listener: Arc::clone(&self.bound.name),
                peer: canonical(peer),
                local: canonical(stream.local_addr().unwrap_or(self.bound.address)),
            }),
            slot: Arc::new(RequestSlot::default()),
            last_active_ms: AtomicU64::new(server.shared.started.elapsed().as_millis() as u64),
        });
        counters.connections_accepted.add(1);
        counters.connections_open.add(1);
        self.counters.accepted.add(1);
        self.counters.open.add(1);
        let entry = Entry { handle: Arc::clone(&handle), is_protected: self.bound.is_protected };
        server.connections.lock().insert(id, entry);
        let counters = Arc::clone(&self.counters);
        let registration = Registration { server: Arc::clone(server), counters, id };
        // A stop that came while this connection was being accepted has not seen it in the table.
        if *self.stopped.borrow() {
            handle.slot.request_stop();
        }
        let (shared, tls) = (Arc::clone(&server.shared), self.bound.tls.clone());
        tasks.spawn(async move {
            let _registration = registration;
            let accepted = tokio::select! {
                accepted = Stream::accept(stream, tls) => accepted,
                () = handle.slot.stop_requested() => return,
            };
            match accepted {
                Ok(stream) => Connection::new(stream, handle, shared, place).run().await,
                Err(error) => {
                    shared.counters.handshakes_failed.add(1);
                    let listener = &handle.info.listener;
                    tracing::info!(%peer, %listener, "no TLS with a client: {error}");
                }
            }
        });
    }

    fn set_options(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        if let Some(bytes) = self.server.send_buffer_bytes {
            rustix::net::sockopt::set_socket_send_buffer_size(stream, bytes)?;
        }
        Ok(())
    }
}

/// An IPv4 client of a listener for both families appears as the IPv4 address it is.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
