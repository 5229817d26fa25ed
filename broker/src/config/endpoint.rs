//! Addresses as configuration writes them: `NAME://host:port`, `host:port` and `id@host:port`.

use std::fmt;

use protocol::NodeId;

/// How bytes travel on a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityProtocol {
    /// As they are.
    Plaintext,
    /// Under TLS.
    Ssl,
    /// As they are, after the client proved who it is.
    SaslPlaintext,
    /// Under TLS, after the client proved who it is.
    SaslSsl,
}

impl SecurityProtocol {
    /// Every protocol.
    pub const ALL: [SecurityProtocol; 4] = [
        SecurityProtocol::Plaintext,
        SecurityProtocol::Ssl,
        SecurityProtocol::SaslPlaintext,
        SecurityProtocol::SaslSsl,
    ];

    /// Kafka's name of it.
    pub fn name(self) -> &'static str {
        match self {
            SecurityProtocol::Plaintext => "PLAINTEXT",
            SecurityProtocol::Ssl => "SSL",
            SecurityProtocol::SaslPlaintext => "SASL_PLAINTEXT",
            SecurityProtocol::SaslSsl => "SASL_SSL",
        }
    }

    /// Kafka's number of it, as registrations carry it.
    pub fn code(self) -> i16 {
        match self {
            SecurityProtocol::Plaintext => 0,
            SecurityProtocol::Ssl => 1,
            SecurityProtocol::SaslPlaintext => 2,
            SecurityProtocol::SaslSsl => 3,
        }
    }

    /// By its name, in any case.
    pub fn from_name(name: &str) -> Option<SecurityProtocol> {
        SecurityProtocol::ALL
            .into_iter()
            .find(|protocol| protocol.name().eq_ignore_ascii_case(name))
    }
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAndPort {
    /// Name or address, without brackets; may be empty where every address is meant.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl HostAndPort {
    /// Reads `host:port`; an IPv6 address stands in brackets.
    pub fn parse(text: &str) -> Option<HostAndPort> {
        let (host, port) = text.trim().rsplit_once(':')?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = bracketed.unwrap_or(host);
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-%._:".contains(&byte);
        if !host.bytes().all(allowed) || (host.contains(':') && bracketed.is_none()) {
            return None;
        }
        Some(HostAndPort { host: host.to_owned(), port: port.parse().ok()? })
    }
}

impl fmt::Display for HostAndPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// One entry of `listeners` or `advertised.listeners`, with its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The listener's name, in capitals.
    pub listener: String,
    /// Its protocol by `listener.security.protocol.map`.
    pub protocol: SecurityProtocol,
    /// Host; empty for every address of the machine.
    pub host: String,
    /// Port; 0 for any free one.
    pub port: u16,
}

impl Endpoint {
    /// Reads `NAME://host:port` into a name in capitals and an address.
    pub(super) fn split(text: &str) -> Option<(String, HostAndPort)> {
        let (name, address) = text.trim().split_once("://")?;
        if name.is_empty() {
            return None;
        }
        Some((name.to_uppercase(), HostAndPort::parse(address)?))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = HostAndPort { host: self.host.clone(), port: self.port };
        write!(f, "{}://{address}", self.listener)
    }
}

/// One entry of `controller.quorum.voters`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voter {
    /// The controller's node id.
    pub id: NodeId,
    /// Where its controller listener is.
    pub address: HostAndPort,
}

impl Voter {
    /// Reads `id@host:port`.
    pub fn parse(text: &str) -> Option<Voter> {
        let (id, address) = text.trim().split_once('@')?;
        let id = id.parse().ok().filter(|id| *id >= 0)?;
        let address = HostAndPort::parse(address).filter(|address| !address.host.is_empty())?;
        Some(Voter { id: NodeId(id), address })
    }
}
