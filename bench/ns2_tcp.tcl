# TCP over one bottleneck in ns-2.35; one line of JSON on stdout. bench/ns2_tcp.py draws the cases.
#
#   ns ns2_tcp.tcl bw=5e6 rtts=0.04,0.1 starts=0,0.5 limit=40 queue=red wait=1 proto=sack
#
#   src_i --1 Gb/s, RTT_i/2 - 5 ms-- R0 --bw, 5 ms-- R1 --1 Gb/s, 0 ms-- dst_i
#
# Long flows, 1500 B on the wire, an acknowledgement a packet. Rates, utilisation and mean queue are means from `warm` on; drops and
# timeouts are of the whole run.

array set option {
  proto sack bw 5e6 rtts 0.1 starts 0 limit 40 queue droptail wait 1 min 5 max 15 maxp 0.1 weight 0.002 dur 60 warm 20 seed 1
}
foreach argument $argv {
  if {![regexp {^([a-z]+)=(.*)$} $argument -> key value] || ![info exists option($key)]} {
    puts stderr "ns2_tcp.tcl: unknown argument '$argument'; known keys: [lsort [array names option]]"
    exit 2
  }
  set option($key) $value
}

remove-all-packet-headers
add-packet-header IP TCP Flags
set ns [new Simulator]
global defaultRNG
$defaultRNG seed $option(seed)
# With headers of 40 B and a timestamp of 10 B, 1500 B on the wire.
Agent/TCP set packetSize_ 1450
# The first packet holds data, as in Tollway with `handshake = false`.
Agent/TCP set syn_ false
Agent/TCP set delay_growth_ false
Agent/TCP set window_ 20000
Agent/TCP set windowInit_ 2
Agent/TCP set tcpTick_ 0.01
Agent/TCP set minrto_ 0.2
# A sample of the round trip an acknowledgement, as in Tollway.
Agent/TCP set timestamps_ true
# New data end the backoff of the timer, as in Tollway and Linux.
Agent/TCP set ts_resetRTO_ true
Queue/RED set thresh_ $option(min)
Queue/RED set maxthresh_ $option(max)
Queue/RED set linterm_ [expr {1.0 / $option(maxp)}]
Queue/RED set q_weight_ $option(weight)
Queue/RED set gentle_ false
Queue/RED set bytes_ false
Queue/RED set queue_in_bytes_ false
# Idle time counts as arrivals of packets of this size: the default of Tollway's `red.packet-size`.
Queue/RED set mean_pktsize_ 1000
Queue/RED set setbit_ false
Queue/RED set wait_ $option(wait)

set left [$ns node]
set right [$ns node]
set kind [expr {$option(queue) eq "red" ? "RED" : "DropTail"}]
$ns simplex-link $left $right $option(bw) 0.005 $kind
$ns simplex-link $right $left $option(bw) 0.005 DropTail
# DropTail drops the packet that would be number qlim_; RED keeps it.
$ns queue-limit $left $right [expr {$option(limit) + ($kind eq "DropTail")}]
$ns queue-limit $right $left 100000
set monitor [$ns monitor-queue $left $right [open /dev/null w]]

set class [expr {$option(proto) eq "sack" ? "Agent/TCP/Sack1" : "Agent/TCP/Newreno"}]
set sink [expr {$option(proto) eq "sack" ? "Agent/TCPSink/Sack1" : "Agent/TCPSink"}]
set i 0
foreach rtt [split $option(rtts) ,] start [split $option(starts) ,] {
  set source [$ns node]
  set target [$ns node]
  $ns duplex-link $source $left 1e9 [expr {$rtt / 2.0 - 0.005}] DropTail
  $ns duplex-link $right $target 1e9 0 DropTail
  $ns queue-limit $source $left 100000
  set tcp($i) [new $class]
  set end [new $sink]
  $ns attach-agent $source $tcp($i)
  $ns attach-agent $target $end
  $ns connect $tcp($i) $end
  set ftp [new Application/FTP]
  $ftp attach-agent $tcp($i)
  $ns at $start "$ftp start"
  incr i
}
set flows $i

proc area {} {
  global ns monitor
  set integrator [$monitor get-pkts-integrator]
  $integrator newpoint [$ns now] [$monitor set pkts_]
  return [$integrator set sum_]
}
proc warmed {} {
  global monitor tcp flows from
  set from(area) [area]
  set from(bytes) [$monitor set bdepartures_]
  for {set i 0} {$i < $flows} {incr i} { set from($i) [$tcp($i) set ack_] }
}
proc finish {} {
  global monitor tcp flows from option
  set seconds [expr {$option(dur) - $option(warm)}]
  set rates {}
  set timeouts 0
  for {set i 0} {$i < $flows} {incr i} {
    lappend rates [expr {([$tcp($i) set ack_] - $from($i)) * 12000e-6 / $seconds}]
    incr timeouts [$tcp($i) set nrexmit_]
  }
  set used [expr {([$monitor set bdepartures_] - $from(bytes)) * 8.0 / $seconds / $option(bw)}]
  set queue [expr {([area] - $from(area)) / $seconds}]
  set loss [expr {double([$monitor set pdrops_]) / [$monitor set parrivals_]}]
  puts "{\"utilisation\": $used, \"loss\": $loss, \"queue\": $queue, \"timeouts\": $timeouts, \"rates\": \[[join $rates ,]\]}"
  exit 0
}
$ns at $option(warm) warmed
$ns at $option(dur) finish
$ns run
