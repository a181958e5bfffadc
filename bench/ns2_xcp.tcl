# Per-flow throughput of XCP in ns-2.35: the reference series of papers/xcp/ns2 (bench/ns2_series.py calls this).
#
#   ns ns2_xcp.tcl out=FILE bw=10e6 rtts=0.5,0.5 starts=0,30 stops=130,160 dur=160 limit=834
#
#   src_i --1 Gb/s, rtt_i/2 - hop-- R0 --bw, hop-- R1 --1 Gb/s, 0 s-- dst_i
#
# Rates in bit/s, times in seconds. R0->R1 and R1->R0 are XCP queues that hold limit-1 packets; access links are drop-tail.
# papers/xcp/ns2/README.md says why each setting is what it is.

array set option {
  out "" bw 10e6 rtts 0.5 starts 0 stops 1e9 dur 130 limit 834 hop 0.01
  access 1e9 packet 1500 tick 0.0001 minrto 3 bin 0.1 seed 0 timers 0 reset 0
}
foreach argument $argv {
  if {![regexp {^([a-z]+)=(.*)$} $argument -> key value] || ![info exists option($key)]} {
    puts stderr "ns2_xcp.tcl: unknown argument '$argument'; known keys: [lsort [array names option]]"
    exit 2
  }
  set option($key) $value
}
set rtts [split $option(rtts) ,]
set starts [split $option(starts) ,]
set stops [split $option(stops) ,]
set flows [llength $rtts]
if {[llength $starts] != $flows || [llength $stops] != $flows || $option(out) eq ""} {
  puts stderr "ns2_xcp.tcl: out= is needed, and rtts=, starts= and stops= must be lists of one length"
  exit 2
}

# A sender adds 40 bytes of TCP/IP and a 10-byte timestamp option to packetSize_; an ACK is 40 bytes.
Agent/TCP set packetSize_ [expr {$option(packet) - 50}]
Agent/TCP set window_ 100000
Agent/TCP set maxcwnd_ 0
Agent/TCP set windowInit_ 2
Agent/TCP set tcpTick_ $option(tick)
Agent/TCP set minrto_ $option(minrto)
# 1: an acknowledgement of new data ends the timer's backoff.
Agent/TCP set ts_resetRTO_ $option(reset)
# No handshake: the first packets carry data.
Agent/TCP set syn_ false
Agent/TCP set delay_growth_ false

# The seed only moves the first expiry of an XCP queue's timers; 0 leaves ns-2's own.
if {$option(seed)} { $defaultRNG seed $option(seed) }
set ns [new Simulator]

# An XCP queue that isn't told its capacity believes it has none.
proc link_both_ways {a b rate delay queue limit} {
  global ns
  $ns duplex-link $a $b $rate $delay $queue
  foreach {from to} [list $a $b $b $a] {
    $ns queue-limit $from $to $limit
    if {$queue eq "XCP"} { [[$ns link $from $to] queue] set-link-capacity $rate }
  }
}

set r0 [$ns node]
set r1 [$ns node]
link_both_ways $r0 $r1 $option(bw) $option(hop) XCP $option(limit)
for {set i 0} {$i < $flows} {incr i} {
  set src [$ns node]
  set dst [$ns node]
  link_both_ways $src $r0 $option(access) [expr {[lindex $rtts $i] / 2.0 - $option(hop)}] DropTail 100000
  link_both_ways $r1 $dst $option(access) 0 DropTail 100000
  set tcp($i) [new Agent/TCP/Reno/XCP]
  set sink($i) [new Agent/TCPSink/XCPSink]
  $tcp($i) set fid_ $i
  $ns attach-agent $src $tcp($i)
  $ns attach-agent $dst $sink($i)
  $ns connect $tcp($i) $sink($i)
  set ftp [new Application/FTP]
  $ftp attach-agent $tcp($i)
  $ns at [lindex $starts $i] "$ftp start"
  if {[lindex $stops $i] < $option(dur)} { $ns at [lindex $stops $i] "stop $i" }
  set application($i) $ftp
  set seen($i) 0
}
# A stopped agent keeps its timer running and cuts an idle window at each expiry: count no further.
proc stop {i} {
  global application tcp cuts
  set cuts($i) [$tcp($i) set ncwndcuts_]
  $application($i) stop
}
set monitor [$ns monitor-queue $r0 $r1 ""]
if {$option(timers)} { [[$ns link $r0 $r1] queue] attach stderr }

set out [open $option(out) w]
set header "time_s"
for {set i 0} {$i < $flows} {incr i} { append header ",f[expr {$i + 1}]_mbps" }
puts $out $header

# One row per bin: bytes that arrived (in order, headers included) since the last row.
proc sample {k} {
  global ns option flows sink seen out
  set row [format "%.1f" [expr {$k * $option(bin)}]]
  for {set i 0} {$i < $flows} {incr i} {
    set bytes [$sink($i) set bytes_]
    append row [format ",%.3f" [expr {($bytes - $seen($i)) * 8e-6 / $option(bin)}]]
    set seen($i) $bytes
  }
  puts $out $row
  incr k
  $ns at [expr {$k * $option(bin)}] "sample $k"
}
$ns at $option(bin) "sample 1"

proc finish {} {
  global option out flows tcp monitor cuts
  close $out
  set resent 0
  set all_cuts 0
  for {set i 0} {$i < $flows} {incr i} {
    incr resent [$tcp($i) set nrexmitpack_]
    incr all_cuts [expr {[info exists cuts($i)] ? $cuts($i) : [$tcp($i) set ncwndcuts_]}]
  }
  set used [expr {[$monitor set bdepartures_] * 8.0 / ($option(bw) * $option(dur))}]
  puts "{\"drops\": [expr {int([$monitor set pdrops_])}], \"retransmitted\": $resent, \"window_cuts\": $all_cuts, \"utilisation\": [format %.4f $used]}"
  exit 0
}
# Half a bin late, so that the last row is written.
$ns at [expr {$option(dur) + 0.5 * $option(bin)}] finish
$ns run
