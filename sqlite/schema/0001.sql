-- Times are microseconds since 1970, UTC, given by the program: SQL never asks
-- for the time. Numbers k and ver come from one ascending row for the whole
-- store, so that all tables are appended to, never written in the middle.

CREATE TABLE meta (
	name  TEXT PRIMARY KEY,
	value INTEGER NOT NULL
) WITHOUT ROWID;

-- A queue and a workflow. All runs of the route with (wake, k) up to (mark_wake,
-- mark_k), put there up to number mark_put, have been claimed: a claim writes one
-- row a route, not one row a run.
CREATE TABLE route (
	k         INTEGER PRIMARY KEY,
	queue     TEXT NOT NULL,
	workflow  TEXT NOT NULL,
	mark_wake INTEGER NOT NULL DEFAULT -1,
	mark_k    INTEGER NOT NULL DEFAULT 0,
	mark_put  INTEGER NOT NULL DEFAULT 0,
	UNIQUE (queue, workflow)
);

CREATE TABLE run (
	k        INTEGER PRIMARY KEY,
	route    INTEGER NOT NULL,
	state    INTEGER NOT NULL,
	ver      INTEGER NOT NULL,
	wake     INTEGER, -- when it is due; 0: claimed as it was created; NULL: ended, paused, or only a message wakes it
	put      INTEGER NOT NULL, -- the number of the change that gave it this wake
	mail     INTEGER NOT NULL DEFAULT 0, -- the newest message that ever came
	id       TEXT,    -- given by the user; NULL: the id is made of k
	parent   TEXT,
	detached INTEGER NOT NULL DEFAULT 0,
	kids     INTEGER NOT NULL DEFAULT 0, -- whether it has started children
	gen      INTEGER NOT NULL DEFAULT 0, -- how often it was continued as new
	created  INTEGER NOT NULL,
	started  INTEGER,
	ended    INTEGER,
	deadline INTEGER,
	waits    BLOB,
	progress BLOB,
	labels   TEXT,
	error    BLOB,
	vals     BLOB,
	result   BLOB,
	input    BLOB     -- NULL: in payload, since changing a row writes all of it
);
CREATE INDEX run_due ON run (route, wake) WHERE wake IS NOT NULL;
CREATE UNIQUE INDEX run_id ON run (id) WHERE id IS NOT NULL;
CREATE INDEX run_parent ON run (parent) WHERE parent IS NOT NULL;

CREATE TABLE payload (
	run   INTEGER PRIMARY KEY,
	input BLOB NOT NULL
);

CREATE TABLE rec (
	k       INTEGER PRIMARY KEY,
	run     INTEGER NOT NULL,
	path    TEXT NOT NULL,
	kind    INTEGER NOT NULL,
	name    TEXT,
	data    BLOB,
	error   BLOB,
	attempt INTEGER NOT NULL,
	at      INTEGER NOT NULL,
	took    INTEGER NOT NULL, -- microseconds
	by      TEXT,
	poll    BLOB -- how a poll went
);
CREATE INDEX rec_run ON rec (run);

CREATE TABLE inbox (
	k     INTEGER PRIMARY KEY,
	run   INTEGER NOT NULL,
	op    INTEGER NOT NULL,
	name  TEXT,
	key   TEXT, -- a message with a key stays when it is taken, as its own proof
	taken INTEGER NOT NULL DEFAULT 0,
	data  BLOB,
	error BLOB,
	at    INTEGER NOT NULL
);
CREATE INDEX inbox_run ON inbox (run);
CREATE UNIQUE INDEX inbox_key ON inbox (run, key) WHERE key IS NOT NULL;

-- What lasts beside the runs. One that has expired is not there; it is deleted
-- when other facts are written.
CREATE TABLE fact (
	kind    TEXT NOT NULL,
	key     TEXT NOT NULL,
	ver     INTEGER NOT NULL,
	value   BLOB NOT NULL,
	expires INTEGER, -- NULL: never
	PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE INDEX fact_expires ON fact (expires) WHERE expires IS NOT NULL;
