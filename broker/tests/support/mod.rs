//! What the network tests share: a server on a loopback port with a service made for the test, and a
//! client that speaks in raw bytes.

#![allow(dead_code)]

use std::sync::Arc;
use std::time::Duration;

use broker::network::{
    BoundListeners, ListenerAddress, NetworkServer, NetworkSettings, Reply, RequestContext,
    RequestService,
};
use bytes::Bytes;
use protocol::frame::{encode_request, request_header};
use protocol::messages::{HeartbeatRequest, HeartbeatResponse, RequestBody, ResponseBody};
use protocol::{ApiKey, join_parts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than any of these tests may take; a test that hangs fails here.
pub const LONG: Duration = Duration::from_secs(60);

/// A service made of one function. Every API but DescribeCluster is served.
pub struct Service<F>(pub F);

impl<F> RequestService for Service<F>
where
    F: Fn(RequestContext, RequestBody, Reply) + Send + Sync + 'static,
{
    fn serves(&self, _listener: &str, api_key: ApiKey, _api_version: i16) -> bool {
        api_key != ApiKey::DescribeCluster
    }

    fn call(&self, context: RequestContext, body: RequestBody, reply: Reply) {
        (self.0)(context, body, reply);
    }
}

/// Answers heartbeats with their generation id as throttle time, so that answers can be told apart.
pub fn echo(body: &RequestBody) -> ResponseBody {
    let RequestBody::Heartbeat(request) = body else { panic!("unexpected {:?}", body.api_key()) };
    ResponseBody::Heartbeat(HeartbeatResponse {
        throttle_time_ms: request.generation_id,
        ..Default::default()
    })
}

/// A service that answers every request at once.
pub fn echoing() -> Arc<dyn RequestService> {
    Arc::new(Service(|_: RequestContext, body: RequestBody, reply: Reply| {
        let answer = echo(&body);
        reply.send(answer);
    }))
}

/// A listener of this name on any free loopback port.
pub fn loopback(name: &str) -> ListenerAddress {
    ListenerAddress {
        name: name.to_owned(),
        host: "127.0.0.1".to_owned(),
        port: 0,
        is_protected: false,
    }
}

/// Starts a server with one listener.
pub async fn start(service: Arc<dyn RequestService>, settings: NetworkSettings) -> NetworkServer {
    let bound =
        BoundListeners::bind(&[loopback("PLAINTEXT")], settings).await.expect("a free port");
    bound.serve(service)
}

/// A heartbeat in its frame; `number` is correlation id and generation.
pub fn heartbeat(number: i32) -> Bytes {
    let body = RequestBody::Heartbeat(HeartbeatRequest {
        group_id: "g".to_owned(),
        member_id: "m".to_owned(),
        generation_id: number,
        ..Default::default()
    });
    let header = request_header(ApiKey::Heartbeat, 3, number, Some("test"));
    join_parts(encode_request(header, &body).expect("writable")).expect("in memory")
}

/// A frame around these bytes.
pub fn framed(content: &[u8]) -> Vec<u8> {
    let mut frame = (content.len() as i32).to_be_bytes().to_vec();
    frame.extend_from_slice(content);
    frame
}

/// A request header of version 1 (a client id, no tags) for any key and version, in a frame with `body`.
pub fn raw_request(api_key: i16, api_version: i16, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let mut content = api_key.to_be_bytes().to_vec();
    content.extend(api_version.to_be_bytes());
    content.extend(correlation_id.to_be_bytes());
    content.extend(4i16.to_be_bytes());
    content.extend(b"test");
    content.extend(body);
    framed(&content)
}

/// A client that sends and receives bytes.
pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    pub async fn connect(server: &NetworkServer) -> Client {
        Client::connect_to(server, "PLAINTEXT").await
    }

    pub async fn connect_to(server: &NetworkServer, listener: &str) -> Client {
        let address = server.address(listener).expect("the listener");
        Client { stream: TcpStream::connect(address).await.expect("connected") }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("sent");
    }

    /// The next frame without its size; `None` when the server closed the connection.
    pub async fn receive(&mut self) -> Option<Vec<u8>> {
        tokio::time::timeout(LONG, async {
            let size = self.stream.read_i32().await.ok()?;
            let mut frame = vec![0; size as usize];
            self.stream.read_exact(&mut frame).await.expect("a whole frame");
            Some(frame)
        })
        .await
        .expect("the server answers or closes")
    }

    /// The correlation id of the next answer.
    pub async fn receive_id(&mut self) -> i32 {
        let frame = self.receive().await.expect("an answer");
        i32::from_be_bytes(frame[..4].try_into().expect("four bytes"))
    }

    /// Whether the server closes without sending another byte.
    pub async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(LONG, self.stream.read_to_end(&mut rest)).await;
        match read.expect("the server closes") {
            Ok(bytes) => bytes == 0,
            Err(_) => rest.is_empty(),
        }
    }
}
