//! The proxy between plain sockets: what passes, waits, is lost, and what a lost end leaves behind.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use protocol::frame::{encode_request, request_header};
use protocol::messages::FetchRequest;
use protocol::{ApiKey, RequestBody};

use super::*;

const FETCH: Message = Message::Request(ApiKey::Fetch);
const DATA_FROM_2: Way = Way { from: Some(2), to: Some(1), plane: Some(Plane::Data) };
/// What must come comes within this; what must not come is not waited for so long.
const PATIENCE: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_millis(60);

fn fetch(correlation_id: i32) -> Vec<u8> {
    let header = request_header(ApiKey::Fetch, 17, correlation_id, Some("broker-2-fetcher-0"));
    let body = RequestBody::Fetch(FetchRequest::default());
    protocol::join_parts(encode_request(header, &body).expect("encoded")).expect("bytes").to_vec()
}

fn answer(correlation_id: i32) -> Vec<u8> {
    [&8i32.to_be_bytes()[..], &correlation_id.to_be_bytes(), b"body"].concat()
}

/// Broker 1 behind the proxy, and a follower's way to it.
struct Pair {
    proxy: Proxy,
    broker: TcpListener,
    entrance: SocketAddr,
}

impl Pair {
    fn new() -> Pair {
        let broker = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let proxy = Proxy::start().expect("a proxy");
        let address = broker.local_addr().expect("an address").to_string();
        let entrance = proxy.to_broker(1, &address).expect("an entrance");
        Pair { proxy, broker, entrance }
    }

    fn follower(&self) -> TcpStream {
        let stream = TcpStream::connect(self.entrance).expect("the entrance");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
    }

    /// The broker's end; it has to be dialed by now.
    fn accepted(&self) -> TcpStream {
        let (stream, _) = self.broker.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
    }

    fn faults(&self) -> &Faults {
        self.proxy.faults()
    }

    fn until(&self, reached: impl Fn(&Faults) -> bool) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while !reached(self.faults()) {
            assert!(std::time::Instant::now() < deadline, "{:?}", self.faults().list());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn expect(stream: &mut TcpStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    stream.read_exact(&mut read).expect("bytes");
    assert_eq!(read, bytes);
}

fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(SILENCE)).expect("a socket");
    let read = stream.read(&mut [0]);
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

fn has_ended(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Ok(0) | Err(_))
}

#[test]
fn frames_pass_as_they_are_in_both_directions_and_the_end_is_passed_on() {
    let pair = Pair::new();
    let mut follower = pair.follower();
    follower.write_all(&fetch(1)).expect("sent");
    let mut broker = pair.accepted();
    expect(&mut broker, &fetch(1));
    broker.write_all(&answer(1)).expect("sent");
    expect(&mut follower, &answer(1));
    assert_eq!(pair.faults().connections(), BTreeMap::from([((Some(2), 1, Plane::Data), 1)]));
    drop(follower);
    assert!(has_ended(&mut broker));
    drop(broker);
    pair.until(|faults| faults.connections().is_empty());
}

#[test]
fn a_held_request_keeps_back_what_follows_on_its_connection_and_goes_on_in_order() {
    let pair = Pair::new();
    let hold = pair.faults().add(DATA_FROM_2, Harm::Hold(FETCH)).expect("a fault");
    let mut follower = pair.follower();
    follower.write_all(&[fetch(1), fetch(2)].concat()).expect("sent");
    let mut broker = pair.accepted();
    pair.until(|faults| faults.get(hold).is_some_and(|fault| fault.held == 2));
    assert!(is_silent(&mut broker));
    let ended = pair.faults().end(hold).expect("it was in force");
    assert_eq!((ended.held, ended.met), (2, 2));
    expect(&mut broker, &[fetch(1), fetch(2)].concat());
}

#[test]
fn a_held_request_of_a_dialer_that_died_still_arrives() {
    let pair = Pair::new();
    let hold = pair.faults().add(DATA_FROM_2, Harm::Hold(FETCH)).expect("a fault");
    let mut follower = pair.follower();
    follower.write_all(&fetch(1)).expect("sent");
    let mut broker = pair.accepted();
    pair.until(|faults| faults.get(hold).is_some_and(|fault| fault.held == 1));
    drop(follower);
    assert!(is_silent(&mut broker));
    pair.faults().end(hold);
    expect(&mut broker, &fetch(1));
    assert!(has_ended(&mut broker));
}

#[test]
fn what_is_held_and_lost_breaks_its_connection_at_both_ends() {
    let pair = Pair::new();
    let hold = pair.faults().add(DATA_FROM_2, Harm::Hold(FETCH)).expect("a fault");
    let mut follower = pair.follower();
    follower.write_all(&fetch(1)).expect("sent");
    let mut broker = pair.accepted();
    pair.until(|faults| faults.get(hold).is_some_and(|fault| fault.held == 1));
    pair.faults().end_and_lose(hold);
    assert!(has_ended(&mut follower) && has_ended(&mut broker));
    let drop = pair.faults().add(DATA_FROM_2, Harm::Drop(FETCH)).expect("a fault");
    let mut follower = pair.follower();
    follower.write_all(&fetch(2)).expect("sent");
    assert!(has_ended(&mut follower));
    assert_eq!(pair.faults().get(drop).map(|fault| fault.met), Some(1));
}

