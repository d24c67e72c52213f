-- Times of runs are microseconds since 1970, UTC, given by the program; only
-- leases go by the database's own clock. Numbers (k, ver, epoch) come from one
-- sequence for the whole schema, in blocks: n to n+65535 for a nextval of n. Bytes
-- hold JSON as it was given, digit by digit.

CREATE SEQUENCE bide.number AS bigint INCREMENT BY 65536 MINVALUE 1 START WITH 1;

CREATE TABLE bide.meta (
	name  text PRIMARY KEY,
	value bigint NOT NULL
);

-- A process that has the store open. What it knows of the runs that it holds is
-- right as long as news is what it last read: who changes such a run from outside
-- raises it, and who takes its runs over sets dead first. Every transaction of the
-- process ends with a look at its row, which also keeps the number of the last
-- one, so that a process knows after a cut what has become of it.
CREATE TABLE bide.member (
	k       bigint PRIMARY KEY,
	batch   bigint NOT NULL DEFAULT 0,
	news    bigint NOT NULL DEFAULT 0,
	changed bigint[] NOT NULL DEFAULT '{}', -- runs that it holds and others have changed
	dead    boolean NOT NULL DEFAULT false,
	expires timestamptz NOT NULL,
	process text NOT NULL -- for people
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000);

CREATE TABLE bide.worker (
	k         bigint PRIMARY KEY,
	member    bigint NOT NULL,
	id        text NOT NULL,
	queues    text[] NOT NULL,
	workflows text[] NOT NULL,
	max       int NOT NULL
);

CREATE TABLE bide.route (
	k        bigint PRIMARY KEY,
	queue    text NOT NULL,
	workflow text NOT NULL,
	UNIQUE (queue, workflow)
);

CREATE TABLE bide.run (
	k        bigint PRIMARY KEY,
	route    bigint NOT NULL,
	ver      bigint NOT NULL,
	wake     bigint,           -- when it is due; NULL: held, ended, paused, or only a message wakes it
	holder   bigint,           -- the worker that has it in hand
	epoch    bigint NOT NULL DEFAULT 0,
	mail     bigint NOT NULL DEFAULT 0, -- the newest message that ever came
	created  bigint NOT NULL,
	started  bigint NOT NULL DEFAULT 0,
	ended    bigint NOT NULL DEFAULT 0,
	deadline bigint NOT NULL DEFAULT 0,
	gen      int NOT NULL DEFAULT 0,    -- how often it was continued as new
	state    smallint NOT NULL,
	detached boolean NOT NULL DEFAULT false,
	kids     boolean NOT NULL DEFAULT false, -- whether it has started children
	cut      boolean NOT NULL DEFAULT false, -- the last turn's lease has lapsed
	warm     boolean NOT NULL DEFAULT false, -- its turn waits and holds the lease
	id       text,             -- given by the user; NULL: the id is made of k
	parent   text NOT NULL DEFAULT '',
	key      text,
	print    text NOT NULL DEFAULT '',
	trace    text NOT NULL DEFAULT '',
	labels   jsonb,
	waits    bytea,
	progress bytea,
	error    bytea,
	vals     bytea,
	result   bytea,
	input    bytea,
	on_end   bytea             -- the run that follows its end
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- None of these has an entry for a run that has ended, but the parents' and the users' own.
CREATE INDEX run_due ON bide.run (route, wake, k) WHERE wake IS NOT NULL;
CREATE INDEX run_held ON bide.run (holder) WHERE holder IS NOT NULL;
CREATE UNIQUE INDEX run_id ON bide.run (id) WHERE id IS NOT NULL;
CREATE UNIQUE INDEX run_key ON bide.run (key) WHERE key IS NOT NULL;
CREATE INDEX run_parent ON bide.run (parent) WHERE parent <> '';

CREATE TABLE bide.rec (
	run     bigint NOT NULL,
	k       bigint NOT NULL,
	at      bigint NOT NULL,
	took    bigint NOT NULL, -- microseconds
	attempt int NOT NULL,
	kind    smallint NOT NULL,
	path    text NOT NULL,
	name    text NOT NULL,
	by      text NOT NULL,
	data    bytea,
	error   bytea,
	poll    bytea, -- how a poll went
	PRIMARY KEY (run, k)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.5);

CREATE TABLE bide.chunk (
	run     bigint NOT NULL,
	k       bigint NOT NULL,
	at      bigint NOT NULL,
	attempt int NOT NULL,
	path    text NOT NULL,
	name    text NOT NULL,
	data    bytea,
	PRIMARY KEY (run, k)
);

CREATE TABLE bide.inbox (
	run   bigint NOT NULL,
	k     bigint NOT NULL,
	at    bigint NOT NULL,
	op    smallint NOT NULL,
	taken boolean NOT NULL DEFAULT false,
	name  text NOT NULL,
	key   text, -- a message with a key stays when it is taken, as its own proof
	data  bytea,
	error bytea,
	PRIMARY KEY (run, k)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE UNIQUE INDEX inbox_key ON bide.inbox (run, key) WHERE key IS NOT NULL;

-- What lasts beside the runs. One that has expired is not there; it is deleted
-- when other facts are written. Kind and key are bytes: they may be any.
CREATE TABLE bide.fact (
	kind    bytea NOT NULL,
	key     bytea NOT NULL,
	ver     bigint NOT NULL,
	value   bytea NOT NULL,
	expires bigint, -- NULL: never
	PRIMARY KEY (kind, key)
);
CREATE INDEX fact_expires ON bide.fact (expires) WHERE expires IS NOT NULL;

-- What steps that write in a transaction of their own have come to: the proof, in
-- the same transaction, that it was done.
CREATE TABLE bide.once (
	key   text PRIMARY KEY,
	at    timestamptz NOT NULL DEFAULT now(),
	value bytea
);
CREATE INDEX once_at ON bide.once (at);
