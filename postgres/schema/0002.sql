-- Pages of runs are read by these and by run_due and run_held, whatever they are asked
-- for. A run on its way from its creation to its end is entered in run_state once, at
-- the end; run_mute has those that only a message wakes.
CREATE INDEX run_state ON bide.run ((route * 16 + state), k) WHERE state > 3;
CREATE INDEX run_mute ON bide.run (route, k) WHERE wake IS NULL AND holder IS NULL AND state <= 3;
DROP INDEX bide.run_parent;
CREATE INDEX run_parent ON bide.run (parent, k) WHERE parent <> '';
ALTER TABLE bide.run ALTER COLUMN id TYPE text COLLATE "C"; -- how an id begins is a range of the index

-- A name and value of any length make eight bytes; who finds a run by them looks at it.
CREATE TABLE bide.label (
	mark bytea NOT NULL,
	run  bigint NOT NULL,
	PRIMARY KEY (mark, run)
);
INSERT INTO bide.label (mark, run)
	SELECT substr(sha256(convert_to(x.key || '=' || x.value, 'UTF8')), 1, 8), r.k FROM bide.run r, jsonb_each_text(r.labels) AS x
	ON CONFLICT DO NOTHING;

-- How many runs of a route are in a state (1: any that is neither ended, paused nor
-- canceling) is the sum of all these and of what members have in their rows: each
-- counts what it does there, in the row that its transactions write in any case.
CREATE TABLE bide.tally (
	route bigint NOT NULL,
	state smallint NOT NULL,
	runs  bigint NOT NULL
);
INSERT INTO bide.tally (route, state, runs)
	SELECT route, CASE WHEN state <= 3 THEN 1 ELSE state END, count(*) FROM bide.run GROUP BY 1, 2;
ALTER TABLE bide.member ADD COLUMN tally bigint[] NOT NULL DEFAULT '{}'; -- route, state, runs, and so on
