-- The tables of results.duckdb. Times are integer nanoseconds; `run` is the run's number. Runs of
-- status 'imported' come from result files of others: numbers that their files do not say are NULL.

CREATE TABLE IF NOT EXISTS runs (
    run INTEGER PRIMARY KEY,
    slug VARCHAR NOT NULL,
    experiment VARCHAR NOT NULL,
    repeat INTEGER NOT NULL,
    status VARCHAR NOT NULL,
    valid BOOLEAN,
    error VARCHAR,
    started TIMESTAMPTZ,
    finished TIMESTAMPTZ,
    variables JSON NOT NULL,
    parameters JSON NOT NULL,
    generator JSON,
    taps JSON,
    platform JSON,
    forwarder JSON,
    counters JSON,
    environment JSON
);

-- Databases of earlier versions do not say which runs are invalid.
ALTER TABLE runs ADD COLUMN IF NOT EXISTS valid BOOLEAN;

CREATE TABLE IF NOT EXISTS evaluations (
    run INTEGER PRIMARY KEY,
    key VARCHAR NOT NULL,
    ingress BIGINT,
    egress BIGINT,
    matched BIGINT,
    lost BIGINT,
    unmatched_egress BIGINT,
    duplicate_ingress BIGINT,
    duplicate_egress BIGINT,
    reordered BIGINT,
    noncausal BIGINT,
    trimmed_ingress BIGINT,
    trimmed_egress BIGINT,
    unkeyed_ingress BIGINT,
    unkeyed_egress BIGINT,
    unread_ingress BIGINT,
    unread_egress BIGINT,
    min_ns BIGINT,
    mean_ns DOUBLE,
    max_ns BIGINT,
    matched_in_order BIGINT,
    merged_ingress BIGINT,
    parts_egress BIGINT
);

-- Databases of earlier versions do not have these counts.
ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS matched_in_order BIGINT;
ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS merged_ingress BIGINT;
ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS parts_egress BIGINT;

CREATE TABLE IF NOT EXISTS percentiles (
    run INTEGER NOT NULL,
    p DOUBLE NOT NULL,
    value BIGINT NOT NULL,
    low BIGINT,
    high BIGINT,
    above BIGINT,
    supported BOOLEAN NOT NULL
);

