//! The bare loop to compare with: a process that sends a file over every connection, again and again, and does
//! nothing else. A client asks by four bytes for so many loops over the file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The argument by which this program is the server.
pub const SERVE: &str = "serve-file";

/// The server as a process of its own, whose CPU time can be told.
pub struct Server {
    process: Child,
    pub address: String,
}

impl Server {
    pub fn start(file: &Path, bytes: u64, chunk: usize) -> Result<Server> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(SERVE)
            .arg(file)
            .args([bytes.to_string(), chunk.to_string()])
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

/// Serves until it is killed: file, its bytes, and bytes of each call.
pub fn serve(arguments: &[String]) -> Result<()> {
    let [path, bytes, chunk] = arguments else { anyhow::bail!("{SERVE} FILE BYTES CHUNK") };
    let (bytes, chunk) = (bytes.parse::<u64>()?, chunk.parse::<usize>()?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, file) = (stream?, File::open(path)?);
        std::thread::spawn(move || {
            // The reader goes away in the middle of something; that is how it ends.
            let _ = answer(&stream, &file, bytes, chunk);
        });
    }
    Ok(())
}

fn answer(mut stream: &TcpStream, file: &File, bytes: u64, chunk: usize) -> Result<()> {
    let mut asked = [0; 4];
    while stream.read_exact(&mut asked).is_ok() {
        for _ in 0..u32::from_be_bytes(asked) {
            let mut position = 0;
            while position < bytes {
                let most = chunk.min((bytes - position) as usize);
                let sent = rustix::fs::sendfile(stream, file, Some(&mut position), most)?;
                ensure!(sent > 0, "the file is shorter than it was");
            }
        }
    }
    Ok(())
}
