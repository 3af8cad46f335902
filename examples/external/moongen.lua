--- Sends UDP packets with MoonSniff's ids at a constant rate, then ends.
-- For MoonGen (github.com/emmericp/MoonGen) and its libmoon.

local lm      = require "libmoon"
local device  = require "device"
local memory  = require "memory"
local limiter = require "software-ratecontrol"

local TYPE = 0x55

function configure(parser)
	parser:description("Sends packets with ids at a constant rate.")
	parser:option("-r --rate", "Packets a second."):convert(tonumber):default(10000)
	parser:option("-n --packets", "How many."):convert(tonumber):default(100000)
	parser:option("-s --size", "Bytes of each, check sequence included."):convert(tonumber):default(64)
	return parser:parse()
end

function master(args)
	local dev = device.config{port = 0, txQueues = 1}
	device.waitForLinks()
	local queue = dev:getTxQueue(0)
	-- The gap in nanoseconds; the limiter runs on a core of its own.
	local pace = limiter:new(queue, "cbr", 1e9 / args.rate)
	lm.startTask("send", pace, args.packets, args.size - 4):wait()
	lm.stop()
	lm.waitForTasks()
end

function send(pace, packets, length)
	local mempool = memory.createMemPool(function(buf)
		buf:getUdpPacket():fill{
			pktLength = length,
			ethSrc = "02:74:74:00:00:01", ethDst = "02:74:74:00:00:02",
			ip4Src = "10.0.0.1", ip4Dst = "10.1.0.1",
			udpSrc = 1024, udpDst = 53,
		}
	end)
	local bufs = mempool:bufArray()
	local id = 0
	while lm.running() and id < packets do
		bufs:alloc(length)
		local count = math.min(bufs.size, packets - id)
		for i = 1, count do
			local payload = bufs[i]:getUdpPacket().payload
			payload.uint32[0] = id -- little-endian, as the machine
			payload.uint8[4] = TYPE
			id = id + 1
		end
		bufs:offloadUdpChecksums()
		pace:sendN(bufs, count)
	end
	-- What the limiter still holds.
	lm.sleepMillis(500)
end
