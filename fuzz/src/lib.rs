//! What must hold for any bytes, one function for each fuzz target.
//!
//! The fuzzer calls these functions with bytes that it makes up; `crates/analysis/tests/corpus.rs`
//! calls them with the inputs that are kept in `fuzz/corpus`.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Cursor, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bzip2::read::MultiBzDecoder;
use bzip2::write::BzEncoder;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzReader, XzWriter};
use tailtap_analysis::capture::{Capture, CaptureError, Content, Damage, Format, Skipped, Unread};
use tailtap_analysis::clocks::Clocks;
use tailtap_analysis::evaluate::{
    EvaluateError, Evaluation, Options, Partial, Piece, Stamps, evaluate, plan,
};
use tailtap_analysis::key::{
    Extract, Field, Keeps, KeyKind, Moonsniff, NoKey, Packet, Signatures, cut,
};
use tailtap_analysis::transactions;
use tailtap_wire::inner::{Inner, Kind};
use tailtap_wire::link::Link;
use tailtap_wire::{ethernet, vlan};

/// Stands between the two captures of an input of the target `pair`.
pub const SEPARATOR: &[u8] = b"\nEGRESS\n";

const KEYS: [Option<&str>; 6] = [
    None,
    Some("moonsniff"),
    Some("signature"),
    Some("42:4:le"),
    Some("15:1:be"),
    Some("udp.payload+0:4:le"),
];
/// That of the same packets behind the device, if any of these is to be found elsewhere there.
const AFTER: &str = "-18:4:le";

/// About so many ways of cutting a frame are tried.
const CUTS: usize = 16;

/// Numbers whose place does not depend on what stands in front of the innermost packet.
static NUMBERS: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let keys = "ip+0:8:be ip.id udp.srcport udp+6:2:le tcp.seq icmp.seq sctp+4:4:be esp.seq \
                udp.payload+0:4:le tcp.payload+3:8:le payload+0:1:be -4:4:le -12:3:be";
    keys.split(' ').map(|key| key.parse().expect("a number")).collect()
});

/// How a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Zstandard.
    Zstd,
    /// gzip.
    Gzip,
    /// xz.
    Xz,
    /// Frames of lz4.
    Lz4,
    /// bzip2.
    Bzip2,
}

/// A file in memory without a name: nothing is left behind when the fuzzer ends the process.
struct Scratch {
    file: File,
    path: PathBuf,
}

impl Scratch {
    fn new(bytes: &[u8]) -> Self {
        let file = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
        file.write_all_at(bytes, 0).expect("room for the input");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Self { file, path }
    }

    fn replace(&self, bytes: &[u8]) {
        self.file.set_len(0).expect("emptied");
        self.file.write_all_at(bytes, 0).expect("room for the input");
    }
}

/// What came out of a capture.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    packets: u64,
    /// Hash of all packets.
    content: u64,
    damage: Option<Damage>,
    skipped: Skipped,
    unread: Unread,
}

/// Reads a whole capture, asking for so many packets at a time, in turn.
fn read(path: &Path, format: Option<Format>, steps: &[usize]) -> Result<Outcome, CaptureError> {
    let mut capture = Capture::open(path, format)?;
    let mut hash = DefaultHasher::new();
    let mut packets = 0;
    for &step in steps.iter().cycle() {
        let mut taken = 0;
        let more = capture.read(step, |packet| {
            taken += 1;
            packet.time_ns.hash(&mut hash);
            match packet.content {
                Content::Frame { bytes, wire_len, link } => (bytes, wire_len, link).hash(&mut hash),
                Content::Id(id) => id.hash(&mut hash),
                Content::Mark { key, wire_len } => (key, wire_len).hash(&mut hash),
            }
        })?;
        assert!(taken <= step, "{taken} packets where {step} were asked for");
        packets += taken as u64;
        if !more {
            break;
        }
        assert_eq!(taken, step, "fewer packets than asked for before the end");
    }
    assert!(!capture.read(1, |_| panic!("a packet after the end"))?);
    let notes = capture.notes();
    assert_eq!(notes.packets, packets);
    let (damage, skipped) = (notes.damage.clone(), notes.skipped.clone());
    Ok(Outcome { packets, content: hash.finish(), damage, skipped, unread: notes.unread })
}

/// The outcome, errors as text. It must be the same however many packets are asked for at a time.
fn outcome(path: &Path, format: Option<Format>) -> Result<Outcome, String> {
    let text = |error: CaptureError| error.to_string();
    let found = read(path, format, &[1 << 16]).map_err(text);
    assert_eq!(read(path, format, &[1, 2, 300]).map_err(text), found);
    let message = match &found {
        Ok(outcome) => outcome.damage.as_ref().map_or("", |damage| &damage.why),
        Err(message) => message,
    };
    assert!(!message.contains('\n'), "more than one line: {message}");
    found
}

