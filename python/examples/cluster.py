"""A sweep of 10 000 runs and the claims of all papers, on a cluster of Dask ("Beyond one machine" in the manual).

    python cluster.py tcp://scheduler.example:8786

Every worker needs the package. Without an address, workers start on this machine.
"""

import sys

import tollway
from distributed import Client

#: Four flows with round trips from 20 to 80 ms at one bottleneck.
SCENARIO = """
name = "buffers"
duration = "20 s"
[node]
s = { count = 4 }
r = {}
d = {}
[link.bottleneck]
from = "r"
to = "d"
rate = "20 Mbps"
delay = "5 ms"
limit = "1 BDP"
[link.access]
from = "s"
to = "r"
rate = "1 Gbps"
delay = { first = "5 ms", last = "35 ms" }
[flow.f]
from = "s"
to = "d"
law = "newreno"   # each point sets its own
start = { random = "1 s" }
"""

#: 5 laws, 20 lengths of the queue, 100 seeds.
VARY = {
    "flow.f.law": ["newreno", "cubic", "bbr", "scalable", "dctcp"],
    "link.bottleneck.limit": [f"{tenths / 10} BDP" for tenths in range(1, 21)],
}


def sweep(client, vary, seeds):
    """The tables of all runs."""
    return tollway.sweep(tollway.Scenario(SCENARIO), vary, seeds=seeds, executor=client.get_executor())


def reproduce(client, *names, **settings):
    """Each experiment is one task. Returns their outcomes in order."""
    return client.gather(client.map(lambda name: tollway.reproduce(name, jobs=1, **settings), names))


def main():
    with Client(*sys.argv[1:2]) as client:
        swept = sweep(client, VARY, 100)
        rates = swept.flows.to_pandas().groupby(["flow.f.law", "link.bottleneck.limit_bdp"]).rate_mbps
        print(rates.agg(["mean", "std"]).round(3))
        for name, found in zip(tollway.experiments(), reproduce(client, *tollway.experiments())):
            print(name, found)


if __name__ == "__main__":
    main()
