-- A start's key, the run that follows a run's end, and the trace of who started it.
ALTER TABLE run ADD COLUMN key TEXT; -- unique
ALTER TABLE run ADD COLUMN print TEXT;
ALTER TABLE run ADD COLUMN on_end BLOB;
ALTER TABLE run ADD COLUMN trace TEXT;
CREATE UNIQUE INDEX run_key ON run (key) WHERE key IS NOT NULL;

-- What steps have streamed.
CREATE TABLE chunk (
	k       INTEGER PRIMARY KEY,
	run     INTEGER NOT NULL,
	path    TEXT NOT NULL,
	name    TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	data    BLOB,
	at      INTEGER NOT NULL
);
CREATE INDEX chunk_run ON chunk (run);

-- How many runs of a route are in a state, as the rows have it: counting a million
-- rows would take longer than anyone waits.
CREATE TABLE tally (
	route INTEGER NOT NULL,
	state INTEGER NOT NULL,
	runs  INTEGER NOT NULL,
	PRIMARY KEY (route, state)
) WITHOUT ROWID;
INSERT INTO tally (route, state, runs) SELECT route, state, count(*) FROM run GROUP BY route, state;
