//! Requests and their answers, against oracles that look at everything anew for each packet.

use std::path::PathBuf;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tailtap_analysis::evaluate;
use tailtap_analysis::transactions::{Counts, Found, Kind, Options, Transactions, transactions};

const START: u64 = 1_700_000_000_000_000_000;
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A frame of IPv4 from the client, or to it.
fn frame(from_client: bool, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let (from, to) = if from_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + transport.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    frame.extend([from, to].concat());
    frame.extend(transport);
    frame
}

fn echo(answers: bool, id: u16) -> Vec<u8> {
    let [a, b] = id.to_be_bytes();
    frame(!answers, ICMP, &[if answers { 0 } else { 8 }, 0, 0, 0, 0, 7, a, b])
}

fn udp(from_client: bool, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let (client, server) = ports;
    let (from, to) = if from_client { (client, server) } else { (server, client) };
    let mut datagram = [from, to, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
    datagram.extend(payload);
    frame(from_client, UDP, &datagram)
}

fn dns_message(answers: bool, id: u16) -> Vec<u8> {
    let flags = if answers { 0x8180 } else { 0x0100 };
    let mut message = [id, flags, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    message.extend(if answers { b"\x03wWw\x07EXAMPLE\0" } else { b"\x03www\x07example\0" });
    message.extend([0, 1, 0, 1]);
    message
}

fn dns(answers: bool, id: u16) -> Vec<u8> {
    udp(!answers, (40_000, 53), &dns_message(answers, id))
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

fn tcp(from_client: bool, numbers: (u32, u32), flags: u8, payload: &[u8]) -> Vec<u8> {
    segment(40_000, from_client, numbers, flags, payload)
}

fn segment(
    port: u16,
    from_client: bool,
    (seq, ack): (u32, u32),
    flags: u8,
    payload: &[u8],
) -> Vec<u8> {
    let (from, to) = if from_client { (port, 80) } else { (80, port) };
    let mut segment = [from, to].map(u16::to_be_bytes).concat();
    segment.extend([seq, ack].map(u32::to_be_bytes).concat());
    segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(payload);
    frame(from_client, TCP, &segment)
}

/// A packet: its time behind `START`, its bytes, and how many of them were captured.
type Packet = (u64, Vec<u8>, usize);

fn whole(time: u64, frame: Vec<u8>) -> Packet {
    let len = frame.len();
    (time, frame, len)
}

fn pcap(packets: &[Packet]) -> Vec<u8> {
    let mut file = [0xa1b2_3c4du32, 0x0004_0002, 0, 0, 65535, 1].map(u32::to_le_bytes).concat();
    for (time, frame, captured) in packets {
        let time = START + time;
        let (seconds, rest) = ((time / 1_000_000_000) as u32, (time % 1_000_000_000) as u32);
        let captured = (*captured).min(frame.len());
        let head = [seconds, rest, captured as u32, frame.len() as u32];
        file.extend(head.map(u32::to_le_bytes).concat());
        file.extend(&frame[..captured]);
    }
    file
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, packets: &[Packet]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, pcap(packets)).expect("writes");
        path
    }
}

fn options(window_ns: u64) -> Options {
    let matching = evaluate::Options { window_ns, ..evaluate::Options::default() };
    Options { matching, from_last: false }
}

fn evaluated(packets: &[Packet], options: &Options) -> Transactions {
    let files = Files::new();
    let path = files.write("one.pcap", packets);
    transactions(&path, None, options, &|| false).expect("reads")
}

fn of(found: &Transactions, kind: Kind) -> Option<&Found> {
    found.kinds.iter().find(|found| found.kind == kind)
}

/// Request and wait of each answered request, in the order of the requests.
fn waits(found: &Found) -> Vec<(u64, u64)> {
    let mut waits: Vec<(u64, u64)> =
        found.evaluation.worst.iter().map(|w| (w.ingress_ns - START, w.latency_ns)).collect();
    waits.sort_unstable();
    waits
}

fn adds_up(found: &Found) {
    let Counts { requests, answered, unanswered, open_at_end, refused, given_up, trimmed, .. } =
        found.counts;
    assert_eq!(
        requests,
        answered + unanswered + open_at_end + refused + given_up + trimmed,
        "{:?}",
        found.counts
    );
    assert_eq!(found.evaluation.latencies.count(), answered);
}

/// What an oracle keeps of a request.
struct Asked {
    id: u16,
    first: u64,
    start: u64,
    wait: Option<u64>,
}

/// Requests and answers as they come, each looked up among all before it.
fn oracle(events: &[(u64, bool, u16)], window: u64, from_last: bool) -> (Vec<Asked>, Counts) {
    let mut asked: Vec<Asked> = Vec::new();
    let mut counts = Counts::default();
    for &(time, answers, id) in events {
        let open = |one: &&mut Asked| one.id == id && time - one.start < window;
        let before = asked.iter_mut().rev().find(open);
        match (answers, before) {
            (false, Some(one)) if one.wait.is_none() => {
                counts.retransmitted += 1;
                if from_last {
                    one.start = time;
                }
            }
            (false, _) => asked.push(Asked { id, first: time, start: time, wait: None }),
            (true, Some(one)) if one.wait.is_none() => one.wait = Some(time - one.start),
            (true, Some(_)) => counts.repeated_answers += 1,
            (true, None) => counts.unmatched_answers += 1,
        }
    }
    counts.requests = asked.len() as u64;
    counts.answered = asked.iter().filter(|one| one.wait.is_some()).count() as u64;
    let end = events.last().map_or(0, |event| event.0);
    let open = |one: &&Asked| one.wait.is_none() && end - one.start < window;
    counts.open_at_end = asked.iter().filter(open).count() as u64;
    counts.unanswered = counts.requests - counts.answered - counts.open_at_end;
    (asked, counts)
}

/// What a connection of TCP speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Http,
    Dns,
    Http2,
}

