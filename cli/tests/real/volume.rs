//! A small volume of its own for a folder, to be filled up or made read-only. Needs the right to mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const VOLUME_BYTES: usize = 16 << 20;

/// A mounted tmpfs, gone when dropped.
pub struct Volume {
    path: PathBuf,
}

impl Volume {
    /// `None`, with a word on stderr, where this process may not mount.
    pub fn mount(path: &Path) -> Option<Volume> {
        fs::create_dir_all(path).expect("a folder to mount on");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={VOLUME_BYTES}"), "none"])
            .arg(path)
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Volume { path: path.to_path_buf() });
        }
        eprintln!("skipped: this process may not mount a volume");
        None
    }

    /// Leaves no room on it.
    pub fn fill(&self) {
        let chunk = vec![7; 64 << 10];
        let mut file = fs::File::create(self.path.join("ballast")).expect("a file on the volume");
        while std::io::Write::write_all(&mut file, &chunk).is_ok() {}
        let small = [7; 512];
        while std::io::Write::write_all(&mut file, &small).is_ok() {}
    }

    /// Ends [`Volume::fill`].
    pub fn empty(&self) {
        fs::remove_file(self.path.join("ballast")).expect("the ballast goes");
    }

    /// Lets nobody write to it any more.
    pub fn make_read_only(&self) {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.path).status();
        assert!(status.is_ok_and(|status| status.success()), "mounted read-only");
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l"]).arg(&self.path).status();
    }
}
