//! Rights of an agent's processes at run time, from `/proc/PID/status`.

use super::*;

/// The values of a key for every thread of a process.
fn of_threads(pid: u32, key: &str) -> Vec<String> {
    let line = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    };
    fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().filter_map(line).collect()
}

fn capabilities(pid: u32, set: &str) -> Vec<u64> {
    of_threads(pid, set).iter().map(|text| u64::from_str_radix(text, 16).unwrap()).collect()
}

/// `CAP_DAC_READ_SEARCH`, `CAP_NET_ADMIN`, `CAP_SYS_PTRACE`, `CAP_SYS_ADMIN`, `CAP_PERFMON`,
/// `CAP_BPF`.
const READ: u64 = 1 << 2;
const SOCKETS: u64 = READ | 1 << 19;
const PROGRAMS: u64 = 1 << 12 | 1 << 21 | 1 << 38 | 1 << 39;

/// Only the agent's first thread and its guardian have capabilities, and neither reads data that
/// others have written.
#[test]
fn what_reads_policies_and_serves_readers_has_no_rights() {
    for (case, backend, needs) in [("pi", "inet-diag", SOCKETS), ("pb", "bpf", PROGRAMS)] {
        let Some(room) = Room::open(case) else { return };
        // A file in a folder that only root may enter.
        fs::set_permissions(&room.folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let agent = room.agent_with(backend, &["--metrics", "10.9.1.1:0"]);
        let pid = agent.pid();
        let worker = common::child_of(pid, "--worker").expect("a worker");
        let guardian = common::child_of(pid, "guard").expect("a guardian");
        for process in [pid, worker, guardian] {
            let set = |set| capabilities(process, set).into_iter().fold(0, |all, one| all | one);
            assert_eq!(of_threads(process, "NoNewPrivs").iter().filter(|text| *text != "1").count(), 0);
            assert_eq!(of_threads(process, "Seccomp").iter().filter(|text| *text != "2").count(), 0);
            assert_eq!(set("CapBnd"), 0, "{backend}");
            let (has, expected) = match process {
                _ if process == worker => (set("CapPrm") | set("CapEff") | set("CapAmb"), 0),
                // The first thread; threads that read messages of the worker, or open files for it,
                // follow.
                _ => (capabilities(process, "CapPrm")[0], needs),
            };
            assert_eq!(has, expected, "{backend}: {has:x} instead of {expected:x}");
        }
        let others = capabilities(pid, "CapPrm")[1..].iter().fold(0, |all, one| all | one);
        assert_eq!(others & !READ, 0, "{backend}: the agent's other threads have {others:x}");
        let users: Vec<u32> =
            of_threads(worker, "Uid")[0].split_whitespace().map(|user| user.parse().unwrap()).collect();
        assert!(users.iter().all(|user| *user == users[0] && (61_184..65_520).contains(user)), "{users:?}");
        assert_eq!(of_threads(worker, "Gid")[0], of_threads(worker, "Uid")[0]);
        assert_eq!(of_threads(worker, "Groups"), vec![""; of_threads(worker, "Groups").len()]);
        // The worker answers, and reads a file that only root may read.
        let mut policy = fs::read_to_string(room.folder.join("policies.toml")).unwrap();
        policy.insert_str(0, "version = \"next\"\n");
        let new = room.folder.join("new.toml");
        fs::write(&new, &policy).unwrap();
        fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        fs::rename(&new, room.folder.join("policies.toml")).unwrap();
        wait("the new policies", || agent.status().filter(|status| status["version"] == "next"));
        signal(worker, "KILL");
        let mut agent = agent;
        let status = wait("the agent's end", || agent.process.0.try_wait().unwrap());
        assert_eq!(status.code(), Some(1), "an agent without its worker ends");
        wait("the guardian's end", || (!Path::new(&format!("/proc/{guardian}")).exists()).then_some(()));
    }
}

/// Another user cannot signal an agent's processes.
#[test]
fn another_user_cannot_stop_an_agents_processes() {
    let Some(room) = Room::open("pk") else { return };
    let agent = room.agent("inet-diag");
    let worker = common::child_of(agent.pid(), "--worker").expect("a worker");
    let guardian = common::child_of(agent.pid(), "guard").expect("a guardian");
    let script = "import os, sys\n\
                  os.setgid(65534); os.setuid(65534)\n\
                  for pid in sys.argv[1:]:\n \
                    try: os.kill(int(pid), 9); sys.exit(1)\n \
                    except PermissionError: pass";
    let pids = [agent.pid(), worker, guardian].map(|pid| pid.to_string());
    assert!(run(&["python3", "-c", script, &pids[0], &pids[1], &pids[2]]));
    assert!(agent.status().is_some());
}
