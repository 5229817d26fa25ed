//! Sends an answer's parts under TLS. Records must come into this process to be encrypted: they are read
//! a piece at a time, so that a large answer to a slow client holds one piece and no more.
//!
//! Rule F08 is as for [`super::writer`]: the size of the frame was promised, so a region that cannot be
//! read whole closes the connection, and the disk is to blame.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use protocol::{FileRegion, Part};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::writer::{SendError, Sent};

/// Records read at once: a few TLS records of 16 KiB.
const PIECE_BYTES: usize = 128 * 1024;

/// Sends all parts. `patience` is how long the client may take nothing at all.
///
/// `sent` counts what was encrypted, before it grew by that, even when this fails.
pub(super) async fn send_encrypted(
    stream: &mut (impl AsyncWrite + Unpin),
    parts: Vec<Part>,
    patience: Duration,
    sent: &mut Sent,
) -> Result<(), SendError> {
    let mut scratch = Vec::new();
    for part in &parts {
        match part {
            Part::Bytes(bytes) => write(stream, bytes, patience, sent).await?,
            Part::File(region) => {
                let mut done = 0;
                while done < region.len() {
                    let piece = read_piece(region, done, &mut scratch)
                        .map_err(|error| SendError::Disk { region: Arc::clone(region), error })?;
                    done += piece.len();
                    write(stream, piece, patience, sent).await?;
                }
            }
        }
    }
    // What was written may still be in the TLS layer's own buffer.
    match tokio::time::timeout(patience, stream.flush()).await {
        Ok(flushed) => flushed.map_err(SendError::Client),
        Err(_) => Err(SendError::Stalled(patience)),
    }
}

async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    patience: Duration,
    sent: &mut Sent,
) -> Result<(), SendError> {
    while !bytes.is_empty() {
        let written = match tokio::time::timeout(patience, stream.write(bytes)).await {
            Ok(Ok(0)) => return Err(SendError::Client(io::Error::from(ErrorKind::WriteZero))),
            Ok(written) => written.map_err(SendError::Client)?,
            Err(_) => return Err(SendError::Stalled(patience)),
        };
        sent.bytes += written as u64;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// The bytes of a region from `done` on, as many as are read at once.
fn read_piece<'a>(
    region: &Arc<dyn FileRegion>,
    done: usize,
    scratch: &'a mut Vec<u8>,
) -> io::Result<&'a [u8]> {
    let Some((file, start)) = region.file() else {
        let bytes = region.read()?;
        if bytes.len() != region.len() {
            return Err(io::Error::from(ErrorKind::UnexpectedEof));
        }
        scratch.clear();
        scratch.extend_from_slice(&bytes[done..]);
        return Ok(scratch);
    };
    scratch.resize((region.len() - done).min(PIECE_BYTES), 0);
    std::os::unix::fs::FileExt::read_exact_at(file, scratch, start + done as u64)?;
    Ok(scratch)
}
