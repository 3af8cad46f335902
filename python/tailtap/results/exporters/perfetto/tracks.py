"""Tracks of a Perfetto trace: slices that nest, moments, counters, and flows between them.

trace_processor sorts all packets by time, and leaves those of one time in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import IO, Any, NamedTuple

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

_SEQUENCE = 1
Arguments = Mapping[str, Any]


class Drawn(NamedTuple):
    """A slice: times in ns, what it is called, its category, and what is told of it."""

    start: int
    end: int
    name: str
    category: str
    arguments: Arguments
    leaving: Sequence[int] = ()
    """Flows that leave its beginning."""
    arriving: Sequence[int] = ()
    """Flows that arrive at its beginning."""
    ending: Sequence[int] = ()
    """Flows that arrive at its end."""


class Tracks:
    """Writes a trace into a file."""

    def __init__(self, file: IO[bytes]) -> None:
        """`file` is open for writing."""
        self._builder = StreamingTraceProtoBuilder(file)
        self._uuids = count(1)
        self._cores: dict[str, int] = {}
        first = self._packet()
        first.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        first.first_packet_on_sequence = True
        self._builder.write_packet(first)

    def core(self, name: str) -> int:
        """The track that holds those of a core."""
        if name not in self._cores:
            self._cores[name] = self.track(name, ordered=True)
        return self._cores[name]

    def track(
        self, name: str, parent: int = 0, *, rank: int = 0, ordered: bool = False, unit: str = ""
    ) -> int:
        """A new track, and the uuid that it is known by. Those of one name are drawn as one.

        One that is `ordered` shows those in it by their ranks. One with a `unit` is a counter.
        """
        packet = self._packet()
        descriptor = packet.track_descriptor
        descriptor.uuid = next(self._uuids)
        descriptor.name = name
        if parent:
            descriptor.parent_uuid = parent
            descriptor.sibling_order_rank = rank
        if ordered:
            descriptor.child_ordering = TrackDescriptor.EXPLICIT
        if unit:
            descriptor.counter.unit_name = unit
        self._builder.write_packet(packet)
        return int(descriptor.uuid)

    def slices(self, track: int, ones: Iterable[Drawn]) -> None:
        """Write slices that nest, in the order of their starts, the longer ones first.

        An end is written before a beginning at the same time, which would lie within otherwise.
        """
        open_: list[Drawn] = []

        def close(until: int | None) -> None:
            while open_ and (until is None or open_[-1].end <= until):
                done = open_.pop()
                packet = self._event(track, done.end, TrackEvent.TYPE_SLICE_END)
                packet.track_event.terminating_flow_ids.extend(done.ending)
                self._builder.write_packet(packet)

        for one in ones:
            close(one.start)
            packet = self._event(
                track, one.start, TrackEvent.TYPE_SLICE_BEGIN, one.name, one.arguments
            )
            packet.track_event.categories.append(one.category)
            packet.track_event.flow_ids.extend(one.leaving)
            packet.track_event.terminating_flow_ids.extend(one.arriving)
            self._builder.write_packet(packet)
            open_.append(one)
        close(None)

    def instant(self, track: int, at: int, name: str, arguments: Arguments, flow: int) -> None:
        """Write a moment that a flow leaves."""
        packet = self._event(track, at, TrackEvent.TYPE_INSTANT, name, arguments)
        packet.track_event.flow_ids.append(flow)
        self._builder.write_packet(packet)

    def counter(self, track: int, at: int, value: int) -> None:
        """Write the value of a counter from a moment on."""
        packet = self._event(track, at, TrackEvent.TYPE_COUNTER)
        packet.track_event.counter_value = value
        self._builder.write_packet(packet)

    def _packet(self) -> Any:
        packet: Any = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _event(
        self, track: int, at: int, kind: Any, name: str = "", arguments: Arguments | None = None
    ) -> Any:
        packet = self._packet()
        packet.timestamp = at
        packet.track_event.track_uuid = track
        packet.track_event.type = kind
        if name:
            packet.track_event.name = name
        for key, value in (arguments or {}).items():
            _annotate(packet.track_event.debug_annotations.add(), key, value)
        return packet


def _annotate(annotation: Any, name: str, value: Any) -> None:
    annotation.name = name
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _annotate(annotation.dict_entries.add(), key, inner)
    elif isinstance(value, int):
        annotation.int_value = value
    else:
        annotation.string_value = str(value)