/// A client that asks on a connection of its own.
#[derive(Clone, Debug)]
struct Client {
    speaks: Speaks,
    /// Whether requests are sent before those in front of them are answered.
    pipelines: bool,
    /// Whether each message is in two segments.
    splits: bool,
    /// Of each request the wait, and sizes of its body and of that of the answer.
    asks: Vec<(u64, usize, usize)>,
}

fn clients() -> impl Strategy<Value = Vec<Client>> {
    let speaks = prop_oneof![Just(Speaks::Http), Just(Speaks::Dns), Just(Speaks::Http2)];
    let asks = vec((1..400u64, 0..40usize, 0..60usize), 1..12);
    let client = (speaks, any::<bool>(), any::<bool>(), asks)
        .prop_map(|(speaks, pipelines, splits, asks)| Client { speaks, pipelines, splits, asks });
    vec(client, 1..4)
}

/// A message, and how many of its bytes tell when it was asked or answered.
fn message(speaks: Speaks, asks: bool, number: usize, size: usize) -> (Vec<u8>, usize) {
    let frame = |kind: u8, flags: u8, content: &[u8]| {
        let head = [0, 0, content.len() as u8, kind, flags, 0, 0, 0, 1 + 2 * number as u8];
        [&head, content].concat()
    };
    match speaks {
        Speaks::Http => {
            let first =
                if asks { format!("POST /{number} HTTP/1.1") } else { "HTTP/1.1 200 OK".into() };
            let header = format!("{first}\r\nContent-Length: {size}\r\n\r\n").into_bytes();
            let tells = if asks { header.len() } else { 1 };
            ([header, vec![b'x'; size]].concat(), tells)
        }
        Speaks::Dns => {
            let message = dns_message(!asks, number as u16);
            let whole = [&(message.len() as u16).to_be_bytes(), message.as_slice()].concat();
            let len = whole.len();
            (whole, len)
        }
        Speaks::Http2 => {
            let block: &[u8] = if asks { &[0x82, 0x86, 0x84] } else { &[0x88] };
            let header = frame(1, 4, block);
            let tells = if asks { header.len() } else { 1 };
            ([header, frame(0, 1, &vec![b'x'; size])].concat(), tells)
        }
    }
}

