//! The ends of help texts: examples and exit statuses.

pub(super) const EXAMPLES: &str = "\
Examples:
  tollway run scenarios/quickstart.toml                      # tables in the terminal
  tollway run scenarios/quickstart.toml --out out/quickstart # and a page, a picture, CSV, Arrow
  tollway reproduce xcp                                      # check a paper's claims

`tollway run --help` describes each option at length; `tollway docs` prints chapters of the book.
Exit status: 0 success; 1 a run failed or a claim is unmet; 2 the input is wrong; 130 Ctrl-C.";

pub(super) const RUN_EXAMPLES: &str = "\
Examples:
  tollway run mine.toml
  tollway run mine.toml --out out/mine                       # then open out/mine/NAME.html
  tollway run mine.toml --set link.bottleneck.rate=20Mbps --set 'flow.*.law=cubic'
  tollway run mine.toml --engine live                        # real packets, in real time
  tollway run mine.toml --seed 7 --json | jq '.flows[].rate_mbps'";

pub(super) const KEYS_EXAMPLES: &str = "\
Example:
  tollway keys a r b                                         # a.key, r.key, b.key
  tollway run three.toml --engine live --node a --at … --key a.key

Protection of datagrams and its cost: `tollway docs security`.
Exit status: 0 success; 1 a file cannot be written; 2 a name is wrong, or its file exists.";

pub(super) const RUN_MORE: &str = "\
Examples:
  tollway run mine.toml
      Prints a row for each flow and link, variants side by side.
  tollway run mine.toml --out out/mine
      Also writes out/mine/NAME.html and NAME.png, and a folder for each variant with tables as CSV
      and Arrow: flows, links and an overlay's hops (a row per interval), control (a row per control
      interval of XCP's links), summary and link_summary (a row per run).
  tollway run mine.toml --set link.bottleneck.rate=20Mbps --set 'flow.*.law=cubic'
      Overrides keys of the file; `*` matches every name. Quote it for the shell.
  tollway run mine.toml --engine live
      The same with real datagrams between sockets on loopback, in real time. Prints the lateness of
      its timers (`tollway docs live`).
  tollway run mine.toml --engine live --hosts namespaces
      The same with a network namespace for each node and veth pairs between them. The kernel's TCP
      can run on these links; its counters account for every packet.
  tollway run mine.toml --engine live --watch --metrics 127.0.0.1:9100
      Shows the run live in the terminal, and serves it to Prometheus.
  tollway run mine.toml --seed 7 --json | jq '.flows[].rate_mbps'
      Prints one JSON object, and nothing else, on standard output.
  tollway run mine.toml --pcap out/mine.pcapng --pcap-link 'bottleneck*'
      Writes the packets of these links for Wireshark (`tollway docs captures`).

Keys of a scenario: `tollway docs scenario-reference`; of its links: `tollway docs links-reference`.
One key: `tollway docs flow.delayed-ack`. Columns of the tables: `tollway docs columns`.
Ctrl-C ends a run early and prints the results so far.

Exit status: 0 success; 1 the run failed; 2 the file or an option is wrong; 130 Ctrl-C.";

pub(super) const REPRODUCE_EXAMPLES: &str = "\
Examples:
  tollway reproduce --list
  tollway reproduce xcp/validation                           # one experiment
  tollway reproduce xcp --json                               # all of a paper, for a program
  tollway reproduce --engine live xcp                        # real packets beside simulated ones";

