//! Why a node does not start, and why one that ran can go on no longer.

use std::path::PathBuf;

use controller::rpc::HostError;

use crate::core::replicas::StartupError;
use crate::network::ListenError;
use crate::tls::TlsError;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port is taken, or an address is none.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The controller's port is taken, or its address is none.
    #[error("cannot listen on {address} for the controller")]
    ControllerListen {
        /// Where.
        address: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// The metrics' port is taken, or its address is none.
    #[error("highwater.metrics.listener: cannot listen on {address}: {source}")]
    MetricsListen {
        /// Where.
        address: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// The request log cannot be opened.
    #[error("highwater.request.log.file: cannot open {}: {source}", .path.display())]
    RequestLog {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// The controller could not start.
    #[error(transparent)]
    Controller(#[from] HostError),
    /// A key that the controller obeys has a value that is none.
    #[error("{0}")]
    Properties(String),
    /// The addresses of the controllers are of no use.
    #[error("controller.quorum.voters: {0}")]
    Voters(String),
    /// The log directories cannot be used.
    #[error(transparent)]
    Storage(#[from] StartupError),
    /// A log directory's `meta.properties` cannot be read.
    #[error(transparent)]
    Meta(#[from] storage::LogError),
    /// The keys and certificates of a listener are of no use.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The listeners cannot be told to the cluster.
    #[error("advertised.listeners: {0}")]
    Advertised(String),
}

/// Why a node that ran can go on no longer.
#[derive(Debug, thiserror::Error)]
pub enum NodeFailure {
    /// The controller failed.
    #[error(transparent)]
    Controller(#[from] HostError),
    /// The broker cannot go on without a log directory.
    #[error(transparent)]
    Dirs(#[from] DirsFailure),
}

/// Why a broker cannot go on after its log directories failed (C08).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirsFailure {
    /// All of them failed.
    #[error("no log directory works any more")]
    All,
    /// The one that failed holds the metadata of the node's controller too.
    #[error("log directory {} failed, which holds the cluster's metadata", .0.display())]
    Metadata(PathBuf),
    /// No controller could be told for `log.dir.failure.timeout.ms`.
    #[error("a log directory failed and no controller could be told of it in time")]
    Untold,
}
