//! The APIs and what is known of each: versions, headers, listeners, and what clients are told.
//! The enum and the table are generated from the schemas.

use std::fmt;
use std::ops::RangeInclusive;

include!(concat!(env!("OUT_DIR"), "/api_key.rs"));

/// The kind of socket a request came in on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// Where clients and brokers talk to a broker.
    Broker,
    /// Where nodes talk to a controller.
    Controller,
}

#[derive(Debug)]
struct ApiFacts {
    name: &'static str,
    kafka_name: &'static str,
    versions: (i16, i16),
    latest_stable: i16,
    advertised: bool,
    advertised_from: i16,
    /// `i16::MAX` when no version is flexible.
    flexible_from: i16,
    on_broker: bool,
    on_controller: bool,
    cluster_action: bool,
    headers: &'static [HeaderRow],
}

/// From this version of an API on, these versions of the headers.
#[derive(Debug)]
struct HeaderRow {
    from: i16,
    request: i16,
    response: i16,
}

impl ApiKey {
    /// The number on the wire.
    pub const fn to_i16(self) -> i16 {
        self as i16
    }

    /// The name that the messages start with, as in `Fetch`.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The name in Kafka's tables and metrics, as in `FETCH`.
    pub fn kafka_name(self) -> &'static str {
        self.facts().kafka_name
    }

    /// The versions that can be read and written, unstable ones included.
    pub fn valid_versions(self) -> RangeInclusive<i16> {
        let (first, last) = self.facts().versions;
        first..=last
    }

    /// The versions that are served: the valid ones without the unstable ones.
    pub fn served_versions(self) -> RangeInclusive<i16> {
        self.facts().versions.0..=self.facts().latest_stable
    }

    /// The versions that ApiVersions tells clients of, or `None` for an API it does not mention.
    /// Produce reaches down to 0 here, although versions 0 to 2 are refused (rule P04, KAFKA-18659).
    pub fn advertised_versions(self) -> Option<RangeInclusive<i16>> {
        let facts = self.facts();
        facts.advertised.then_some(facts.advertised_from..=facts.latest_stable)
    }

    /// Whether this version has compact encodings and tagged fields (KIP-482).
    pub fn is_flexible(self, version: i16) -> bool {
        version >= self.facts().flexible_from
    }

    /// Whether listeners of this kind serve the API.
    pub fn is_served_on(self, listener: Listener) -> bool {
        match listener {
            Listener::Broker => self.facts().on_broker,
            Listener::Controller => self.facts().on_controller,
        }
    }

    /// Whether only the cluster's own nodes may call the API.
    pub fn is_cluster_action(self) -> bool {
        self.facts().cluster_action
    }

    /// The version of the header before a request. Versions that do not exist get the nearest row, which is
    /// how the header of a too new ApiVersions request can be read (rule P01).
    pub fn request_header_version(self, version: i16) -> i16 {
        self.header_row(version).request
    }

    /// The version of the header before a response; always 0 for ApiVersions (rule P01).
    pub fn response_header_version(self, version: i16) -> i16 {
        self.header_row(version).response
    }

    fn header_row(self, version: i16) -> &'static HeaderRow {
        let rows = self.facts().headers;
        rows.iter().rev().find(|row| version >= row.from).unwrap_or(&rows[0])
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kafka_name())
    }
}
