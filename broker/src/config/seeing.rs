//! Keys of our own, for seeing what a node does: where its metrics are and whether requests are logged.

use std::path::PathBuf;

use super::endpoint::HostAndPort;
use super::reader::Reader;

/// Metrics and the request log, `highwater.*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeeingConfig {
    /// `highwater.metrics.listener`: where `/metrics` is served; an empty host is every address. Nowhere
    /// unless it is set.
    pub metrics_listener: Option<HostAndPort>,
    /// `highwater.request.log.enable`, as in force at the start.
    pub log_requests: bool,
    /// `highwater.request.log.file`; standard error unless it is set.
    pub request_log_file: Option<PathBuf>,
}

/// Reads them all.
pub(super) fn read(reader: &mut Reader<'_>) -> SeeingConfig {
    const LISTENER: &str = "highwater.metrics.listener";
    let text = reader.text(LISTENER);
    let metrics_listener = text.as_deref().and_then(HostAndPort::parse);
    if let (Some(text), None) = (text, &metrics_listener) {
        reader.refuse(LISTENER, text, "it must be host:port, or :port for every address");
    }
    SeeingConfig {
        metrics_listener,
        log_requests: reader.flag("highwater.request.log.enable"),
        request_log_file: reader.text("highwater.request.log.file").map(PathBuf::from),
    }
}
