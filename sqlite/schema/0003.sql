-- Pages of runs are read by these and by run_due, whatever they are asked for. A run
-- on its way from its creation to its end is entered in run_state once, at the end;
-- run_mute has those that only a message wakes.
CREATE INDEX run_state ON run (route, state) WHERE state > 3;
CREATE INDEX run_mute ON run (route) WHERE wake IS NULL AND state <= 3;

CREATE TABLE label (
	name  TEXT NOT NULL,
	value TEXT NOT NULL,
	run   INTEGER NOT NULL,
	PRIMARY KEY (name, value, run)
) WITHOUT ROWID;
INSERT INTO label (name, value, run) SELECT x.key, x.value, run.k FROM run, json_each(run.labels) AS x WHERE run.labels IS NOT NULL;