/// A request: its packets and those of its answer, and which of these tell the times of both.
struct Exchange {
    client: usize,
    asked: Vec<usize>,
    answered: Vec<usize>,
    times: (usize, usize),
}

/// All packets of clients and their server, and what they exchange.
fn talked(clients: &[Client]) -> (Vec<Packet>, Vec<Exchange>) {
    let (mut packets, mut exchanges) = (Vec::new(), Vec::new());
    for (which, client) in clients.iter().enumerate() {
        let (mut time, mut numbers) = (which as u64 + 1, [100u32, u32::MAX - 200]);
        let mut say = |from_client: bool, flags: u8, bytes: &[u8], wait: u64| -> usize {
            time += 10 * wait;
            let [own, other] = if from_client { [0, 1] } else { [1, 0] };
            let acknowledged = if flags & ACK == 0 { 0 } else { numbers[other] };
            let port = 40_000 + which as u16;
            let ends = (numbers[own], acknowledged);
            packets.push(whole(time, segment(port, from_client, ends, flags, bytes)));
            let len = bytes.len() as u32 + u32::from(flags & SYN != 0);
            numbers[own] = numbers[own].wrapping_add(len);
            packets.len() - 1
        };
        say(true, SYN, b"", 1);
        say(false, SYN | ACK, b"", 1);
        say(true, ACK, b"", 1);
        if client.speaks == Speaks::Http2 {
            say(true, ACK, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 1);
        }
        let mut tell = |asks: bool, number: usize, (wait, size): (u64, usize)| {
            let (bytes, tells) = message(client.speaks, asks, number, size);
            let cut = if client.splits { bytes.len() / 2 } else { bytes.len() };
            let parts = [&bytes[..cut], &bytes[cut..]];
            let parts = parts.iter().filter(|part| !part.is_empty()).enumerate();
            let places: Vec<usize> = parts
                .map(|(place, part)| say(asks, ACK, part, if place == 0 { wait } else { 1 }))
                .collect();
            let time = places[usize::from(tells > cut)];
            (places, time)
        };
        let rounds = client.asks.chunks(if client.pipelines { 3 } else { 1 }).enumerate();
        for (round, asks) in rounds {
            let first = round * if client.pipelines { 3 } else { 1 };
            let told: Vec<_> = asks
                .iter()
                .enumerate()
                .map(|(place, (_, up, _))| tell(true, first + place, (5, *up)))
                .collect();
            for (place, ((asked, start), (wait, _, down))) in told.into_iter().zip(asks).enumerate()
            {
                let (answered, end) = tell(false, first + place, (*wait, *down));
                exchanges.push(Exchange { client: which, asked, answered, times: (start, end) });
            }
        }
    }
    (packets, exchanges)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Of captures that lack packets, bytes, their beginnings and ends, every pair that is told is one;
    /// where messages are whole or gone, all of them are told. What was asked adds up.
    #[test]
    fn what_was_not_captured_changes_no_other_wait(
        clients in clients(),
        drops in vec(any::<Index>(), 0..10),
        edges in proptest::option::of((any::<Index>(), any::<Index>())),
        snap in proptest::option::weighted(0.3, 54..180usize),
    ) {
        let (packets, exchanges) = talked(&clients);
        let mut captured = vec![true; packets.len()];
        drops.iter().for_each(|drop| captured[drop.index(packets.len())] = false);
        let mut order: Vec<usize> = (0..packets.len()).collect();
        order.sort_by_key(|place| packets[*place].0);
        if let Some((begin, end)) = edges {
            let (begin, end) = (begin.index(order.len()), end.index(order.len()));
            order[..begin.min(end)].iter().for_each(|place| captured[*place] = false);
            order[begin.max(end)..].iter().for_each(|place| captured[*place] = false);
        }
        let kept = order.iter().filter(|place| captured[**place]).map(|place| {
            let (time, frame, len) = packets[*place].clone();
            (time, frame, snap.map_or(len, |snap| len.min(snap)))
        });
        let found = evaluated(&kept.collect::<Vec<_>>(), &options(1_000_000_000));
        found.kinds.iter().for_each(adds_up);
        for kind in [Kind::Http, Kind::Dns] {
            let of_kind = |one: &&Exchange| (clients[one.client].speaks == Speaks::Dns) == (kind == Kind::Dns);
            let told = of(&found, kind).map(waits).unwrap_or_default();
            let pair = |one: &Exchange| {
                let (start, end) = one.times;
                (packets[start].0, packets[end].0 - packets[start].0)
            };
            let all = |places: &[usize]| places.iter().all(|place| captured[*place]);
            let true_pairs: Vec<_> = exchanges.iter().filter(of_kind).map(pair).collect();
            let untrue = |one: &&(u64, u64)| !true_pairs.contains(one);
            // What a client sent in front of a capture that begins with its further requests nobody knows.
            let known = |one: &&(u64, u64)| {
                let client = one.0 as usize % 10 - 1;
                let opens = (0..packets.len()).find(|place| packets[*place].0 as usize % 10 == client + 1);
                !clients[client].pipelines || edges.is_none() && opens.is_some_and(|at| captured[at])
            };
            // Of a header in two packets that were both cut, the first one counts.
            if snap.is_none() || clients.iter().all(|client| !client.splits) {
                let wrong = told.iter().filter(known).find(untrue);
                prop_assert!(wrong.is_none(), "{wrong:?} of {true_pairs:?}");
            }
            let clear = snap.is_none() && clients.iter().all(|client| !client.splits && !client.pipelines);
            if clear {
                let whole = |one: &&Exchange| all(&one.asked) && all(&one.answered);
                let mut pairs: Vec<_> =
                    exchanges.iter().filter(of_kind).filter(whole).map(pair).collect();
                pairs.sort_unstable();
                prop_assert_eq!(told, pairs);
                let asked = exchanges.iter().filter(of_kind).filter(|one| all(&one.asked)).count();
                prop_assert_eq!(of(&found, kind).map_or(0, |one| one.counts.requests), asked as u64);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Loss, retransmission, repeated answers and ids that are used again.
    #[test]
    fn datagrams_are_matched_as_one_by_one(
        steps in vec((0..40u64, any::<bool>(), 0..6u16), 1..120),
        from_last in any::<bool>(),
        by_dns in any::<bool>(),
        two in any::<bool>(),
    ) {
        const WINDOW: u64 = 100;
        let mut time = 0;
        let events: Vec<(u64, bool, u16)> = steps
            .iter()
            .map(|&(step, answers, id)| {
                time += step;
                (time, answers, id)
            })
            .collect();
        let make = if by_dns { dns } else { echo };
        let packet = |event: &(u64, bool, u16)| whole(event.0, make(event.1, event.2));
        let mut options = options(WINDOW);
        options.from_last = from_last;
        let files = Files::new();
        // Of two captures, requests come before answers of the same time.
        let mut events = events;
        let found = if two {
            events.sort_by_key(|event| (event.0, event.1));
            let side = |answers| -> Vec<Packet> {
                events.iter().filter(|event| event.1 == answers).map(packet).collect()
            };
            let (first, second) =
                (files.write("a.pcap", &side(false)), files.write("b.pcap", &side(true)));
            transactions(&first, Some((&second).into()), &options, &|| false)
        } else {
            let packets: Vec<Packet> = events.iter().map(packet).collect();
            transactions(&files.write("one.pcap", &packets), None, &options, &|| false)
        };
        let found = found.expect("reads");
        let (asked, expected) = oracle(&events, WINDOW, from_last);
        let found = of(&found, if by_dns { Kind::Dns } else { Kind::IcmpEcho }).expect("the kind");
        adds_up(found);
        let Counts { requests, answered, unanswered, open_at_end, retransmitted, repeated_answers,
                     unmatched_answers, .. } = found.counts;
        let counts = Counts { requests, answered, unanswered, open_at_end, retransmitted,
                              repeated_answers, unmatched_answers, ..Counts::default() };
        prop_assert_eq!(counts, expected);
        let mut expected: Vec<(u64, u64)> =
            asked.iter().filter_map(|one| Some((one.start, one.wait?))).collect();
        expected.sort_unstable();
        prop_assert_eq!(waits(found), expected);
        prop_assert!(asked.iter().all(|one| one.first <= one.start));
    }

    /// HTTP in segments of any size, which come out of order, twice, and late.
    #[test]
    fn pipelined_http_is_matched_whatever_the_segments(
        bodies in vec((0..30usize, 0..60usize, 0..4u8), 1..6),
        cuts in vec(any::<Index>(), 0..24),
        again in vec((any::<Index>(), 1..30u64), 0..6),
        swaps in vec(any::<Index>(), 0..6),
        begins in any::<u32>(),
        handshake in any::<bool>(),
    ) {
        let (mut client, mut server) = (Vec::new(), Vec::new());
        let (mut requests, mut responses) = (Vec::new(), Vec::new());
        for &(up, down, form) in &bodies {
            let method = if form == 3 { "HEAD" } else { "POST" };
            client.extend(format!("{method} /x HTTP/1.1\r\nContent-Length: {up}\r\n\r\n").bytes());
            requests.push(client.len() - 1);
            client.extend(vec![b'G'; up]);
            if form == 2 {
                server.extend(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            responses.push(server.len());
            if form == 1 {
                let chunks = format!(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{down:x}\r\n{}\r\n0\r\n\r\n",
                    "H".repeat(down)
                );
                // A chunk of nothing is the last one.
                let end = if down == 0 { chunks.len() - 7 } else { chunks.len() };
                server.extend(&chunks.as_bytes()[..end]);
                if down == 0 {
                    server.extend(b"\r\n");
                }
            } else {
                server.extend(format!("HTTP/1.1 200 OK\r\nContent-Length: {down}\r\n\r\n").bytes());
                server.extend(vec![b'H'; if form == 3 { 0 } else { down }]);
            }
        }
        let cut = |length: usize| {
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(length + 1)).collect();
            places.extend([0, length]);
            places.sort_unstable();
            places.dedup();
            places.windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>()
        };
        let mut packets: Vec<Packet> = Vec::new();
        let mut time = 0;
        if handshake {
            packets.push(whole(0, tcp(true, (begins.wrapping_sub(1), 0), SYN, b"")));
            packets.push(whole(5, tcp(false, (99, begins), SYN | ACK, b"")));
        }
        // When all bytes up to each one were here, in the direction.
        let mut sent = |from_client: bool, stream: &[u8], base: u32| -> Vec<u64> {
            let mut segments = cut(stream.len());
            for swap in &swaps {
                let at = swap.index(segments.len());
                if at > 0 && (handshake || at > 1) {
                    segments.swap(at - 1, at);
                }
            }
            let mut here = vec![u64::MAX; stream.len()];
            let mut deliver = |time: u64, (from, until): (usize, usize)| {
                let number = base.wrapping_add(from as u32);
                packets.push(whole(time, tcp(from_client, (number, 0), 0, &stream[from..until])));
                here[from..until].iter_mut().for_each(|byte| *byte = (*byte).min(time));
            };
            for (place, segment) in segments.iter().enumerate() {
                time += 100;
                deliver(time, *segment);
                for (which, later) in &again {
                    if which.index(segments.len()) == place {
                        deliver(time + later, *segment);
                    }
                }
            }
            let mut latest = 0;
            here.iter().map(|time| { latest = latest.max(*time); latest }).collect()
        };
        let asked = sent(true, &client, begins);
        let answered = sent(false, &server, 100);
        packets.sort_by_key(|packet| packet.0);
        let found = evaluated(&packets, &options(1_000_000_000));
        let found = of(&found, Kind::Http).expect("the kind");
        adds_up(found);
        let mut expected: Vec<(u64, u64)> = requests
            .iter()
            .zip(&responses)
            .map(|(request, response)| (asked[*request], answered[*response] - asked[*request]))
            .collect();
        expected.sort_unstable();
        prop_assert_eq!(waits(found), expected);
    }

    /// Whatever the bytes of a packet are, and however it was cut, all counts add up.
    #[test]
    fn damaged_packets_are_no_reason_to_stop(
        packets in vec((0..9usize, vec((any::<Index>(), any::<u8>()), 0..5), any::<Index>()), 1..60),
        two in any::<bool>(),
        field in any::<bool>(),
    ) {
        let hello = b"\x16\x03\x01\x00\x06\x01\0\0\x02\x03\x03";
        let answer = b"\x16\x03\x03\x00\x06\x02\0\0\x02\x03\x03\x17\x03\x03\x00\x01x";
        let mut quic = vec![0; 1250];
        quic[..7].copy_from_slice(&[0xc0, 0, 0, 0, 1, 1, 9]);
        let mut ptp = vec![0; 60];
        ptp[..2].copy_from_slice(&[1, 2]);
        let templates: Vec<Vec<u8>> = vec![
            dns(false, 1),
            dns(true, 1),
            tcp(true, (1, 0), ACK, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"),
            tcp(false, (1, 50), ACK, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 2"),
            tcp(true, (1, 0), ACK, hello),
            tcp(false, (1, 12), ACK | FIN, answer),
            tcp(true, (1, 0), SYN | RST, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x01\x01\0\0\0\0\x01x"),
            udp(true, (5, 443), &quic),
            udp(true, (319, 319), &ptp),
        ];
        let made: Vec<Packet> = packets
            .iter()
            .enumerate()
            .map(|(number, (template, changes, cut))| {
                let mut frame = templates[*template].clone();
                for (place, byte) in changes {
                    let place = place.index(frame.len());
                    frame[place] = *byte;
                }
                let captured = frame.len() - cut.index(frame.len()) * (number % 3) / 2;
                (number as u64 * 50, frame, captured)
            })
            .collect();
        let mut options = options(400);
        options.matching.key = field.then(|| "42:1:be".parse().expect("a key"));
        options.matching.trim_ns = 60;
        let files = Files::new();
        let (first, second) = (files.write("a.pcap", &made), files.write("b.pcap", &made));
        let second = two.then(|| (&second).into());
        let found = transactions(&first, second, &options, &|| false).expect("reads");
        found.kinds.iter().for_each(adds_up);
    }
}

#[test]
fn a_connection_is_refused_completed_or_left_half_open() {
    let packets = [
        whole(0, tcp(true, (10, 0), SYN, b"")),
        whole(30, tcp(false, (0, 11), RST | ACK, b"")),
        whole(100, tcp(true, (20, 0), SYN, b"")),
        whole(140, tcp(true, (20, 0), SYN, b"")),
        whole(150, tcp(false, (70, 21), SYN | ACK, b"")),
        whole(160, tcp(false, (70, 21), SYN | ACK, b"")),
        whole(170, tcp(true, (21, 71), ACK, b"")),
        whole(200, tcp(true, (30, 0), SYN, b"")),
        whole(230, tcp(false, (80, 31), SYN | ACK, b"")),
    ];
    let found = evaluated(&packets, &options(1_000));
    let found = of(&found, Kind::TcpHandshake).expect("handshakes");
    adds_up(found);
    assert_eq!(waits(found), [(100, 50), (200, 30)]);
    let Counts { refused, retransmitted, repeated_answers, half_open, .. } = found.counts;
    assert_eq!((refused, retransmitted, repeated_answers, half_open), (1, 1, 1, 1));
}

#[test]
fn packets_that_are_out_of_order_are_sorted() {
    let mut packets: Vec<Packet> = (0..20_000u16)
        .flat_map(|id| {
            let time = u64::from(id) * 1_000;
            [whole(time, echo(false, id)), whole(time + 70, echo(true, id))]
        })
        .collect();
    packets.chunks_mut(100).for_each(<[Packet]>::reverse);
    let found = evaluated(&packets, &options(1_000_000));
    let found = of(&found, Kind::IcmpEcho).expect("pings");
    assert_eq!(found.counts.answered, 20_000);
    assert_eq!(found.evaluation.latencies.counts().collect::<Vec<_>>(), [(70, 20_000)]);
    assert!(found.evaluation.warnings.iter().any(|one| one.code == "timestamps-backwards"));
    // One that stands at the end of the file, and belongs to its beginning.
    let first = packets.remove(99);
    packets.push(first);
    // All answers behind all requests, as where one file was appended to another.
    let (requests, answers): (Vec<_>, Vec<_>) =
        packets.iter().cloned().partition(|(time, ..)| time % 1_000 == 0);
    for packets in [packets, [requests, answers].concat()] {
        let found = evaluated(&packets, &options(1_000_000));
        assert!(!found.warnings.iter().any(|one| one.message.contains("left out")));
        let found = of(&found, Kind::IcmpEcho).expect("pings");
        assert_eq!(found.evaluation.latencies.counts().collect::<Vec<_>>(), [(70, 20_000)]);
    }
}

#[test]
fn requests_that_wait_when_the_capture_ends_are_told() {
    let packets = [
        whole(0, echo(false, 1)),
        whole(5_000, echo(false, 2)),
        whole(5_300, echo(true, 2)),
        whole(5_900, echo(false, 3)),
    ];
    let found = evaluated(&packets, &options(1_000));
    let found = of(&found, Kind::IcmpEcho).expect("pings");
    assert_eq!((found.counts.unanswered, found.counts.open_at_end), (1, 1));
    assert_eq!(found.evaluation.warnings[0].code, "open-requests");
}

#[test]
fn a_gap_in_a_body_is_passed_over_and_one_in_a_header_gives_requests_up() {
    let ask = b"GET / HTTP/1.1\r\n\r\n";
    let len = ask.len() as u32;
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    let head = response.len() as u32;
    let body = [response.as_slice(), &[b'x'; 100]].concat();
    let packets = |gap: u32| {
        let next = 1 + head + 1000;
        [
            whole(0, tcp(true, (1, 1), ACK, ask)),
            whole(100, tcp(false, (1, 1 + len), ACK, &body)),
            // What lies between was not captured; the client acknowledges it.
            whole(200, tcp(false, (next - 300 + gap, 1 + len), ACK, &vec![b'y'; 300])),
            whole(300, tcp(true, (1 + len, next + gap), ACK, ask)),
            whole(450, tcp(false, (next + gap, 1 + 2 * len), ACK, response)),
        ]
    };
    let found = evaluated(&packets(0), &options(1_000_000));
    let found = of(&found, Kind::Http).expect("requests");
    assert_eq!(waits(found), [(0, 100), (300, 150)]);
    // The body is longer than the header says: what follows it cannot be told.
    let found = evaluated(&packets(50), &options(1_000_000));
    let found = of(&found, Kind::Http).expect("requests");
    adds_up(found);
    assert_eq!(waits(found), [(0, 100), (300, 150)]);
}
