//! When a cluster is ready: every broker knows every broker as alive, so that a topic with as many
//! replicas can be created and written.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use testkit::client::Client;

/// One client may take this long to connect or to be answered.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until each of `addresses` sees `brokers` live brokers; fails after `patience`, or when
/// `still_hopeful` does.
pub fn wait(
    addresses: &[String],
    brokers: usize,
    patience: Duration,
    mut still_hopeful: impl FnMut() -> Result<()>,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    for address in addresses {
        let mut client = None;
        loop {
            still_hopeful()?;
            let seen = live_brokers(&mut client, address);
            if matches!(seen, Ok(count) if count >= brokers) {
                break;
            }
            if Instant::now() > deadline {
                let last = match seen {
                    Ok(count) => format!("{count} live brokers"),
                    Err(error) => format!("{error:#}"),
                };
                bail!("not ready after {patience:?}: {address} sees {last}");
            }
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// How many live brokers `address` knows; keeps the connection for the next question.
pub fn live_brokers(client: &mut Option<Client>, address: &str) -> Result<usize> {
    if client.is_none() {
        *client = Some(Client::connect(address, CLIENT_TIMEOUT)?);
    }
    let Some(connected) = client.as_mut() else {
        bail!("not connected");
    };
    let metadata = connected.metadata();
    if metadata.is_err() {
        *client = None;
    }
    Ok(metadata?.brokers.len())
}
