-- Tollway's headers in Wireshark and tshark: ACP over UDP, the XCP options of TCP, the header of the XCP draft.
-- Put this file into a folder of plugins (Help, About, Folders), or: tshark -X lua_script:tollway.lua -r FILE

local PORT, DRAFT_PROTOCOL = 4717, 253

-- ACP: in front of each segment, over UDP.

local acp = Proto("tollway.acp", "Tollway ACP")

local flags = {
    { "data", "Data", 0x0001 }, { "ack", "Acknowledgement", 0x0002 }, { "syn", "Opens", 0x0004 },
    { "fin", "Ends", 0x0008 }, { "rst", "Reset", 0x0010 }, { "sack", "SACK ranges", 0x0020 },
    { "tolled", "Tolled", 0x0040 }, { "echo", "Echo", 0x0080 }, { "stamp_echo", "Stamp echo", 0x0100 },
    { "ect0", "ECN field, bit of ECT(0)", 0x0200 }, { "ect1", "ECN field, bit of ECT(1)", 0x0400 },
    { "ece", "Mark echoed", 0x0800 }, { "first", "First of its frame", 0x1000 },
    { "last", "Last of its frame", 0x2000 }, { "retransmit", "Sent before", 0x4000 },
    { "gap", "Toll met a silent router", 0x8000 },
}

local f = {
    magic = ProtoField.uint8("tollway.acp.magic", "Magic", base.HEX),
    version = ProtoField.uint8("tollway.acp.version", "Version", base.DEC, nil, 0xf0),
    ranges = ProtoField.uint8("tollway.acp.ranges", "SACK ranges", base.DEC, nil, 0x0f),
    flags = ProtoField.uint16("tollway.acp.flags", "Flags", base.HEX),
    flow = ProtoField.uint32("tollway.acp.flow", "Flow"),
    due = ProtoField.double("tollway.acp.due", "Due (what links write)"),
    rtt = ProtoField.float("tollway.acp.rtt", "Round trip (s)"),
    offer = ProtoField.float("tollway.acp.offer", "Offer"),
    stake = ProtoField.float("tollway.acp.stake", "Stake"),
    echo = ProtoField.float("tollway.acp.echo", "Echo"),
    seq = ProtoField.uint32("tollway.acp.seq", "Segment"),
    ack = ProtoField.uint32("tollway.acp.ack", "Expects"),
    window = ProtoField.uint32("tollway.acp.window", "Window (segments)"),
    sent = ProtoField.uint32("tollway.acp.sent", "Sent (64 ns)"),
    sent_echo = ProtoField.uint32("tollway.acp.sent_echo", "Echo of sent (64 ns)"),
    from = ProtoField.uint32("tollway.acp.sack.from", "Received from"),
    to = ProtoField.uint32("tollway.acp.sack.to", "Received up to, not included"),
}
for _, flag in ipairs(flags) do
    f["flag_" .. flag[1]] = ProtoField.bool("tollway.acp.flag." .. flag[1], flag[2], 16, nil, flag[3])
end
acp.fields = f

local LEN = 52

