//! The bare loop to compare with: a process that sends a file over every connection, piece by piece, and does
//! nothing else. A client asks by four bytes for so many bytes more; behind the end comes the begin again.
//! The sockets have the send buffer of the node's, without which the two could not be compared.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use broker::network::NetworkSettings;

/// The argument by which this program is the server.
pub const SERVE: &str = "serve-file";

/// The server as a process of its own, whose CPU time can be told.
pub struct Server {
    process: Child,
    pub address: String,
}

impl Server {
    pub fn start(file: &Path, bytes: u64) -> Result<Server> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(SERVE)
            .arg(file)
            .args([
                bytes.to_string(),
                NetworkSettings::default().send_buffer_bytes.unwrap_or(0).to_string(),
            ])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("its output")?).read_line(&mut line)?;
        Ok(Server { process, address: line.trim().to_owned() })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only when it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves until it is killed: file, its bytes, and bytes of the send buffer, 0 for the system's.
pub fn serve(arguments: &[String]) -> Result<()> {
    let [path, bytes, buffer] = arguments else { anyhow::bail!("{SERVE} FILE BYTES BUFFER") };
    let (bytes, buffer) = (bytes.parse::<u64>()?, buffer.parse::<usize>()?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, file) = (stream?, File::open(path)?);
        stream.set_nodelay(true)?;
        if buffer > 0 {
            rustix::net::sockopt::set_socket_send_buffer_size(&stream, buffer)?;
        }
        std::thread::spawn(move || {
            // The reader goes away in the middle of something; that is how it ends.
            let _ = answer(&stream, &file, bytes);
        });
    }
    Ok(())
}

fn answer(mut stream: &TcpStream, file: &File, bytes: u64) -> Result<()> {
    let mut asked = [0; 4];
    let mut position = 0;
    while stream.read_exact(&mut asked).is_ok() {
        let mut left = u64::from(u32::from_be_bytes(asked));
        while left > 0 {
            if position == bytes {
                position = 0;
            }
            let most = left.min(bytes - position);
            let sent =
                rustix::fs::sendfile(stream, file, Some(&mut position), usize::try_from(most)?)?;
            ensure!(sent > 0, "the file is shorter than it was");
            left -= sent as u64;
        }
    }
    Ok(())
}