fn compression(bytes: &[u8]) -> Option<Compression> {
    match bytes {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
        [0x1f, 0x8b, ..] => Some(Compression::Gzip),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Compression::Xz),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some(Compression::Lz4),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..]
        | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, ..] => Some(Compression::Bzip2),
        _ => None,
    }
}

/// `bytes` as a compressed file.
pub fn compress(bytes: &[u8], how: Compression) -> Vec<u8> {
    match how {
        Compression::Zstd => zstd::bulk::compress(bytes, 1).expect("compresses"),
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).expect("compresses");
            encoder.finish().expect("compresses")
        }
        Compression::Xz => {
            let mut encoder =
                XzWriter::new(Vec::new(), XzOptions::with_preset(0)).expect("an encoder");
            encoder.write_all(bytes).expect("compresses");
            encoder.finish().expect("compresses")
        }
        Compression::Lz4 => {
            let mut encoder = lz4::EncoderBuilder::new().build(Vec::new()).expect("an encoder");
            encoder.write_all(bytes).expect("compresses");
            let (file, done) = encoder.finish();
            done.expect("compresses");
            file
        }
        Compression::Bzip2 => {
            let mut encoder = BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(bytes).expect("compresses");
            encoder.finish().expect("compresses")
        }
    }
}

/// All frames of a whole lz4 file; at most so many bytes.
fn frames_of_lz4(mut bytes: &[u8], limit: u64) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    while !bytes.is_empty() && content.len() as u64 <= limit {
        let mut frame = lz4::Decoder::new(bytes).ok()?;
        Read::by_ref(&mut frame).take(limit).read_to_end(&mut content).ok()?;
        let (rest, whole) = frame.finish();
        whole.ok()?;
        bytes = rest;
    }
    Some(content)
}

/// What a compressed file holds, if it is whole and that is at most `limit` bytes.
pub fn decompress(bytes: &[u8], limit: usize) -> Option<(Compression, Vec<u8>)> {
    let how = compression(bytes)?;
    let reader: Box<dyn Read + '_> = match how {
        Compression::Zstd => Box::new(zstd::Decoder::new(bytes).ok()?),
        Compression::Gzip => Box::new(MultiGzDecoder::new(bytes)),
        Compression::Xz => Box::new(XzReader::new_mem_limit(bytes, true, 1 << 18)),
        Compression::Lz4 => Box::new(Cursor::new(frames_of_lz4(bytes, limit as u64 + 1)?)),
        Compression::Bzip2 => Box::new(MultiBzDecoder::new(bytes)),
    };
    let mut content = Vec::new();
    reader.take(limit as u64 + 1).read_to_end(&mut content).ok()?;
    (content.len() <= limit).then_some((how, content))
}

/// Any bytes as a capture of a known format: they are read to their end or refused in one line,
/// and the same way from a map of the file as from a compressed stream.
pub fn capture(bytes: &[u8], format: Format) {
    let file = Scratch::new(bytes);
    let found = outcome(&file.path, Some(format));
    // What looks like a compression that is not undone is refused only where the file begins.
    let foreign = matches!(&found, Err(why) if why.contains("which tailtap does not undo"));
    if !bytes.is_empty() && compression(bytes).is_none() && !foreign {
        file.replace(&compress(bytes, Compression::Zstd));
        let steps = &[1 << 16];
        assert_eq!(read(&file.path, Some(format), steps).map_err(|e| e.to_string()), found);
    }
}

/// Any bytes as a compressed capture: they are read to their end or refused in one line, and what
/// can be decompressed gives the same packets as when it was never compressed.
pub fn compressed(bytes: &[u8]) {
    const LIMIT: usize = 1 << 20;
    let file = Scratch::new(bytes);
    for format in [None, Some(Format::Mscap)] {
        file.replace(bytes);
        let found = outcome(&file.path, format);
        if let Some((_, content)) = decompress(bytes, LIMIT)
            && !content.is_empty()
            && compression(&content).is_none()
        {
            file.replace(&content);
            assert_eq!(outcome(&file.path, format), found);
        }
    }
}

