//! What is said where two captures cannot be evaluated.

use super::choose::{KeyChoice, no_packet};
use super::{Counts, EvaluateError, Options, Side, outside};
use crate::key::KeyKind;

/// An error when no packet of a capture has the key.
pub(super) fn refuse_keyless(key: KeyKind, side: &Side) -> Result<(), EvaluateError> {
    if side.intake.keyed > 0 {
        return Ok(());
    }
    let intake = &side.intake;
    let why = if side.notes.packets == 0 || side.chosen.is_some() && intake.unkeyed() == 0 {
        no_packet(&side.notes, side.chosen.as_deref())
    } else if intake.frameless > 0 {
        let name = side.format.name();
        format!("{name} files hold packet ids, not frames: use --key moonsniff")
    } else if intake.headless > 0 {
        format!(
            "its packets were captured without the Ethernet header that the key '{key}' counts from: \
             try --key packet, or moonsniff"
        )
    } else if intake.short >= intake.foreign {
        format!("the snap length cuts the key '{key}' off every packet: capture more bytes")
    } else {
        format!("no packet carries the key '{key}': try --key auto")
    };
    Err(EvaluateError::NoKey { path: side.path.clone(), why })
}

/// Why two captures that both have the key do not have a packet in common.
pub(super) fn why_no_match(
    choice: &KeyChoice,
    counts: &Counts,
    ingress: &Side,
    egress: &Side,
    options: &Options,
) -> String {
    let pair = format!("no packet of {} is in {}", ingress.path.display(), egress.path.display());
    let (before, after) = (&ingress.intake, &egress.intake);
    let seconds = |ns: u64| ns as f64 / 1e9;
    if let Some(outside) = outside::look(choice, options)
        && counts.trimmed_egress < counts.egress
    {
        return format!("{pair} within --window: {}", outside.told(options.window_ns));
    }
    if counts.trimmed_egress == counts.egress {
        return format!(
            "nothing is left after trimming: the capture after the device is {:.3} s long, --trim \
             takes {:.3} s",
            seconds(after.last_ns - after.first_ns),
            seconds(options.trim_ns)
        );
    }
    if counts.duplicate_ingress > 0
        && counts.duplicate_ingress + counts.trimmed_ingress == counts.ingress
    {
        return format!(
            "every key before the device occurs more than once within {:.3} s: '{}' does not tell \
             packets apart; choose another --key or a shorter --window",
            seconds(options.window_ns),
            choice.key
        );
    }
    let apart = before
        .first_ns
        .saturating_sub(after.last_ns)
        .max(after.first_ns.saturating_sub(before.last_ns));
    if apart >= options.window_ns {
        return format!(
            "{pair}: the captures lie {:.3} s apart, more than --window; were they taken at the \
             same time and with the same clock? (--egress-ahead and --back are for two)",
            seconds(apart)
        );
    }
    format!(
        "{pair} by the key '{}': if the device changes these bytes, match by bytes that it keeps \
         with --key OFFSET:WIDTH:le|be or by header (ip.id, udp.payload+0:4:le); if the same number \
         stands elsewhere behind it, say where with --key-after",
        choice.key
    )
}