#[test]
fn an_answer_is_held_by_the_name_of_its_request() {
    let pair = Pair::new();
    let way = Way { from: Some(1), to: Some(2), plane: None };
    let message = Message::Answer(ApiKey::Fetch);
    let hold = pair.faults().add(way, Harm::Hold(message)).expect("a fault");
    let mut follower = pair.follower();
    follower.write_all(&fetch(1)).expect("sent");
    let mut broker = pair.accepted();
    expect(&mut broker, &fetch(1));
    broker.write_all(&answer(1)).expect("sent");
    pair.until(|faults| faults.get(hold).is_some_and(|fault| fault.held == 1));
    assert!(is_silent(&mut follower));
    pair.faults().end(hold);
    expect(&mut follower, &answer(1));
}

#[test]
fn a_cut_of_one_way_loses_nothing_when_it_is_healed_and_new_connections_wait_for_that() {
    let pair = Pair::new();
    let mut follower = pair.follower();
    follower.write_all(&fetch(1)).expect("sent");
    let mut broker = pair.accepted();
    expect(&mut broker, &fetch(1));
    let cut = pair.faults().add(Way::between(1, 2), Harm::Cut).expect("a fault");
    broker.write_all(&answer(1)).expect("sent");
    assert!(is_silent(&mut follower));
    follower.write_all(&fetch(2)).expect("sent");
    expect(&mut broker, &fetch(2));
    let mut second = pair.follower();
    second.write_all(&fetch(3)).expect("sent");
    pair.broker.set_nonblocking(true).expect("a socket");
    std::thread::sleep(SILENCE);
    assert!(pair.broker.accept().is_err(), "no connection comes through");
    pair.broker.set_nonblocking(false).expect("a socket");
    pair.faults().end(cut);
    expect(&mut follower, &answer(1));
    expect(&mut pair.accepted(), &fetch(3));
}

#[test]
fn who_gave_up_while_the_way_was_cut_is_not_dialed_for() {
    let pair = Pair::new();
    pair.faults().cut_both_ways(1, 2, None).expect("faults");
    let mut follower = pair.follower();
    follower.write_all(&fetch(1)).expect("sent");
    pair.until(|faults| faults.connections().len() == 1);
    drop(follower);
    pair.until(|faults| faults.connections().is_empty());
    assert_eq!(pair.faults().heal(|fault| fault.harm == Harm::Cut), 2);
    let mut follower = pair.follower();
    follower.write_all(&fetch(2)).expect("sent");
    expect(&mut pair.accepted(), &fetch(2));
}

#[test]
fn a_slow_link_takes_at_least_its_latency_and_its_rate() {
    let pair = Pair::new();
    let latency = Duration::from_millis(80);
    let harm = Harm::Slow { latency, bytes_per_second: Some(fetch(1).len() as u64 * 10) };
    pair.faults().add(DATA_FROM_2, harm).expect("a fault");
    let mut follower = pair.follower();
    let begun = std::time::Instant::now();
    follower.write_all(&[fetch(1), fetch(2)].concat()).expect("sent");
    expect(&mut pair.accepted(), &[fetch(1), fetch(2)].concat());
    let took = begun.elapsed();
    assert!(took >= latency + Duration::from_millis(90), "only {took:?}");
}

#[test]
fn what_is_no_kafka_frame_and_a_target_that_is_gone_end_the_connection() {
    let pair = Pair::new();
    for bytes in [&b"\x16\x03\x01\x02\x00\x01"[..], &[0xff; 8], b"GET / HTTP/1.1\r\n"] {
        let mut stranger = pair.follower();
        stranger.write_all(bytes).expect("sent");
        assert!(has_ended(&mut stranger));
    }
    let (entrance, proxy) = (pair.entrance, pair.proxy);
    drop(pair.broker);
    let mut follower = TcpStream::connect(entrance).expect("the entrance");
    follower.set_read_timeout(Some(PATIENCE)).expect("a socket");
    follower.write_all(&fetch(1)).expect("sent");
    assert!(has_ended(&mut follower));
    let mut follower = TcpStream::connect(entrance).expect("the entrance");
    follower.set_read_timeout(Some(PATIENCE)).expect("a socket");
    drop(proxy);
    assert!(has_ended(&mut follower), "a lost proxy ends its connections");
}

#[test]
fn faults_that_no_proxy_can_make_are_refused_with_the_reason() {
    let proxy = Proxy::start().expect("a proxy");
    let refused =
        |way: Way, harm| proxy.faults().add(way, harm).expect_err("it cannot").to_string();
    let control = Way { plane: Some(Plane::Control), ..Way::default() };
    let answers = Harm::Hold(Message::Answer(ApiKey::AlterPartition));
    assert!(refused(control, answers).contains("controllers"));
    assert!(refused(Way::default(), Harm::Drop(Message::Raft)).contains("raft"));
    let harm = Harm::Slow { latency: Duration::from_secs(61), bytes_per_second: None };
    assert!(refused(Way::default(), harm).contains("60s"));
    assert!(proxy.faults().list().is_empty());
}
