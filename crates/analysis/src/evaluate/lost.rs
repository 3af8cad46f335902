//! Which packets were lost: a row for each, from the capture before the device.

use super::EvaluateError;
use super::choose::KeyChoice;
use crate::capture::Content;
use crate::clocks::Clocks;
use crate::key::{Extract, Keeps, KeyKind, Moonsniff, Packet, Signatures};
use crate::losses::Losses;

/// A packet that came to the device and did not leave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPacket {
    /// Its stamp before the device in nanoseconds.
    pub ingress_ns: u64,
    /// How many packets with a key the capture has before it.
    pub position: u64,
    /// Its length on the wire in bytes, without the frame check sequence; `None` where the capture does
    /// not say it.
    pub length: Option<u32>,
    /// How many packets that follow each other were lost with it, itself among them.
    pub burst: u64,
    /// Its flow, as people see it; empty where the capture has no frames.
    pub flow: String,
    /// Its key, as people see it.
    pub key: String,
}

/// The rows of lost packets in the order of the capture; their times are on the clock of the walk.
pub(super) fn rows(choice: &KeyChoice, losses: Losses) -> Result<Vec<LostPacket>, EvaluateError> {
    let losses = losses.sorted();
    if losses.packets().is_empty() {
        return Ok(Vec::new());
    }
    match choice.key {
        KeyKind::Packet(packet) => read(choice, packet, losses.packets()),
        KeyKind::Stream(stream) => read(choice, stream, losses.packets()),
        KeyKind::Moonsniff => read(choice, Moonsniff, losses.packets()),
        KeyKind::Signature => read(choice, Signatures, losses.packets()),
        KeyKind::Field(field) | KeyKind::Fields([field, _]) => {
            read(choice, field, losses.packets())
        }
    }
}

fn read<X: Extract>(
    choice: &KeyChoice,
    extract: X,
    lost: &[(u64, u64)],
) -> Result<Vec<LostPacket>, EvaluateError> {
    const AT_ONCE: usize = 1 << 16;
    let shift_ns =
        choice.ingress_shift_ns + choice.clocks.as_ref().map_or(0, Clocks::ingress_shift_ns);
    let mut capture = choice.ingress.open()?;
    let mut rows: Vec<LostPacket> = Vec::with_capacity(lost.len());
    let (mut position, mut begun) = (0, None);
    while capture.read(AT_ONCE, |packet| {
        let Ok((key, shown)) = extract.extract(packet.content) else { return };
        let time = packet.time_ns.saturating_add(shift_ns);
        if lost.binary_search(&(time, key)).is_ok() {
            begun.get_or_insert(rows.len());
            rows.push(LostPacket {
                ingress_ns: time,
                position,
                length: length(packet.content),
                burst: 0,
                flow: flow(packet.content),
                key: X::name(key, shown).to_string(),
            });
        } else {
            end(&mut rows, begun.take());
        }
        position += 1;
    })? && rows.len() < lost.len()
    {}
    end(&mut rows, begun);
    Ok(rows)
}

/// Ends a burst that began at a row.
fn end(rows: &mut [LostPacket], begun: Option<usize>) {
    if let Some(begun) = begun {
        let packets = (rows.len() - begun) as u64;
        rows[begun..].iter_mut().for_each(|row| row.burst = packets);
    }
}

fn length(content: Content<'_>) -> Option<u32> {
    match content {
        Content::Frame { wire_len, .. } | Content::Mark { wire_len, .. } => Some(wire_len),
        Content::Id(_) => None,
    }
}

fn flow(content: Content<'_>) -> String {
    // Nothing of the payload, so that it may be cut off.
    let headers = Packet { keeps: Keeps::Flow, most: 0 };
    headers.extract(content).map_or(String::new(), |(_, seen)| seen.flow())
}
