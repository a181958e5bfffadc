//! Measures the processor time of a tick of `tollway shape` for each back-end. Every connection is
//! listed and gets a new pace.
//!
//! Usage: `shape_cost FOLDER [CONNECTIONS]`. The example makes FOLDER as a control group, such as
//! `/sys/fs/cgroup/cost`.

#[cfg(target_os = "linux")]
fn main() -> std::io::Result<()> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("Linux only");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io::{self, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::PathBuf;
    use std::time::Duration;

    use rustix::process::{Resource, Rlimit};
    use rustix::time::ClockId;
    use tollway_law::Rate;
    use tollway_shape::bpf::{Bpf, Config};
    use tollway_shape::{Kernel, Seen, SockDiag};

    pub(super) fn main() -> io::Result<()> {
        let mut arguments = std::env::args().skip(1);
        let Some(group) = arguments.next().map(PathBuf::from) else {
            return Err(io::Error::other("which folder?"));
        };
        let connections: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(10_000);
        fs::create_dir_all(&group)?;
        fs::write(group.join("cgroup.procs"), std::process::id().to_string())?;
        let enough = Some(connections as u64 + 100);
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: enough, maximum: enough })?;

        // Both ends are connections of this machine.
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let pair = |_| Ok((TcpStream::connect(address)?, listener.accept()?.0));
        let mut pairs = (0..connections / 2).map(pair).collect::<io::Result<Vec<_>>>()?;

        let config = Config { group: Some(group), ..Config::default() };
        let mut bpf = Bpf::start(&config).map_err(io::Error::other)?;
        let measured = bpf.measure()?;
        show("eBPF", &mut bpf, &mut pairs)?;
        let cost = bpf.cost()?;
        for (what, (runs, took)) in [("hook, once a round trip", cost.hook), ("walk", cost.walk)] {
            println!("  {what}: {runs} runs, {} ns each", took.as_nanos() / u128::from(runs.max(1)));
        }
        drop((measured, bpf));
        show("inet_diag", &mut SockDiag::new()?, &mut pairs)
    }

    /// Runs some ticks and prints their cost.
    fn show(name: &str, kernel: &mut impl Kernel, pairs: &mut [(TcpStream, TcpStream)]) -> io::Result<()> {
        let (mut seen, mut spent) = (Vec::<Seen>::new(), [Duration::ZERO; 2]);
        for tick in 0..TICKS {
            // A tenth of the connections have sent data since the last tick.
            for (near, far) in pairs.iter_mut().skip(tick % 10).step_by(10) {
                near.write_all(&[1])?;
                far.read_exact(&mut [0])?;
            }
            let begin = cpu();
            seen.clear();
            kernel.connections(&mut seen)?;
            let looked = cpu();
            for connection in &seen {
                let rate = Rate::from_mbps(100.0 + tick as f64);
                // A connection of another program can't be paced, or has closed.
                let _ = kernel.pace(connection, Some(rate));
            }
            kernel.settle()?;
            // The first tick is not counted: it has to learn all connections.
            if tick > 0 {
                spent[0] += looked - begin;
                spent[1] += cpu() - looked;
            }
        }
        let [look, pace] =
            spent.map(|spent| spent.as_secs_f64() * 1e9 / (TICKS - 1) as f64 / seen.len() as f64);
        println!("{name}: {} connections, {look:.0} ns to see each, {pace:.0} ns to pace it", seen.len());
        for connection in &seen {
            let _ = kernel.pace(connection, None);
        }
        kernel.settle()
    }

    /// The processor time that this thread has used.
    fn cpu() -> Duration {
        let used = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
    }

    const TICKS: usize = 50;
}
