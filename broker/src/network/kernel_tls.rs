//! TLS in the kernel: once client and listener have agreed on keys, the kernel is given them and encrypts what
//! is written to the socket. Records go out by `sendfile` then, as they do without TLS, and never come
//! into this process.
//!
//! The kernel must take the cipher suite for both directions, since whoever has decrypted a record
//! must decrypt the next one. Suites that it does not take, and kernels without TLS, leave the work to
//! rustls.
//!
//! Records that hold no data (the alert that says goodbye, other keys for TLS 1.3) end a connection: kernels before
//! 6.14 have no way to go on with other keys. Java's clients ask for them after 128 GiB, and connect again.

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream as StdTcpStream};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use nix::libc;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{TcpTlsRx, TcpTlsTx, TcpUlp, TlsCryptoInfo};
use rustix::net::RecvFlags;
use rustls::{CipherSuite, ConnectionTrafficSecrets, ProtocolVersion, ServerConnection};
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::record_reader::RecordReader;

/// What may be encrypted with one key of AES-GCM: 2^24 records of 16 KiB (RFC 8446, section 5.5).
const MAX_BYTES_PER_KEY: u64 = 1 << 38;

/// What a record costs beside its data, at most, and the least that an answer counts for.
const RECORD_OVERHEAD_BYTES: u64 = 64;

const VERSIONS: [ProtocolVersion; 2] = [ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3];

/// How records are encrypted, as far as the kernel knows ciphers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    Chacha20Poly1305,
}

impl Cipher {
    const ALL: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305];

    /// `None` for one that the kernel never takes.
    fn of(suite: CipherSuite) -> Option<Cipher> {
        match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Some(Cipher::Aes128Gcm),
            CipherSuite::TLS13_AES_256_GCM_SHA384
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Some(Cipher::Aes256Gcm),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => {
                Some(Cipher::Chacha20Poly1305)
            }
            _ => None,
        }
    }
}

/// What the kernel can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelTls {
    taken: Vec<(ProtocolVersion, Cipher)>,
}

impl KernelTls {
    /// Asks the kernel, with connections of this process to itself.
    ///
    /// # Errors
    /// Why it can do nothing, for the log.
    pub fn probe() -> Result<Self, String> {
        let told = |what: &str, error: io::Error| format!("{what}: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.map_err(|error| told("no connection to try it with", error))?;
        let mut taken = Vec::new();
        let mut refusal = None;
        for version in VERSIONS {
            for cipher in Cipher::ALL {
                let pair = connection_to_itself(&listener);
                let (socket, _accepted) =
                    pair.map_err(|error| told("no connection to try it with", error))?;
                announce(&socket)
                    .map_err(|error| told("the kernel has no TLS (its module is tls)", error))?;
                match takes(&socket, version, cipher) {
                    Ok(()) => taken.push((version, cipher)),
                    Err(error) => refusal = Some(told("the kernel takes no keys", error)),
                }
            }
        }
        match refusal {
            Some(refusal) if taken.is_empty() => Err(refusal),
            _ => Ok(Self { taken }),
        }
    }

    fn takes(&self, connection: &ServerConnection) -> bool {
        let suite = connection.negotiated_cipher_suite();
        let cipher = suite.and_then(|suite| Cipher::of(suite.suite()));
        let agreed = connection.protocol_version().zip(cipher);
        agreed.is_some_and(|agreed| self.taken.contains(&agreed))
    }

    /// Gives the kernel the keys that were agreed on; or gives the connection back as it was.
    pub(super) async fn take_over(
        &self,
        mut stream: TlsStream<RecordReader>,
    ) -> io::Result<Result<KernelStream, TlsStream<RecordReader>>> {
        let (reader, connection) = stream.get_ref();
        if !self.takes(connection) || connection.wants_write() || announce(reader.socket()).is_err()
        {
            stream.get_mut().0.set_free();
            return Ok(Err(stream));
        }
        let (reader, mut connection) = stream.into_inner();
        let version = connection.protocol_version().unwrap_or(ProtocolVersion::TLSv1_3);
        let socket = reader.finish_record(&mut connection).await?;
        let ahead = decrypted(&mut connection)?;
        let secrets = connection.dangerous_extract_secrets().map_err(io::Error::other)?;
        let unknown = || io::Error::other("keys of a kind that the kernel does not take");
        let keys = |secrets: (u64, ConnectionTrafficSecrets)| {
            crypto_info(version, secrets.0, &secrets.1).ok_or_else(unknown)
        };
        setsockopt(&socket, TcpTlsTx, &keys(secrets.tx)?)?;
        setsockopt(&socket, TcpTlsRx, &keys(secrets.rx)?)?;
        Ok(Ok(KernelStream { socket, ahead, bytes_left: MAX_BYTES_PER_KEY }))
    }
}

impl std::fmt::Display for KernelTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (version, cipher)) in self.taken.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{} {cipher:?}", version.as_str().unwrap_or("TLS"))?;
        }
        Ok(())
    }
}

/// Makes a socket one that keys can be given to. Until they are, it is as it was.
fn announce(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, TcpUlp::default(), b"tls")?)
}

fn connection_to_itself(listener: &TcpListener) -> io::Result<(StdTcpStream, StdTcpStream)> {
    let socket = StdTcpStream::connect(listener.local_addr()?)?;
    Ok((socket, listener.accept()?.0))
}

/// Whether the kernel takes keys of this kind, both ways.
fn takes(socket: &impl AsFd, version: ProtocolVersion, cipher: Cipher) -> io::Result<()> {
    let (secret, iv) = ([0; 32], [0; 12]);
    let keys = kernel_keys(version, cipher, &secret[..cipher.key_bytes()], &iv, 0);
    let keys = keys.ok_or_else(|| io::Error::from(ErrorKind::Unsupported))?;
    setsockopt(socket, TcpTlsTx, &keys)?;
    Ok(setsockopt(socket, TcpTlsRx, &keys)?)
}