function acp.dissector(buffer, info, tree)
    if buffer:len() < LEN or buffer(0, 1):uint() ~= 0xa5 then return 0 end
    info.cols.protocol = "ACP"
    local count = buffer(1, 1):bitfield(4, 4)
    local length = math.min(LEN + 8 * count, buffer:len())
    local root = tree:add(acp, buffer(0, length))
    root:add(f.magic, buffer(0, 1))
    root:add(f.version, buffer(1, 1))
    root:add(f.ranges, buffer(1, 1))
    local set, word = {}, buffer(2, 2):uint()
    local branch = root:add(f.flags, buffer(2, 2))
    for _, flag in ipairs(flags) do
        branch:add(f["flag_" .. flag[1]], buffer(2, 2))
        if math.floor(word / flag[3]) % 2 == 1 then set[flag[1]] = true end
    end
    root:add(f.flow, buffer(4, 4))
    local toll = root:add(buffer(8, 24), "Toll")
    toll:add(f.due, buffer(8, 8))
    for at, name in pairs({ [16] = "rtt", [20] = "offer", [24] = "stake", [28] = "echo" }) do
        toll:add(f[name], buffer(at, 4))
    end
    for i, name in ipairs({ "seq", "ack", "window", "sent", "sent_echo" }) do
        root:add(f[name], buffer(28 + 4 * i, 4))
    end
    for i = 0, count - 1 do
        local at = LEN + 8 * i
        if at + 8 > buffer:len() then break end
        root:add(f.from, buffer(at, 4))
        root:add(f.to, buffer(at + 4, 4))
    end
    local says = {}
    for _, name in ipairs({ "syn", "fin", "rst" }) do
        if set[name] then says[#says + 1] = name:upper() end
    end
    if set.data then says[#says + 1] = "Seg=" .. buffer(32, 4):uint() end
    if set.ack then says[#says + 1] = "Ack=" .. buffer(36, 4):uint() end
    if set.ect0 and set.ect1 then says[#says + 1] = "CE" end
    if set.ece then says[#says + 1] = "ECE" end
    if set.retransmit then says[#says + 1] = "again" end
    if set.tolled then says[#says + 1] = string.format("Due=%g", buffer(8, 8):float()) end
    if set.echo then says[#says + 1] = string.format("Echo=%g", buffer(28, 4):float()) end
    info.cols.info = "Flow " .. buffer(4, 4):uint() .. " " .. table.concat(says, " ")
    return length
end

DissectorTable.get("udp.port"):add(PORT, acp)

-- The XCP draft's header, between IP and TCP.

local draft = Proto("tollway.xcp", "XCP congestion header")

local d = {
    protocol = ProtoField.uint8("tollway.xcp.protocol", "Next protocol"),
    length = ProtoField.uint8("tollway.xcp.length", "Length"),
    version = ProtoField.uint8("tollway.xcp.version", "Version of the draft", base.DEC, nil, 0xf0),
    format = ProtoField.uint8("tollway.xcp.format", "Format", base.DEC, { "standard", "minimal" }, 0x0f),
    rtt = ProtoField.double("tollway.xcp.rtt", "RTT (s)"),
    x = ProtoField.double("tollway.xcp.x", "X, time between packets (s)"),
    delta = ProtoField.int32("tollway.xcp.delta", "Delta_Throughput (bytes/s)"),
    reverse = ProtoField.int32("tollway.xcp.reverse", "Reverse_Feedback (bytes/s)"),
}
draft.fields = d

function draft.dissector(buffer, info, tree)
    if buffer:len() < 20 or buffer(1, 1):uint() ~= 20 then return 0 end
    local root = tree:add(draft, buffer(0, 20))
    local version = buffer(2, 1):bitfield(0, 4)
    local places = { rtt = 4, x = 8, delta = 12, reverse = 16 }
    if version ~= 2 then places = { x = 4, rtt = 8, reverse = 12, delta = 16 } end
    root:add(d.protocol, buffer(0, 1))
    root:add(d.length, buffer(1, 1))
    root:add(d.version, buffer(2, 1))
    root:add(d.format, buffer(2, 1))
    for _, name in ipairs({ "rtt", "x" }) do
        local bytes = buffer(places[name], 4)
        root:add(d[name], bytes, bytes:uint() / 2 ^ 28)
    end
    root:add(d.delta, buffer(places.delta, 4))
    root:add(d.reverse, buffer(places.reverse, 4))
    DissectorTable.get("ip.proto"):try(buffer(0, 1):uint(), buffer(20):tvb(), info, tree)
    return buffer:len()
end

DissectorTable.get("ip.proto"):add(DRAFT_PROTOCOL, draft)

-- The study's TCP options, 14 on the way there and 15 on the way back: Wireshark shows these kinds by other names.

local option = Proto("tollway.option", "XCP in TCP options")

local o = {
    feedback = ProtoField.double("tollway.option.feedback", "H_feedback (packets)"),
    rtt = ProtoField.uint16("tollway.option.rtt", "H_rtt (ms)"),
    cwnd = ProtoField.uint16("tollway.option.cwnd", "H_cwnd (packets)"),
    back = ProtoField.double("tollway.option.return", "Returned feedback (packets)"),
}
option.fields = o

local tcp_offset, tcp_source = Field.new("tcp.hdr_len"), Field.new("tcp.srcport")

option.prefs.integer = Pref.bool("Feedback in whole packets", false, "`feedback = \"integer\"` in the scenario")

-- A mantissa of 13 bits and an exponent of 3: m * 16^(e - 3).
local function packets(bytes)
    if option.prefs.integer then return bytes:int() end
    local mantissa, exponent = math.floor(bytes:int() / 8), bytes:uint() % 8
    return mantissa * 16 ^ (exponent - 3)
end

function option.dissector(buffer, _, tree)
    local length, start = tcp_offset(), tcp_source()
    if not length or not start then return end
    local from = start.offset
    local at, stop = from + 20, math.min(from + length.value, buffer:len())
    while at < stop do
        local kind = buffer(at, 1):uint()
        if kind == 0 then break end
        if kind == 1 then
            at = at + 1
        else
            if at + 1 >= stop then break end
            local size = buffer(at + 1, 1):uint()
            if size < 2 or at + size > stop then break end
            if kind == 14 and size == 8 then
                local root = tree:add(option, buffer(at, size))
                root:add(o.feedback, buffer(at + 2, 2), packets(buffer(at + 2, 2)))
                root:add(o.rtt, buffer(at + 4, 2))
                root:add(o.cwnd, buffer(at + 6, 2))
            elseif kind == 15 and size == 4 then
                local root = tree:add(option, buffer(at, size))
                root:add(o.back, buffer(at + 2, 2), packets(buffer(at + 2, 2)))
            end
            at = at + size
        end
    end
end

register_postdissector(option)
