//! Asks a control port: one request, one connection, one answer.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::server::address;

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// A clean stop of a node may take half a minute.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
const MOST_ANSWER_BYTES: u64 = 64 << 20;

/// Sends a request and gives what it was answered.
///
/// # Errors
/// When nobody answers there, or with the words of the refusal.
pub fn ask(control: &str, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
    let address = address(control);
    let reach =
        || format!("no control port at {address}; `highwater up --control {address}` has one");
    let resolved = address.to_socket_addrs().with_context(reach)?.next().with_context(reach)?;
    let mut stream = TcpStream::connect_timeout(&resolved, CONNECT_PATIENCE).with_context(reach)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.set_write_timeout(Some(CONNECT_PATIENCE))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let mut answer = Vec::new();
    stream
        .take(MOST_ANSWER_BYTES)
        .read_to_end(&mut answer)
        .with_context(|| format!("{address} gave no whole answer"))?;
    understand(&address, &answer)
}

fn understand(address: &str, answer: &[u8]) -> Result<Value> {
    let text = std::str::from_utf8(answer).unwrap_or_default();
    let stranger = || format!("what answers at {address} is no control port");
    let (head, body) = text.split_once("\r\n\r\n").with_context(stranger)?;
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let status = status.with_context(stranger)?;
    let value: Value = serde_json::from_str(body).with_context(stranger)?;
    if status == "200" {
        return Ok(value);
    }
    let error = value["error"].as_str();
    ensure!(error.is_some(), stranger());
    bail!("{}", error.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_its_own_words_and_a_stranger_is_called_one() {
        let answer = b"HTTP/1.1 409 Conflict\r\nx: y\r\n\r\n{\"error\": \"node 2 is down\"}";
        let said = understand("here:1", answer).expect_err("refused").to_string();
        assert_eq!(said, "node 2 is down");
        assert_eq!(understand("here:1", b"HTTP/1.1 200 OK\r\n\r\n[1]").expect("fine")[0], 1);
        for stranger in
            [&b""[..], b"\xff\xff", b"HTTP/1.1 200 OK\r\n\r\nhello", b"HTTP/1.1 2\r\n\r\n{}"]
        {
            let said = understand("here:1", stranger).expect_err("a stranger").to_string();
            assert!(said.contains("no control port"), "{said}");
        }
    }
}
