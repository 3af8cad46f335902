-- Tables of results.duckdb with what their runs are.

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