pub(super) const REPRODUCE_MORE: &str = "\
Examples:
  tollway reproduce --list
      Lists the experiments with their titles.
  tollway reproduce
      Runs everything, and writes all figures and claims to one page: out/papers/index.html.
  tollway reproduce xcp/validation
      Runs one experiment and its neighbours, prints a row for each claim (expected, measured, and
      met, FRAGILE or UNMET with the number of neighbours where it holds) and draws its figure.
  tollway reproduce xcp --json
      Runs all experiments of a paper: {\"claims\": [{\"id\", \"status\", \"expected\", \"measured\",
      \"source\", \"reading\", \"neighbourhood\", \"neighbours\": [{\"at\", \"status\", \"measured\", \"value\"}]}],
      \"met\": n, \"fragile\": n, \"unmet\": n, \"skipped\": n}. A claim is skipped when it compares with
      a program that is not installed.
  tollway reproduce --quick fcp/mixed
      Judges only the base; says nothing about its neighbours.
  tollway reproduce --papers mine
      Runs your own experiments: scenario files with claims and plots, mine/PAPER/FIGURE.toml.

A claim is met if it holds at the experiment's base and in nine of ten of its neighbours: other
seeds, starts, round trips, and values of what the paper leaves open (`tollway docs trust`).

Exit status: 0 every claim is met (with --check: the judgements are unchanged); 1 otherwise, or a
run failed; 2 the input is wrong.";

pub(super) const SWEEP_EXAMPLES: &str = "\
Examples:
  tollway sweep mine.toml --vary link.bottleneck.rate=10Mbps,20Mbps,50Mbps --seeds 10
  tollway sweep mine.toml --vary flow.f.count=1,2,4,8 --vary 'link.*.law=red,xcp' --out laws.arrow
  tollway sweep mine.toml --vary flow.f.count=1,2,4,8 --plot x=flow.f.count,y=queueing_p95_ms";

pub(super) const SWEEP_MORE: &str = "\
Examples:
  tollway sweep mine.toml --vary link.bottleneck.rate=10Mbps,20Mbps,50Mbps --seeds 10
      30 runs (times the file's variants): sweep.csv has a row per run and flow, sweep.links.csv a
      row per run and link. sweep.csv.journal records finished runs; remove it to start again.
  tollway sweep mine.toml --vary flow.f.count=1,2,4,8 --vary 'link.*.law=red,xcp' --out laws.arrow
      Every count with every law, as Arrow IPC.
  tollway sweep mine.toml --vary flow.f.count=1,2,4,8 --plot x=flow.f.count,y=queueing_p95_ms
      Draws the mean over flows and seeds: sweep.queueing_p95_ms.svg.
  tollway sweep mine.toml --vary link.bottleneck.rate=10Mbps,20Mbps,50Mbps --seeds 20
      The first sweep with more seeds: runs only the other 30.

Meaning of the columns: `tollway docs sweeps`.

Exit status: 0 success; 1 a run failed; 2 the input is wrong, or the scenario has changed
since the sweep began; 130 Ctrl-C.";

pub(super) const COMPARE_EXAMPLES: &str = "\
Examples:
  tollway run mine.toml --out out/a
  tollway run mine.toml --set link.bottleneck.limit=2BDP --out out/b
  tollway compare out/a out/b --out out/a-b
  tollway compare out/quickstart/xcp out/quickstart/fifo --json

Exit status: 0 they were compared, equal or not; 2 there is nothing to compare.";

pub(super) const THEORY_EXAMPLES: &str = "\
Examples:
  tollway theory scenarios/parking-lot.toml
  tollway theory mine.toml --set flow.long.count=3 --json

The allocations, and the laws that aim at them: `tollway docs theory`.
Exit status: 0 success; 2 the file is wrong, or defines no allocation.";

pub(super) const VERIFY_EXAMPLES: &str = "\
Examples:
  tollway verify --random 200
  tollway verify --random 1 --seed 17 --keep out/verify     # then tollway run out/verify/17.toml";

pub(super) const VERIFY_MORE: &str = "\
Examples:
  tollway verify --random 200
      Runs networks 1 to 200: prints how many agree with theory, the largest deviation, failures.
  tollway verify --random 1 --seed 17 --keep out/verify
      Runs one network, and writes it as out/verify/17.toml, an ordinary scenario file.
  tollway verify --random 50 --json | jq .worst
  tollway verify --starts --law fcp --random 50
      Networks in which flows start and stop: packets lost and the longest queue of each.

Allocations of the laws, tolerances and limits: `tollway docs theory`.

Exit status: 0 all networks are within bounds; 1 some are not, or a run failed; 2 the input is
wrong; 130 Ctrl-C.";
