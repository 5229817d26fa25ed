//! The process as the system accounts for it, by the names that every Prometheus client uses: CPU time,
//! memory, open files, its start. What the system does not tell is left out.

use std::fs;

use super::text::Page;

/// Adds what the system tells of this process.
pub(super) fn add(page: &mut Page) {
    add_stat(page);
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        page.gauge("process_open_fds", "Open file descriptors.", open.count());
    }
    if let Some(most) = most_open_files() {
        page.gauge("process_max_fds", "The most file descriptors that may be open.", most);
    }
}

/// The fields of `/proc/self/stat` behind the name, which may hold anything.
fn add_stat(page: &mut Page) -> Option<()> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // The first of these is the third field of the file.
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let cpu = (field(14)? + field(15)?) / ticks;
    page.counter("process_cpu_seconds_total", "CPU time of the process, in seconds.", cpu);
    page.gauge("process_virtual_memory_bytes", "Virtual memory, in bytes.", field(23)?);
    let resident = field(24)? * rustix::param::page_size() as f64;
    page.gauge("process_resident_memory_bytes", "Memory in use, in bytes.", resident);
    let started = boot_time()? + field(22)? / ticks;
    let help = "When the process started, in seconds since 1970.";
    page.gauge("process_start_time_seconds", help, started);
    Some(())
}

/// When the machine started, in seconds since 1970.
fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn most_open_files() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