/// Any bytes as a byte of options and two captures: evaluating them with any key ends in a
/// refusal of one line, or in numbers that agree with each other.
pub fn pair(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let at = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
    let Some(at) = at else { return };
    let ingress = Scratch::new(&rest[..at]);
    let egress = Scratch::new(&rest[at + SEPARATOR.len()..]);
    let bit = |number: u8| choice >> number & 1 == 1;
    for key in KEYS {
        let options = Options {
            key: key.map(|key| sided(key, bit(0))),
            trim_ns: if bit(0) { 20_000 } else { 0 },
            window_ns: if bit(1) { 50_000 } else { 5_000_000_000 },
            worst: if bit(2) { 3 } else { 5000 },
            ingress_format: bit(3).then_some(Format::Mscap),
            egress_format: bit(4).then_some(Format::Mscap),
            clocks: Clocks::new(vec![(2_000, 1_000)], 700).filter(|_| bit(5)),
            nanoseconds: [bit(6), bit(7)],
            losses: true,
            flows: bit(2),
            stamps: (bit(0) && bit(1)).then_some(Stamps::Trailer),
            throughout: bit(2),
        };
        match evaluate(&ingress.path, &egress.path, &options, &|| false) {
            Ok(found) => {
                agrees(found, options.worst);
                merges(&ingress.path, &egress.path, &options);
            }
            Err(EvaluateError::Cancelled) => panic!("nobody cancelled"),
            Err(error) => {
                let message = error.to_string();
                assert!(!message.contains('\n'), "more than one line: {message}");
            }
        }
    }
}

/// A key; a number of four bytes elsewhere behind the device, if so asked for.
fn sided(key: &str, elsewhere: bool) -> KeyKind {
    let before: KeyKind = key.parse().expect("a key");
    let after = before.and_after(AFTER.parse().expect("a key"));
    after.ok().filter(|_| elsewhere).unwrap_or(before)
}

/// Any bytes as a frame: it has a key of each kind or none, the same one behind further tags and in
/// front of padding, and what a capture cut off is missed.
pub fn packet(frame: &[u8]) {
    let whole = |bytes| key_of(bytes, frame.len());
    let found = Inner::of(frame, Link::Ethernet);
    let mut headers = Vec::new();
    assert_eq!(Inner::seen(frame, Link::Ethernet, |kind, at| headers.push((kind, at))), found);
    if let Some(inner) = found {
        assert!(headers.contains(&(Kind::Ip, inner.network)));
        assert!(inner.network < inner.transport && inner.network < inner.end);
    }
    let keys = whole(frame);
    // Padding behind the packet is no part of it.
    let padded = [frame, &[0xee; 30]].concat();
    if let Some(inner) = found.filter(|&inner| Inner::of(&padded, Link::Ethernet) == Some(inner))
        && inner.end <= frame.len()
    {
        let padded = key_of(&padded, padded.len());
        for (key, (before, after)) in keys.iter().zip(padded).enumerate() {
            assert!(
                *before == after || before.is_err(),
                "key {key}, padded: {before:?}, {after:?}"
            );
        }
    }
    // Nor is a tag in front of it.
    if let (Some(inner), Some((addresses, rest))) =
        (found, frame.split_at_checked(ethernet::ADDRESSES_LEN))
    {
        let tagged = [addresses, &[0x81, 0x00, 0xe0, 7], rest].concat();
        let moved = (inner.network + vlan::LEN, inner.end + vlan::LEN);
        if Inner::of(&tagged, Link::Ethernet).map(|inner| (inner.network, inner.end)) == Some(moved)
        {
            assert_eq!(key_of(&tagged, tagged.len()), keys, "behind a tag");
        }
    }
    // What was cut off is missed, or not needed.
    for len in (0..frame.len()).step_by(1 + frame.len() / CUTS) {
        let short = &frame[..len];
        let same = Inner::of(short, Link::Ethernet) == found;
        if let (Some(inner), Some(captured), true) = (found, cut(short, Link::Ethernet), same) {
            assert!(captured as usize <= len && inner.end > len);
            for keeps in Keeps::ALL {
                let key = |bytes| {
                    let packet = Packet { keeps, most: captured };
                    extract(packet, bytes, frame.len())
                };
                assert_eq!(key(short), key(frame), "{keeps:?} of {len} bytes");
            }
        }
        for (key, (cut, whole)) in whole(short).into_iter().zip(&keys).enumerate() {
            assert!(
                cut.is_err() || cut == *whole || !same || found.is_none(),
                "key {key} of {len} bytes: {cut:?}, {whole:?}"
            );
        }
    }
}

