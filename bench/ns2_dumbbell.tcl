# The speed dumbbell in ns-2.35; one line of JSON on stdout.
#
#   ns ns2_dumbbell.tcl n=100 dur=60 proto=sack
#
#   src_i --1 Gb/s, d_i-- R0 --100 Mb/s, 10 ms-- R1 --1 Gb/s, 0 ms-- dst_i
#
# n long flows, base RTT 20...100 ms spread evenly, 1500 B on the wire, 500 packets of drop-tail at the bottleneck, an ACK a
# packet, starts uniform in 0...1 s. proto is sack (TCP NewReno with SACK) or xcp (the bottleneck is an XCP queue).
# In ns-2's favour: packet headers that aren't used are removed, and routes=lean enters only the routes that packets take.
# routes=computed leaves routes to ns-2, as scripts usually do: every node to every node, minutes of set-up at n=1000 and
# several times the memory, for the same packets.

array set option {
  proto sack n 10 dur 60 bw 100e6 hop 0.01 access 1e9 rttmin 0.02 rttmax 0.1 limit 500 packet 1500
  scheduler Calendar routes lean seed 12345
}
foreach argument $argv {
  if {![regexp {^([a-z]+)=(.*)$} $argument -> key value] || ![info exists option($key)]} {
    puts stderr "ns2_dumbbell.tcl: unknown argument '$argument'; known keys: [lsort [array names option]]"
    exit 2
  }
  set option($key) $value
}

# CPU seconds of this process so far. schedstat counts nanoseconds; stat, where there is no schedstat, hundredths.
proc cpu_seconds {} {
  if {![catch {open /proc/self/schedstat} file]} {
    set nanoseconds [lindex [gets $file] 0]
    close $file
    return [expr {$nanoseconds * 1e-9}]
  }
  set file [open /proc/self/stat]
  set line [gets $file]
  close $file
  set fields [string range $line [expr {[string last ) $line] + 2}] end]
  return [expr {([lindex $fields 11] + [lindex $fields 12]) * 0.01}]
}
proc peak_bytes {} {
  set file [open /proc/self/status]
  regexp {VmHWM:\s+(\d+) kB} [read $file] -> kibibytes
  close $file
  return [expr {$kibibytes * 1024}]
}

remove-all-packet-headers
add-packet-header IP TCP Flags
if {$option(proto) eq "xcp"} {
  add-packet-header XCP
  set sender Agent/TCP/Reno/XCP
  set receiver Agent/TCPSink/XCPSink
  set queue XCP
  set headers 50
} else {
  set sender Agent/TCP/Sack1
  set receiver Agent/TCPSink/Sack1
  set queue DropTail
  set headers 40
}
set ns [new Simulator]
$ns use-scheduler $option(scheduler)
Agent/TCP set packetSize_ [expr {$option(packet) - $headers}]
Agent/TCP set window_ 20000
Agent/TCP set tcpTick_ 0.001
Agent/TCP set minrto_ 0.2

if {[lsearch {lean computed} $option(routes)] < 0} {
  puts stderr "ns2_dumbbell.tcl: routes must be lean or computed"
  exit 2
}
if {$option(routes) ne "computed"} {
  Agent/rtProto/Static proc init-all args {}
}
proc link_both_ways {a b rate delay queue limit} {
  global ns
  $ns duplex-link $a $b $rate $delay $queue
  foreach {from to} [list $a $b $b $a] {
    $ns queue-limit $from $to $limit
    if {$queue eq "XCP"} { [[$ns link $from $to] queue] set-link-capacity $rate }
  }
}
proc route {from to via} {
  global ns
  $from add-route [$to id] [[$ns link $from $via] head]
}

set r0 [$ns node]
set r1 [$ns node]
# ns-2's drop-tail holds one packet less than its limit.
link_both_ways $r0 $r1 $option(bw) $option(hop) $queue [expr {$option(limit) + 1}]
set random [new RNG]
$random seed $option(seed)
set n $option(n)
for {set i 0} {$i < $n} {incr i} {
  set spread [expr {$n == 1 ? 0.0 : double($i) / ($n - 1)}]
  set rtt [expr {$option(rttmin) + ($option(rttmax) - $option(rttmin)) * $spread}]
  set src [$ns node]
  set dst [$ns node]
  link_both_ways $src $r0 $option(access) [expr {$rtt / 2.0 - $option(hop)}] DropTail 100000
  link_both_ways $r1 $dst $option(access) 0 DropTail 100000
  if {$option(routes) eq "lean"} {
    route $src $dst $r0; route $r0 $dst $r1; route $r1 $dst $dst
    route $dst $src $r1; route $r1 $src $r0; route $r0 $src $src
  }
  set tcp($i) [new $sender]
  set sink [new $receiver]
  $tcp($i) set fid_ $i
  $ns attach-agent $src $tcp($i)
  $ns attach-agent $dst $sink
  $ns connect $tcp($i) $sink
  set ftp [new Application/FTP]
  $ftp attach-agent $tcp($i)
  $ns at [$random uniform 0 1] "$ftp start"
}

# Every packet sent crosses its access link; every packet that arrived crossed two more links, and its ACK three.
proc finish {} {
  global option tcp n run_started run_started_wall
  set cpu [expr {[cpu_seconds] - $run_started}]
  set wall [expr {([clock clicks -milliseconds] - $run_started_wall) * 1e-3}]
  set sent 0
  set acked 0
  set resent 0
  for {set i 0} {$i < $n} {incr i} {
    incr sent [$tcp($i) set ndatapack_]
    incr acked [$tcp($i) set nackpack_]
    incr resent [$tcp($i) set nrexmitpack_]
  }
  puts [format {{"simulator": "ns-2", "protocol": "%s", "flows": %d, "simulated_s": %s, "packet_hops": %d, "sent": %d, "acks": %d, "resent": %d, "setup_s": %.6f, "run_cpu_s": %.6f, "run_wall_s": %.3f, "peak_rss_bytes": %d}} \
    $option(proto) $n $option(dur) [expr {$sent + 5 * $acked}] $sent $acked $resent $run_started $cpu $wall [peak_bytes]]
  exit 0
}
$ns at 0.0 { set run_started [cpu_seconds]; set run_started_wall [clock clicks -milliseconds] }
$ns at $option(dur) finish
$ns run
