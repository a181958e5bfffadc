// The speed dumbbell in ns-3; one line of JSON on stdout.
//
//   src_i --1 Gb/s, d_i-- R0 --100 Mb/s, 10 ms-- R1 --1 Gb/s, 0 ms-- dst_i
//
// n long TcpNewReno flows with SACK, base RTT 20...100 ms spread evenly, 1500 B on the wire, 500 packets of drop-tail at the
// bottleneck, an ACK a packet, starts uniform in 0...1 s. In ns-3's favour: static default routes, no queueing discipline
// above the devices, no trace but a counter of transmissions (its cost is within the noise). bench/sim.py builds and runs this.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

using namespace ns3;

namespace
{

constexpr uint32_t ACCESS_QUEUE_PACKETS = 100000;
constexpr uint16_t PORT = 5000;
// IPv4 and TCP without options, and ns-3's two bytes of PPP.
constexpr uint32_t HEADER_BYTES = 42;

uint64_t g_transmissions = 0;

void
CountTransmission(Ptr<const Packet>)
{
    ++g_transmissions;
}

double
CpuSeconds()
{
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

uint64_t
PeakBytes()
{
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

void
Configure(uint32_t wire)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(wire - HEADER_BYTES));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
}

PointToPointHelper
Link(double bitsPerSecond, double delay, uint32_t packets)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(static_cast<uint64_t>(bitsPerSecond))));
    link.SetChannelAttribute("Delay", TimeValue(Seconds(delay)));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue(std::to_string(packets) + "p"));
    return link;
}

} // namespace

int
main(int argc, char** argv)
{
    uint32_t n = 10;
    uint32_t limit = 500;
    uint32_t wire = 1500;
    double duration = 10;
    CommandLine arguments;
    arguments.AddValue("n", "flows", n);
    arguments.AddValue("dur", "simulated seconds", duration);
    arguments.Parse(argc, argv);
    const double rttMin = 0.02;
    const double rttMax = 0.1;
    const double hop = 0.01;

    Configure(wire);
    NodeContainer routers;
    NodeContainer sources;
    NodeContainer sinks;
    routers.Create(2);
    sources.Create(n);
    sinks.Create(n);
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    Ipv4StaticRoutingHelper routing;
    stack.SetRoutingHelper(routing);
    stack.InstallAll();
    auto defaultRoute = [&routing](Ptr<Node> node, Ipv4Address via) {
        routing.GetStaticRouting(node->GetObject<Ipv4>())->SetDefaultRoute(via, 1);
    };

    TrafficControlHelper disciplines;
    NetDeviceContainer middle = Link(100e6, hop, limit).Install(routers);
    Ipv4AddressHelper middleNet("10.0.0.0", "255.255.255.252");
    Ipv4InterfaceContainer middleAddress = middleNet.Assign(middle);
    disciplines.Uninstall(middle);
    defaultRoute(routers.Get(0), middleAddress.GetAddress(1));
    defaultRoute(routers.Get(1), middleAddress.GetAddress(0));

    Ipv4AddressHelper leftNet("10.1.0.0", "255.255.255.252");
    Ipv4AddressHelper rightNet("10.2.0.0", "255.255.255.252");
    Ptr<UniformRandomVariable> start = CreateObject<UniformRandomVariable>();
    start->SetStream(7);
    for (uint32_t i = 0; i < n; ++i)
    {
        const double spread = n == 1 ? 0.0 : static_cast<double>(i) / (n - 1);
        const double rtt = rttMin + (rttMax - rttMin) * spread;
        NetDeviceContainer left =
            Link(1e9, rtt / 2 - hop, ACCESS_QUEUE_PACKETS).Install(sources.Get(i), routers.Get(0));
        NetDeviceContainer right = Link(1e9, 0, ACCESS_QUEUE_PACKETS).Install(routers.Get(1), sinks.Get(i));
        Ipv4InterfaceContainer leftAddress = leftNet.Assign(left);
        Ipv4InterfaceContainer rightAddress = rightNet.Assign(right);
        leftNet.NewNetwork();
        rightNet.NewNetwork();
        disciplines.Uninstall(left);
        disciplines.Uninstall(right);
        defaultRoute(sources.Get(i), leftAddress.GetAddress(1));
        defaultRoute(sinks.Get(i), rightAddress.GetAddress(0));

        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), PORT));
        sink.Install(sinks.Get(i));
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(rightAddress.GetAddress(1), PORT));
        bulk.SetAttribute("SendSize", UintegerValue(wire - HEADER_BYTES));
        bulk.Install(sources.Get(i)).Start(Seconds(start->GetValue(0, 1)));
    }
    for (auto node = NodeList::Begin(); node != NodeList::End(); ++node)
    {
        for (uint32_t j = 0; j < (*node)->GetNDevices(); ++j)
        {
            (*node)->GetDevice(j)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&CountTransmission));
        }
    }

    Simulator::Stop(Seconds(duration));
    const double setup = CpuSeconds();
    const auto wallStart = std::chrono::steady_clock::now();
    Simulator::Run();
    const double cpu = CpuSeconds() - setup;
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - wallStart).count();

    std::printf("{\"simulator\": \"ns-3\", \"protocol\": \"sack\", \"flows\": %u, \"simulated_s\": %g, "
                "\"packet_hops\": %llu, \"events\": %llu, \"setup_s\": %.6f, "
                "\"run_cpu_s\": %.6f, \"run_wall_s\": %.6f, \"peak_rss_bytes\": %llu}\n",
                n,
                duration,
                static_cast<unsigned long long>(g_transmissions),
                static_cast<unsigned long long>(Simulator::GetEventCount()),
                setup,
                cpu,
                wall,
                static_cast<unsigned long long>(PeakBytes()));
    std::fflush(stdout);
    // Taking a thousand nodes apart costs seconds and tells nothing.
    _exit(0);
}
