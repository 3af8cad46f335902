-- The tables of results.duckdb. Times are integer nanoseconds; `run` is the run's number. Runs of
-- status 'imported' come from result files of others: numbers that their files do not say are NULL.

CREATE TABLE IF NOT EXISTS runs (
    run INTEGER PRIMARY KEY,
    slug VARCHAR NOT NULL,
    experiment VARCHAR NOT NULL,
    repeat INTEGER NOT NULL,
    status VARCHAR NOT NULL,
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
    min_ns BIGINT,
    mean_ns DOUBLE,
    max_ns BIGINT
);

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