/// What a packet is matched by, by each key that follows it.
fn key_of(bytes: &[u8], wire_len: usize) -> Vec<Result<u64, NoKey>> {
    let packets = Keeps::ALL.map(|keeps| extract(Packet::new(keeps), bytes, wire_len));
    let numbers = NUMBERS.iter().map(|&field| extract(field, bytes, wire_len));
    // These look at the outermost headers.
    let _ = (extract(Signatures, bytes, wire_len), extract(Moonsniff, bytes, wire_len));
    packets.into_iter().chain(numbers).collect()
}

fn extract<X: Extract>(extract: X, bytes: &[u8], wire_len: usize) -> Result<u64, NoKey> {
    let content = Content::Frame { bytes, wire_len: wire_len as u32, link: Link::Ethernet };
    let (key, shown) = extract.extract(content)?;
    assert!(!X::name(key, shown).to_string().contains('\n'));
    Ok(key)
}

/// Any bytes as a byte of options and one capture or two: the requests and answers in them end in a refusal
/// of one line, or in numbers that agree with each other.
pub fn waits(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let at = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
    let first = Scratch::new(&rest[..at.unwrap_or(rest.len())]);
    let second = at.map(|at| Scratch::new(&rest[at + SEPARATOR.len()..]));
    let second = second.as_ref().map(|file| (&file.path).into());
    let bit = |number: u8| choice >> number & 1 == 1;
    let matching = Options {
        key: bit(0).then(|| "42:2:be".parse().expect("a key")),
        trim_ns: if bit(1) { 20_000 } else { 0 },
        window_ns: if bit(2) { 50_000 } else { 5_000_000_000 },
        ..Options::default()
    };
    let options = transactions::Options { matching, from_last: bit(3) };
    match transactions::transactions(&first.path, second, &options, &|| false) {
        Ok(found) => {
            for kind in found.kinds {
                let counts = kind.counts;
                let known =
                    counts.answered + counts.unanswered + counts.open_at_end + counts.refused;
                assert_eq!(known + counts.given_up + counts.trimmed, counts.requests, "{counts:?}");
                assert_eq!(kind.evaluation.latencies.count(), counts.answered);
                assert_eq!(kind.evaluation.counts.matched, counts.answered);
            }
            assert!(found.warnings.iter().all(|warning| !warning.message.contains('\n')));
        }
        Err(EvaluateError::Cancelled) => panic!("nobody cancelled"),
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains('\n'), "more than one line: {message}");
        }
    }
}

/// Evaluated in pieces, if that is possible, the captures give the same.
fn merges(ingress: &Path, egress: &Path, options: &Options) {
    const CHUNK: u64 = 512;
    let partial = |piece: &Piece| piece.evaluate(&|| false);
    let pieces = plan(ingress, egress, options, CHUNK).expect("captures");
    let parts: Result<Vec<Partial>, _> = pieces.iter().map(partial).collect();
    match parts {
        Ok(parts) => {
            let merged = parts.into_iter().reduce(|mut before, next| {
                before.merge(next);
                before
            });
            let whole = Piece::whole(ingress, egress, options).and_then(|piece| partial(&piece));
            assert_eq!(merged, whole.ok());
        }
        Err(EvaluateError::NotSplittable) => {}
        Err(error) => panic!("a piece fails: {error}"),
    }
}

/// Every packet is counted once, and the distribution holds what was matched.
fn agrees(found: Evaluation, most: usize) {
    let counts = found.counts;
    assert_eq!(counts.entered(), counts.ingress, "{counts:?}");
    assert!(counts.merged_ingress > 0 || counts.left() == counts.egress, "{counts:?}");
    for (side, keyed, unkeyed) in [
        (&found.ingress, counts.ingress, counts.unkeyed_ingress),
        (&found.egress, counts.egress, counts.unkeyed_egress),
    ] {
        assert_eq!(keyed + unkeyed, side.notes.packets);
        assert!(side.resolution_ns() >= 1);
        assert_eq!(side.series.rates().map(|rate| rate.1).sum::<u64>(), side.series.packets);
    }
    assert_eq!(found.latencies.count(), counts.matched);
    assert_eq!(found.worst.len() as u64, counts.matched.min(most as u64));
    assert!(found.worst.is_sorted_by(|a, b| a.latency_ns >= b.latency_ns));
    let worst = &found.worst[0];
    assert_eq!(worst.egress_ns - worst.ingress_ns, worst.latency_ns);
    // Walking through the counters of every nanosecond would take most of the fuzzer's time.
    if worst.latency_ns < 100_000 {
        assert_eq!(found.latencies.at_ranks(&[counts.matched]), [worst.latency_ns]);
    }
    assert!(found.warnings.iter().all(|warning| !warning.message.contains('\n')));
}
