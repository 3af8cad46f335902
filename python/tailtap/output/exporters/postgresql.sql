-- The tables and views that `tailtap export --to postgresql://…` fills. Times are nanoseconds.
-- `run` is a number of this database; a run is known again by experiment, slug and start.

CREATE TABLE IF NOT EXISTS runs (
    run bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    experiment text NOT NULL,
    slug text NOT NULL,
    started text,
    finished text,
    number integer NOT NULL,
    repeat integer NOT NULL,
    status text NOT NULL,
    valid boolean,
    variables jsonb,
    parameters jsonb,
    generator jsonb,
    taps jsonb,
    platform jsonb,
    forwarder jsonb,
    counters jsonb,
    environment jsonb,
    CONSTRAINT runs_identity UNIQUE NULLS NOT DISTINCT (experiment, slug, started)
);

-- Databases of earlier versions do not say which runs are invalid.
ALTER TABLE runs ADD COLUMN IF NOT EXISTS valid boolean;

CREATE TABLE IF NOT EXISTS evaluations (
    run bigint PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
    key text NOT NULL,
    ingress bigint NOT NULL,
    egress bigint NOT NULL,
    matched bigint NOT NULL,
    lost bigint NOT NULL,
    unmatched_egress bigint NOT NULL,
    duplicate_ingress bigint NOT NULL,
    duplicate_egress bigint NOT NULL,
    reordered bigint NOT NULL,
    noncausal bigint NOT NULL,
    trimmed_ingress bigint NOT NULL,
    trimmed_egress bigint NOT NULL,
    unkeyed_ingress bigint NOT NULL,
    unkeyed_egress bigint NOT NULL,
    unread_ingress bigint,
    unread_egress bigint,
    matched_in_order bigint,
    merged_ingress bigint,
    parts_egress bigint,
    min_ns bigint NOT NULL,
    mean_ns double precision NOT NULL,
    max_ns bigint NOT NULL
);

-- Databases of earlier versions do not have these counts.
ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS matched_in_order bigint;
ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS merged_ingress bigint;
ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS parts_egress bigint;

CREATE TABLE IF NOT EXISTS percentiles (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    p double precision NOT NULL,
    value bigint NOT NULL,
    low bigint,
    high bigint,
    above bigint NOT NULL,
    supported boolean NOT NULL,
    PRIMARY KEY (run, p)
);

CREATE TABLE IF NOT EXISTS distribution (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    latency_ns bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (run, latency_ns)
);

CREATE TABLE IF NOT EXISTS histogram (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    bucket_ns bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (run, bucket_ns)
);

CREATE TABLE IF NOT EXISTS worst (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    latency_ns bigint NOT NULL,
    ingress_ns bigint NOT NULL,
    egress_ns bigint NOT NULL,
    key text NOT NULL
);
CREATE INDEX IF NOT EXISTS worst_run ON worst (run, ingress_ns);

-- The packets that came to the device and did not leave it, the first 262,144 of a run.
CREATE TABLE IF NOT EXISTS losses (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    ingress_ns bigint NOT NULL,
    position bigint NOT NULL,
    length bigint, -- bytes; null where captures hold no frames
    burst bigint NOT NULL, -- packets in a row that were lost, this one among them
    flow text NOT NULL,
    key text NOT NULL
);
CREATE INDEX IF NOT EXISTS losses_run ON losses (run, ingress_ns);

-- Every matched packet; empty for a run that was exported without them.
CREATE TABLE IF NOT EXISTS packets (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    latency_ns bigint NOT NULL,
    ingress_ns bigint NOT NULL,
    egress_ns bigint NOT NULL,
    key text NOT NULL
);
CREATE INDEX IF NOT EXISTS packets_run ON packets (run);

CREATE TABLE IF NOT EXISTS gaps (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    side text NOT NULL,
    bucket_ns bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (run, side, bucket_ns)
);