/// What was decrypted already.
fn decrypted(connection: &mut ServerConnection) -> io::Result<Bytes> {
    let mut ahead = Vec::new();
    match connection.reader().read_to_end(&mut ahead) {
        Ok(_) => Ok(ahead.into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(ahead.into()),
        Err(error) => Err(error),
    }
}

fn crypto_info(
    version: ProtocolVersion,
    sequence: u64,
    secrets: &ConnectionTrafficSecrets,
) -> Option<TlsCryptoInfo> {
    let (cipher, key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (Cipher::Chacha20Poly1305, key, iv)
        }
        _ => return None,
    };
    kernel_keys(version, cipher, key.as_ref(), iv.as_ref(), sequence)
}

impl Cipher {
    fn key_bytes(self) -> usize {
        match self {
            Cipher::Aes128Gcm => 16,
            Cipher::Aes256Gcm | Cipher::Chacha20Poly1305 => 32,
        }
    }
}

/// Keys in the kernel's form; `None` when the lengths are not those of the cipher. Of a nonce of
/// AES-GCM the kernel calls the first four bytes salt.
fn kernel_keys(
    version: ProtocolVersion,
    cipher: Cipher,
    key: &[u8],
    iv: &[u8],
    sequence: u64,
) -> Option<TlsCryptoInfo> {
    let info = |cipher_type| libc::tls_crypto_info { version: version.into(), cipher_type };
    let rec_seq = sequence.to_be_bytes();
    let (salt, rest) = iv.split_first_chunk::<4>()?;
    Some(match cipher {
        Cipher::Aes128Gcm => TlsCryptoInfo::Aes128Gcm(libc::tls12_crypto_info_aes_gcm_128 {
            info: info(libc::TLS_CIPHER_AES_GCM_128),
            iv: rest.try_into().ok()?,
            key: key.try_into().ok()?,
            salt: *salt,
            rec_seq,
        }),
        Cipher::Aes256Gcm => TlsCryptoInfo::Aes256Gcm(libc::tls12_crypto_info_aes_gcm_256 {
            info: info(libc::TLS_CIPHER_AES_GCM_256),
            iv: rest.try_into().ok()?,
            key: key.try_into().ok()?,
            salt: *salt,
            rec_seq,
        }),
        Cipher::Chacha20Poly1305 => {
            TlsCryptoInfo::Chacha20Poly1305(libc::tls12_crypto_info_chacha20_poly1305 {
                info: info(libc::TLS_CIPHER_CHACHA20_POLY1305),
                iv: iv.try_into().ok()?,
                key: key.try_into().ok()?,
                salt: [],
                rec_seq,
            })
        }
    })
}

/// A connection under TLS whose bytes the kernel encrypts and decrypts.
#[derive(Debug)]
pub(super) struct KernelStream {
    pub(super) socket: TcpStream,
    /// What the client sent before the kernel had the keys.
    ahead: Bytes,
    /// What may still be encrypted with these keys.
    bytes_left: u64,
}

impl KernelStream {
    /// Takes note of an answer of so many bytes.
    pub(super) fn note_sent(&mut self, bytes: u64) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes + RECORD_OVERHEAD_BYTES);
    }

    /// Whether the keys have encrypted all that they should.
    pub(super) fn is_worn_out(&self) -> bool {
        self.bytes_left == 0
    }
}

impl AsyncRead for KernelStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.ahead.is_empty() {
            let length = this.ahead.len().min(buffer.remaining());
            buffer.put_slice(&this.ahead[..length]);
            this.ahead.advance(length);
            return Poll::Ready(Ok(()));
        }
        // Not by the socket's own `poll_read`: it takes a short read for an empty socket, and the kernel reads
        // no further than a record that holds no data.
        loop {
            ready!(this.socket.poll_read_ready(context))?;
            let read = this.socket.try_io(Interest::READABLE, || {
                let room = buffer.initialize_unfilled();
                let (read, _) = rustix::net::recv(&this.socket, &mut *room, RecvFlags::empty())?;
                Ok(read)
            });
            match read {
                Ok(read) => buffer.advance(read),
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // A record that holds no data: the client says goodbye, or wants other keys.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            return Poll::Ready(Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_to_the_kernel_in_its_form() {
        let iv: [u8; 12] = std::array::from_fn(|at| at as u8);
        let keys = kernel_keys(ProtocolVersion::TLSv1_2, Cipher::Aes128Gcm, &[7; 16], &iv, 0x0102);
        let Some(TlsCryptoInfo::Aes128Gcm(keys)) = keys else { panic!("{keys:?}") };
        assert_eq!((keys.info.version, keys.info.cipher_type), (0x0303, 51));
        assert_eq!((keys.salt, keys.iv), ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11]));
        assert_eq!((keys.key, keys.rec_seq), ([7; 16], [0, 0, 0, 0, 0, 0, 1, 2]));
        let keys =
            kernel_keys(ProtocolVersion::TLSv1_3, Cipher::Chacha20Poly1305, &[9; 32], &iv, 1);
        let Some(TlsCryptoInfo::Chacha20Poly1305(keys)) = keys else { panic!("{keys:?}") };
        assert_eq!((keys.info.version, keys.info.cipher_type), (0x0304, 54));
        assert_eq!((keys.iv, keys.key), (iv, [9; 32]));
        let short = kernel_keys(ProtocolVersion::TLSv1_3, Cipher::Aes256Gcm, &[0; 16], &iv, 0);
        assert!(short.is_none(), "a key of another length");
    }
}
