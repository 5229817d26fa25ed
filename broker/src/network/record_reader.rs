//! Reads a socket one TLS record at a time, as long as it is not certain who decrypts: bytes that were taken
//! from the socket cannot be given to the kernel any more, so nothing may be taken beyond the record in hand.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Type, version and length of a record.
const HEADER_BYTES: usize = 5;

/// A socket under TLS.
#[derive(Debug)]
pub(super) struct RecordReader {
    socket: TcpStream,
    /// `None` once it reads as much as there is.
    place: Option<Place>,
}

/// Where in the stream of records the next byte stands.
#[derive(Debug, Default)]
struct Place {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that were read; all of them within a record's body.
    header_read: usize,
    body_left: usize,
}

impl Place {
    /// Whether the next byte begins a record.
    fn is_between_records(&self) -> bool {
        self.header_read == 0
    }

    /// How much may be read at once.
    fn wanted(&self) -> usize {
        if self.header_read < HEADER_BYTES {
            HEADER_BYTES - self.header_read
        } else {
            self.body_left
        }
    }

    /// Takes note of what was read, no more than wanted.
    fn advance(&mut self, bytes: &[u8]) {
        if self.header_read < HEADER_BYTES {
            self.header[self.header_read..][..bytes.len()].copy_from_slice(bytes);
            self.header_read += bytes.len();
            if self.header_read == HEADER_BYTES {
                let [.., high, low] = self.header;
                self.body_left = usize::from(u16::from_be_bytes([high, low]));
            }
        } else {
            self.body_left -= bytes.len();
        }
        if self.header_read == HEADER_BYTES && self.body_left == 0 {
            self.header_read = 0;
        }
    }
}

impl RecordReader {
    /// A socket that reads as much as there is.
    pub(super) fn free(socket: TcpStream) -> Self {
        Self { socket, place: None }
    }

    /// A socket that stands before a record, and reads no further than its end.
    pub(super) fn by_records(socket: TcpStream) -> Self {
        Self { socket, place: Some(Place::default()) }
    }

    /// From now on it reads as much as there is.
    pub(super) fn set_free(&mut self) {
        self.place = None;
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Reads the rest of a record that `connection` has the beginning of; gives the socket back, which then
    /// stands before a record.
    pub(super) async fn finish_record(
        mut self,
        connection: &mut ServerConnection,
    ) -> io::Result<TcpStream> {
        let mut piece = [0; 4096];
        while self.place.as_ref().is_some_and(|place| !place.is_between_records()) {
            let read = self.read(&mut piece).await?;
            if read == 0 {
                return Err(io::Error::from(ErrorKind::UnexpectedEof));
            }
            let mut rest = &piece[..read];
            while !rest.is_empty() {
                connection.read_tls(&mut rest)?;
            }
            connection.process_new_packets().map_err(io::Error::other)?;
        }
        Ok(self.socket)
    }
}

impl AsyncRead for RecordReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let socket = Pin::new(&mut this.socket);
        let Some(place) = &mut this.place else { return socket.poll_read(context, buffer) };
        let wanted = place.wanted().min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(wanted));
        ready!(socket.poll_read(context, &mut part))?;
        place.advance(part.filled());
        let read = part.filled().len();
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordReader {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    /// A record of any type with so many bytes in it.
    fn record(body: u16) -> Vec<u8> {
        let mut bytes = vec![23, 3, 3];
        bytes.extend(body.to_be_bytes());
        bytes.extend((0..body).map(|at| at as u8));
        bytes
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.expect("connected"), accepted.expect("accepted").0)
    }

    #[tokio::test]
    async fn no_byte_behind_the_record_in_hand_is_taken() {
        let (mut client, socket) = pair().await;
        let records = [record(3), record(0), record(5000), record(0xffff)];
        client.write_all(&records.concat()[..]).await.expect("sent");
        let mut reader = RecordReader::by_records(socket);
        for expected in &records {
            let mut got = Vec::new();
            while got.is_empty() || !reader.place.as_ref().expect("by records").is_between_records()
            {
                let mut piece = [0; 100_000];
                let read = reader.read(&mut piece).await.expect("read");
                got.extend_from_slice(&piece[..read]);
            }
            assert!(&got == expected, "a record of {} bytes", expected.len());
        }
        client.write_all(&[record(3), record(4)].concat()).await.expect("sent");
        client.shutdown().await.expect("ended");
        reader.set_free();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).await.expect("read");
        assert_eq!(rest, [record(3), record(4)].concat());
    }
}