CREATE TABLE IF NOT EXISTS rates (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    side text NOT NULL,
    start_ns bigint NOT NULL,
    packets bigint NOT NULL,
    PRIMARY KEY (run, side, start_ns)
);

CREATE TABLE IF NOT EXISTS warnings (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    code text NOT NULL,
    message text NOT NULL
);
CREATE INDEX IF NOT EXISTS warnings_run ON warnings (run);

CREATE TABLE IF NOT EXISTS hops (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    hop integer NOT NULL,
    node text NOT NULL,
    part text NOT NULL, -- node, or queue: of the node
    ingress bigint NOT NULL,
    egress bigint NOT NULL,
    matched bigint NOT NULL,
    lost bigint NOT NULL,
    reordered bigint NOT NULL,
    noncausal bigint NOT NULL,
    min_ns bigint NOT NULL,
    mean_ns double precision NOT NULL,
    max_ns bigint NOT NULL,
    slowest_of_worst bigint NOT NULL,
    PRIMARY KEY (run, hop)
);

CREATE TABLE IF NOT EXISTS hop_percentiles (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    hop integer NOT NULL,
    node text NOT NULL,
    part text NOT NULL,
    p double precision NOT NULL,
    value bigint NOT NULL,
    low bigint,
    high bigint,
    above bigint NOT NULL,
    supported boolean NOT NULL,
    PRIMARY KEY (run, hop, p)
);

CREATE TABLE IF NOT EXISTS hop_distribution (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    hop integer NOT NULL,
    node text NOT NULL,
    part text NOT NULL,
    latency_ns bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (run, hop, latency_ns)
);

-- What each of the worst packets took for each hop: its whole latency is latency_ns.
CREATE TABLE IF NOT EXISTS hop_worst (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    hop integer NOT NULL,
    node text NOT NULL,
    part text NOT NULL,
    key text NOT NULL,
    ingress_ns bigint NOT NULL,
    latency_ns bigint NOT NULL,
    hop_ns bigint
);
CREATE INDEX IF NOT EXISTS hop_worst_run ON hop_worst (run, hop);

-- In databases of earlier versions every hop is a node.
ALTER TABLE hops ADD COLUMN IF NOT EXISTS part text NOT NULL DEFAULT 'node';
ALTER TABLE hop_percentiles ADD COLUMN IF NOT EXISTS part text NOT NULL DEFAULT 'node';
ALTER TABLE hop_distribution ADD COLUMN IF NOT EXISTS part text NOT NULL DEFAULT 'node';
ALTER TABLE hop_worst ADD COLUMN IF NOT EXISTS part text NOT NULL DEFAULT 'node';

-- The papers' queries, with the columns of their result files. The text of a double has every
-- digit that counts; its cast to numeric keeps fifteen.
CREATE OR REPLACE VIEW papers_percentiles AS
SELECT run, experiment, slug, p AS percentile, value,
       1 / nullif(1 - p::text::numeric, 0) AS onefraconeminuspercentile
FROM runs JOIN percentiles USING (run);

CREATE OR REPLACE VIEW papers_worst_over_time AS
SELECT run, experiment, slug, latency_ns AS latency, ingress_ns AS prets, egress_ns AS postts,
       key AS encode,
       (ingress_ns - (SELECT min(start_ns) FROM rates WHERE rates.run = worst.run
                      AND side = 'ingress')) / 1e9 AS second
FROM runs JOIN worst USING (run);

CREATE OR REPLACE VIEW papers_transferrate AS
SELECT run, experiment, slug, pre_received, post_received,
       post_received::numeric / nullif(pre_received, 0) AS transferrate,
       (SELECT avg(packets) FROM rates WHERE rates.run = counted.run
        AND side = 'ingress') AS pre_pkts_per_second,
       (SELECT avg(packets) FROM rates WHERE rates.run = counted.run
        AND side = 'egress') AS post_pkts_per_second
FROM (SELECT run, ingress - trimmed_ingress AS pre_received,
             egress - trimmed_egress AS post_received
      FROM evaluations) AS counted
JOIN runs USING (run);
