//! What help ends in: examples, and what the exit status says.

pub(super) const EXAMPLES: &str = "\
Examples:
  tollway run scenarios/quickstart.toml                      # tables in the terminal
  tollway run scenarios/quickstart.toml --out out/quickstart # and a page, a picture, CSV, Arrow
  tollway reproduce xcp                                      # a paper's claims, held against ours

`tollway run --help` says more of each option.
Exit status: 0 all went well; 1 a run failed or a claim is unmet; 2 the input is wrong; 130 Ctrl-C.";

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

What is sealed, and what that costs: docs/src/security.md.
Exit status: 0 all went well; 1 a file cannot be written; 2 a name is wrong, or its file exists.";

pub(super) const RUN_MORE: &str = "\
Examples:
  tollway run mine.toml
      Prints a row a flow and a row a link, variants side by side.
  tollway run mine.toml --out out/mine
      Also writes out/mine/NAME.html to look at, NAME.png, and in a folder a variant the tables
      flows, links, hops of an overlay (a row an interval), control (a row a control interval of
      XCP's links) and summary, link_summary (a row a run) as CSV and Arrow.
  tollway run mine.toml --set link.bottleneck.rate=20Mbps --set 'flow.*.law=cubic'
      Sets keys otherwise than the file does; `*` stands for every name. Quote it for the shell.
  tollway run mine.toml --engine live
      The same on real datagrams between sockets on loopback: it takes as long as it says, and
      prints how late it was (docs/src/live.md).
  tollway run mine.toml --engine live --hosts namespaces
      The same with a network namespace for each node and veth pairs between them, where the
      kernel's own TCP runs on the same links; its counters account for every packet.
  tollway run mine.toml --engine live --watch --metrics 127.0.0.1:9100
      Shows what happens while it happens: in the terminal, and for Prometheus.
  tollway run mine.toml --seed 7 --json | jq '.flows[].rate_mbps'
      One JSON object on standard output and nothing else.
  tollway run mine.toml --pcap out/mine.pcapng --pcap-link 'bottleneck*'
      Writes what crosses these links for Wireshark (docs/src/captures.md).

What keys a scenario has: docs/src/scenario-reference.md. What columns the tables have:
docs/src/columns.md. Ctrl-C ends a run early and prints the results up to there.

Exit status: 0 all went well; 1 the run failed; 2 the file or an option is wrong; 130 Ctrl-C.";

pub(super) const REPRODUCE_EXAMPLES: &str = "\
Examples:
  tollway reproduce --list
  tollway reproduce xcp/validation                           # one experiment
  tollway reproduce xcp --json                               # all of a paper's, for a program
  tollway reproduce --engine live xcp                        # real packets beside simulated ones";

pub(super) const REPRODUCE_MORE: &str = "\
Examples:
  tollway reproduce --list
      Names the experiments, each with its title.
  tollway reproduce
      Runs everything, and puts all figures with their claims on one page: out/papers/index.html.
  tollway reproduce xcp/validation
      Runs one and its neighbours, prints a row a claim (expected, measured, and met, FRAGILE or
      UNMET with how often it holds) and draws its figure.
  tollway reproduce xcp --json
      Runs all of a paper's: {\"claims\": [{\"id\", \"status\", \"expected\", \"measured\", \"source\",
      \"reading\", \"neighbourhood\", \"neighbours\": [{\"at\", \"status\", \"measured\", \"value\"}]}],
      \"met\": n, \"fragile\": n, \"unmet\": n, \"skipped\": n}. A claim is skipped when it compares with
      a program that is not installed.
  tollway reproduce --quick fcp/mixed
      Judges the base only: no claim is then known to hold beside it.
  tollway reproduce --papers mine
      Experiments of your own: scenario files with claims and plots, mine/PAPER/FIGURE.toml.

A claim is met if it holds at the experiment's base and in nine of ten of its neighbours: other
seeds, starts, round trips, and values of what the paper leaves open (docs/src/trust.md).

Exit status: 0 every claim is met (with --check: all stands as it was judged); 1 otherwise, or a run
failed; 2 the input is wrong.";

pub(super) const SWEEP_EXAMPLES: &str = "\
Examples:
  tollway sweep mine.toml --vary link.bottleneck.rate=10Mbps,20Mbps,50Mbps --seeds 10
  tollway sweep mine.toml --vary flow.f.count=1,2,4,8 --vary 'link.*.law=red,xcp' --out laws.arrow
  tollway sweep mine.toml --vary flow.f.count=1,2,4,8 --plot x=flow.f.count,y=queueing_p95_ms";

pub(super) const SWEEP_MORE: &str = "\
Examples:
  tollway sweep mine.toml --vary link.bottleneck.rate=10Mbps,20Mbps,50Mbps --seeds 10
      30 runs (times the file's variants): sweep.csv has a row a run and flow, sweep.links.csv a row
      a run and link. sweep.csv.journal says what is done; remove it to start anew.
  tollway sweep mine.toml --vary flow.f.count=1,2,4,8 --vary 'link.*.law=red,xcp' --out laws.arrow
      Every count with every law, as Arrow IPC.
  tollway sweep mine.toml --vary flow.f.count=1,2,4,8 --plot x=flow.f.count,y=queueing_p95_ms
      Draws the mean over flows and seeds: sweep.queueing_p95_ms.svg.
  tollway sweep mine.toml --vary link.bottleneck.rate=10Mbps,20Mbps,50Mbps --seeds 20
      The first again with more seeds: runs the other 30 only.

What the columns are, and how to read them: docs/src/sweeps.md.

Exit status: 0 all went well; 1 a run failed; 2 the input is wrong, or the scenario has changed
since the sweep began; 130 Ctrl-C.";

pub(super) const COMPARE_EXAMPLES: &str = "\
Examples:
  tollway run mine.toml --out out/a
  tollway run mine.toml --set link.bottleneck.limit=2BDP --out out/b
  tollway compare out/a out/b --out out/a-b
  tollway compare out/quickstart/xcp out/quickstart/fifo --json

Exit status: 0 they were compared, whatever they are; 2 there is nothing to compare.";

pub(super) const THEORY_EXAMPLES: &str = "\
Examples:
  tollway theory scenarios/parking-lot.toml
  tollway theory mine.toml --set flow.long.count=3 --json

What the allocations are, and which law aims at which: docs/src/theory.md.
Exit status: 0 all went well; 2 the file is wrong, or defines no allocation.";

pub(super) const VERIFY_EXAMPLES: &str = "\
Examples:
  tollway verify --random 200
  tollway verify --random 1 --seed 17 --keep out/verify     # then tollway run out/verify/17.toml";

pub(super) const VERIFY_MORE: &str = "\
Examples:
  tollway verify --random 200
      Networks 1 to 200: says how many keep to theory, the worst deviation, and what fails.
  tollway verify --random 1 --seed 17 --keep out/verify
      One network, also written as out/verify/17.toml, to be run and changed like any other file.
  tollway verify --random 50 --json | jq .worst
  tollway verify --starts --law fcp --random 50
      Networks in which flows start and stop: packets lost and the longest queue of each.

Which allocation a law aims at, the tolerances and what is left out: docs/src/theory.md.

Exit status: 0 all within bounds; 1 some are not, or a run failed; 2 the input is wrong;
130 Ctrl-C.";