CREATE TABLE IF NOT EXISTS distribution (
    run INTEGER NOT NULL,
    latency_ns BIGINT NOT NULL,
    count BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS histogram (
    run INTEGER NOT NULL,
    bucket_ns BIGINT NOT NULL,
    count BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS worst (
    run INTEGER NOT NULL,
    latency_ns BIGINT NOT NULL,
    ingress_ns BIGINT NOT NULL,
    egress_ns BIGINT NOT NULL,
    key VARCHAR NOT NULL
);

CREATE TABLE IF NOT EXISTS losses (
    run INTEGER NOT NULL,
    ingress_ns BIGINT NOT NULL,
    position BIGINT NOT NULL,
    length BIGINT, -- bytes; NULL where captures hold no frames
    burst BIGINT NOT NULL, -- packets in a row that were lost, this one among them
    flow VARCHAR NOT NULL,
    key VARCHAR NOT NULL
);

CREATE TABLE IF NOT EXISTS gaps (
    run INTEGER NOT NULL,
    side VARCHAR NOT NULL,
    bucket_ns BIGINT NOT NULL,
    count BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS rates (
    run INTEGER NOT NULL,
    side VARCHAR NOT NULL,
    start_ns BIGINT NOT NULL,
    packets BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS warnings (
    run INTEGER NOT NULL,
    code VARCHAR NOT NULL,
    message VARCHAR NOT NULL
);

-- What was done while packets were measured, and what these met with around it; all times are of the
-- stamps' clock. The run's other time has event 0, and is that of nothing.

CREATE TABLE IF NOT EXISTS events (
    run INTEGER NOT NULL,
    event INTEGER NOT NULL,
    name VARCHAR,
    place VARCHAR,
    command JSON,
    at_ns BIGINT,
    begin_ns BIGINT,
    end_ns BIGINT,
    status BIGINT,
    output VARCHAR,
    blocked_ns BIGINT,
    blocked_least_ns BIGINT,
    blocked_most_ns BIGINT,
    time_ns BIGINT NOT NULL,
    packets BIGINT NOT NULL,
    lost BIGINT NOT NULL,
    p50_ns BIGINT,
    p99_ns BIGINT,
    p999_ns BIGINT,
    max_ns BIGINT
);

-- Of runs that were stamped between their nodes.

CREATE TABLE IF NOT EXISTS hops (
    run INTEGER NOT NULL,
    hop INTEGER NOT NULL,
    node VARCHAR NOT NULL,
    part VARCHAR NOT NULL, -- node, or queue: of the node
    ingress BIGINT NOT NULL,
    egress BIGINT NOT NULL,
    matched BIGINT NOT NULL,
    lost BIGINT NOT NULL,
    reordered BIGINT NOT NULL,
    noncausal BIGINT NOT NULL,
    min_ns BIGINT NOT NULL,
    mean_ns DOUBLE NOT NULL,
    max_ns BIGINT NOT NULL,
    slowest_of_worst BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS hop_percentiles (
    run INTEGER NOT NULL,
    hop INTEGER NOT NULL,
    node VARCHAR NOT NULL,
    part VARCHAR NOT NULL,
    p DOUBLE NOT NULL,
    value BIGINT NOT NULL,
    low BIGINT,
    high BIGINT,
    above BIGINT NOT NULL,
    supported BOOLEAN NOT NULL
);

CREATE TABLE IF NOT EXISTS hop_distribution (
    run INTEGER NOT NULL,
    hop INTEGER NOT NULL,
    node VARCHAR NOT NULL,
    part VARCHAR NOT NULL,
    latency_ns BIGINT NOT NULL,
    count BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS hop_worst (
    run INTEGER NOT NULL,
    hop INTEGER NOT NULL,
    node VARCHAR NOT NULL,
    part VARCHAR NOT NULL,
    key VARCHAR NOT NULL,
    ingress_ns BIGINT NOT NULL,
    latency_ns BIGINT NOT NULL,
    hop_ns BIGINT
);

-- In databases of earlier versions every hop is a node.
ALTER TABLE hops ADD COLUMN IF NOT EXISTS part VARCHAR DEFAULT 'node';
ALTER TABLE hop_percentiles ADD COLUMN IF NOT EXISTS part VARCHAR DEFAULT 'node';
ALTER TABLE hop_distribution ADD COLUMN IF NOT EXISTS part VARCHAR DEFAULT 'node';
ALTER TABLE hop_worst ADD COLUMN IF NOT EXISTS part VARCHAR DEFAULT 'node';

CREATE TABLE IF NOT EXISTS causes (
    run INTEGER NOT NULL,
    cause VARCHAR NOT NULL,
    detail VARCHAR NOT NULL,
    claim VARCHAR NOT NULL,
    packets BIGINT NOT NULL,
    behind BIGINT NOT NULL,
    stalls BIGINT NOT NULL,
    delay_ns BIGINT NOT NULL,
    worst_ns BIGINT NOT NULL,
    share DOUBLE,
    p_value DOUBLE,
    shifts BIGINT,
    knobs JSON NOT NULL
);

CREATE TABLE IF NOT EXISTS stalls (
    run INTEGER NOT NULL,
    stall BIGINT NOT NULL,
    cpu BIGINT NOT NULL,
    start_ns BIGINT NOT NULL,
    end_ns BIGINT NOT NULL,
    cause VARCHAR NOT NULL,
    detail VARCHAR NOT NULL,
    direct BIGINT NOT NULL,
    behind BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS late_packets (
    run INTEGER NOT NULL,
    packet BIGINT NOT NULL,
    ingress_ns BIGINT NOT NULL,
    egress_ns BIGINT NOT NULL,
    latency_ns BIGINT NOT NULL,
    excess_ns BIGINT NOT NULL,
    cpu BIGINT,
    state VARCHAR NOT NULL,
    cause VARCHAR NOT NULL,
    blamed VARCHAR NOT NULL,
    detail VARCHAR NOT NULL,
    stall BIGINT,
    segment BIGINT
);

-- Databases of earlier versions have no segments.
ALTER TABLE late_packets ADD COLUMN IF NOT EXISTS segment BIGINT;

-- What is left of runs without the time around pauses from outside.

CREATE TABLE IF NOT EXISTS undisturbed (
    run INTEGER NOT NULL,
    shown BOOLEAN NOT NULL,
    reason VARCHAR,
    words VARCHAR NOT NULL,
    pauses JSON NOT NULL,
    of_ns BIGINT NOT NULL,
    left_out_ns BIGINT NOT NULL,
    stretches BIGINT NOT NULL,
    packets BIGINT NOT NULL,
    left_out BIGINT NOT NULL,
    p_value DOUBLE
);

CREATE TABLE IF NOT EXISTS undisturbed_percentiles (
    run INTEGER NOT NULL,
    p DOUBLE NOT NULL,
    value BIGINT NOT NULL,
    low BIGINT,
    high BIGINT,
    above BIGINT NOT NULL,
    supported BOOLEAN NOT NULL
);

-- The same with what their runs are.

CREATE OR REPLACE VIEW run_causes AS
SELECT slug, experiment, repeat, valid, variables, causes.* FROM causes JOIN runs USING (run);

CREATE OR REPLACE VIEW run_stalls AS
SELECT slug, experiment, repeat, valid, variables, stalls.* FROM stalls JOIN runs USING (run);

CREATE OR REPLACE VIEW run_late_packets AS
SELECT
    slug,
    experiment,
    repeat,
    valid,
    variables,
    late_packets.*,
    stalls.start_ns AS stall_start_ns,
    stalls.end_ns AS stall_end_ns
FROM late_packets
JOIN runs USING (run)
LEFT JOIN stalls ON stalls.run = late_packets.run AND stalls.stall = late_packets.stall;
